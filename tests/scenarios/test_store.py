"""Stories of one store: what is appended, what a crash leaves, what recovery makes of it, and what queries then find."""

from pathlib import Path

import pytest

from tests.scenarios.store_story import StoreStory
from tests.scenarios.transcript import check

TRANSCRIPTS = sorted(Path(__file__).with_name("store").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_the_store_answers_as_its_transcript_says(path: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Each file is one story."""
    story = StoreStory(tmp_path)
    try:
        check(path, story.answer, rewrite=pytestconfig.getoption("--rewrite"))
    finally:
        story.close()
