"""Patterns of the names of topics and groups: `*` stands for any characters, everything else for itself."""

import re
from collections.abc import Iterable


def name_matcher(patterns: Iterable[str]) -> re.Pattern[str]:
    """Its `fullmatch` takes the names that fit one of the patterns; none when there are no patterns."""
    parts = [".*".join(map(re.escape, pattern.split("*"))) for pattern in sorted(patterns)]
    return re.compile("|".join(parts) if parts else r"(?!)", re.DOTALL)
