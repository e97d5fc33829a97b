"""Stories of consumer groups: what a pop hands out, what an acknowledgement ends, what comes again, and what a kill leaves."""

from pathlib import Path

import pytest

from tests.scenarios.delivery_story import DeliveryStory
from tests.scenarios.transcript import check

TRANSCRIPTS = sorted(Path(__file__).with_name("delivery").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_groups_get_what_the_transcript_says(path: Path, pytestconfig: pytest.Config) -> None:
    """Each file is one story."""
    story = DeliveryStory()
    try:
        check(path, story.answer, rewrite=pytestconfig.getoption("--rewrite"))
    finally:
        story.close()
