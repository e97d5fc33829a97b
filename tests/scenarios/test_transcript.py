"""The runner of transcripts itself."""

from pathlib import Path

import pytest

from tests.scenarios.transcript import Command, check, play


def echo(command: Command) -> str:
    return f"{' '.join(command.words)} {sorted(command.values.items())}"


def test_a_command_has_words_and_named_values() -> None:
    """Quotes keep spaces together, as in a shell."""
    assert Command(("query", "by-key"), {"key": "a b", "empty": ""}) == Command.parse("query by-key key='a b' empty=")


def test_comments_stay_and_answers_are_filled_in() -> None:
    """What a transcript says of itself is not touched."""
    assert "# a story\n\n# of one step\nsay x=1\n----\nsay [('x', '1')]\n" == play(
        "# a story\n\n# of one step\nsay x=1\n----\nwrong\n", echo
    )


def test_another_answer_than_the_written_one_fails(tmp_path: Path) -> None:
    """The point of a transcript."""
    path = tmp_path / "story.txt"
    path.write_text("say x=1\n----\nsay [('x', '2')]\n")
    with pytest.raises(AssertionError):
        check(path, echo, rewrite=False)


def test_rewriting_writes_the_answers(tmp_path: Path) -> None:
    """A second run without the flag then passes."""
    path = tmp_path / "story.txt"
    path.write_text("say x=1\n----\n")
    check(path, echo, rewrite=True)
    check(path, echo, rewrite=False)
    assert "say x=1\n----\nsay [('x', '1')]\n" == path.read_text()


def test_a_block_without_a_separator_is_named() -> None:
    """A typing error in a transcript is no step that is skipped."""
    with pytest.raises(ValueError, match="'say x=1' has no line"):
        play("say x=1\n", echo)
