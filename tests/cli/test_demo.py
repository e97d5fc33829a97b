"""What the demonstration tells a person to type."""

import pathlib
import sys

import pytest

from cli import demo
from cli.demo import command_name


@pytest.fixture
def launcher(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The command of an environment that this process seems to run from."""
    commands = tmp_path / "clone" / ".venv" / "bin"
    commands.mkdir(parents=True)
    (commands / "reput").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(commands / "python"))
    monkeypatch.setenv("PATH", "/usr/bin")
    return commands / "reput"


def test_a_command_that_is_not_on_the_path_is_shown_with_its_path(
    launcher: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """A defect: `make run` printed `$ reput ...`, which a shell did not find."""
    monkeypatch.chdir(tmp_path / "clone")
    assert command_name() == ".venv/bin/reput"
    monkeypatch.chdir("/usr")
    assert command_name() == str(launcher)


def test_a_command_on_the_path_is_shown_by_its_name(
    launcher: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("PATH", str(launcher.parent))
    assert command_name() == "reput"


def test_another_command_of_this_name_on_the_path_is_not_meant(
    launcher: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "reput").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_name() == str(launcher)


def test_the_demonstration_says_what_programs_with_rocketmqs_clients_are_to_be_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    remoting = {"nameserver": "127.0.0.1:9876", "remoting": "127.0.0.1:10911"}
    demo._say_where({"gateway": "127.0.0.1:8081", **remoting}, None)
    assert "namesrvAddr = 127.0.0.1:9876" in capsys.readouterr().out
    # A name server without the door knows no address of the shard.
    demo._say_where({"gateway": "127.0.0.1:8081", "nameserver": "127.0.0.1:9876"}, None)
    assert "namesrvAddr" not in capsys.readouterr().out
