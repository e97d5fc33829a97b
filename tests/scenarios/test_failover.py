"""Stories of a shard with replicas: who leads after a death, a pause, a cut and an operator's word, and how soon."""

from pathlib import Path

import pytest

from tests.scenarios.failover_story import FailoverStory
from tests.scenarios.transcript import check

TRANSCRIPTS = sorted(Path(__file__).with_name("failover").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_the_lead_goes_as_the_transcript_says(path: Path, pytestconfig: pytest.Config) -> None:
    """Each file is one story."""
    check(path, FailoverStory().answer, rewrite=pytestconfig.getoption("--rewrite"))
