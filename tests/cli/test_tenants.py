"""`reput tenant check`: the quotas of a file, or what is wrong with it."""

from pathlib import Path

import pytest

from cli.main import main


def test_the_quotas_of_a_file_are_printed_one_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text("[namespaces.team-a]\ntopics = 3\nsent_messages_per_second = 10\n[namespaces.team-b]\n")
    assert main(["tenant", "check", "--file", str(file)]) == 0
    assert capsys.readouterr().out == "team-a\tsent_messages_per_second\t10\nteam-a\ttopics\t3\n"
    file.write_text("")
    assert main(["tenant", "check", "--file", str(file)]) == 1


@pytest.mark.parametrize(
    "text", ["[namespaces.team-a]\ntopic = 3", "namespaces = 3", "[", "a = " + "[" * 100_000, None]
)
def test_a_file_that_cannot_be_used_is_refused_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    file = tmp_path / "tenants.toml"
    if text is not None:
        file.write_text(text)
    assert main(["tenant", "check", "--file", str(file)]) == 2
    assert "tenants.toml" in capsys.readouterr().err
