"""Patterns of names: `*` stands for any characters."""

import pytest

from store.format.topic_patterns import name_matcher


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["Orders"], {"Orders"}),
        (["Ord*"], {"Orders", "Ord"}),
        (["*ers", "Ord"], {"Orders", "Ord"}),
        (["*"], {"Orders", "Ord", "a.b", "a\nb", ""}),
        (["a.b"], {"a.b"}),
        ([], set()),
    ],
)
def test_a_name_fits_a_pattern_whole_and_nothing_but_the_star_is_special(patterns: list[str], names: set[str]) -> None:
    fits = name_matcher(patterns).fullmatch
    assert {name for name in ("Orders", "Ord", "a.b", "aXb", "a\nb", "") if fits(name)} - {"aXb"} == names
    assert bool(fits("aXb")) == ("*" in patterns)
