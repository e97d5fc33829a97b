"""What is made beside its place: runs that overlap share nothing, what a killed one left goes, and nobody else's does."""

import errno
import os
import pathlib
import subprocess
import sys

import pytest

import cli.main
from cli.transfer.export_outputs import open_output
from cli.transfer.new_store import NewStore
from cli.transfer.staging import Staging
from store.errors import InvalidArgumentError
from tests.support.fixture_stores import walk_frames

KILLED = """
import os, pathlib, signal, sys
from cli.transfer.staging import Staging
staging = Staging(pathlib.Path(sys.argv[1]), is_directory=sys.argv[2] == "True")
print(staging.path.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_in(directory: pathlib.Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def topic_and_frames(store: pathlib.Path) -> list[tuple[str, bytes]]:
    from store.format.record import decode_record

    return [(decode_record(frame).topic, frame) for _, frame in walk_frames(store)][:20]


@pytest.mark.parametrize("is_store", [False, True])
def test_two_exports_to_one_place_shared_their_file(
    is_store: bool, broker_store: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPUT_COMMITLOG_FILE_SIZE_BYTES", "1048576")
    monkeypatch.setenv("REPUT_INDEX_HASH_SLOT_COUNT", "100")
    monkeypatch.setenv("REPUT_INDEX_ENTRY_COUNT_MAX", "1000")
    messages = topic_and_frames(broker_store)
    with open_output(tmp_path / "alone", is_store=is_store) as alone:
        for topic, frame in messages:
            alone.add_frame(topic, frame)
        alone.finish()

    with pytest.raises(InvalidArgumentError), open_output(tmp_path / "out", is_store=is_store) as late:
        late.add_frame(*messages[-1])
        with open_output(tmp_path / "out", is_store=is_store) as quick:
            for topic, frame in messages:
                quick.add_frame(topic, frame)
                late.add_frame(topic, frame)
            quick.finish()
        late.finish()

    assert left_in(tmp_path) == ["alone", "out"]
    files = [path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("0*")] if is_store else [""]
    for file in files:
        assert not (tmp_path / "out" / file).is_file() or (
            (tmp_path / "out" / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()
        )


@pytest.mark.parametrize("is_directory", [False, True])
def test_what_killed_runs_left_goes_and_what_others_have_stays(is_directory: bool, tmp_path: pathlib.Path) -> None:
    """A run removed whatever was called NAME.making: another's work, a user's directory."""
    out = tmp_path / "out"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(out), str(is_directory)], stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()
    assert left_in(tmp_path) == [killed]
    (tmp_path / "out.making").mkdir()
    (tmp_path / "out.making" / "mine").write_text("mine")
    mine = f"out.making-{os.getpid()}-{'0' * 16}"
    (tmp_path / mine).mkdir()  # no lock in it
    other = killed.replace("out.", "other.")
    (tmp_path / other).write_text("another name's")

    with Staging(out, is_directory=is_directory) as first, Staging(out, is_directory=is_directory) as second:
        assert left_in(tmp_path) == sorted([other, "out.making", mine, first.path.name, second.path.name])
        assert first.path != second.path

    assert left_in(tmp_path) == sorted([other, "out.making", mine])
    assert (tmp_path / "out.making" / "mine").read_text() == "mine"


@pytest.mark.parametrize("is_directory", [False, True])
def test_what_appeared_meanwhile_was_written_over(is_directory: bool, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    with Staging(out, is_directory=is_directory) as staging:
        if is_directory:
            out.mkdir()
            (out / "mine").write_text("mine")
        else:
            out.write_text("mine")
        with pytest.raises(InvalidArgumentError):
            staging.publish()

    assert left_in(tmp_path) == ["out"]
    assert (out / "mine" if is_directory else out).read_text() == "mine"


def test_an_empty_directory_becomes_the_store_and_nothing_of_the_making_stays(tmp_path: pathlib.Path) -> None:
    (tmp_path / "out").mkdir()
    with Staging(tmp_path / "out", is_directory=True) as staging:
        (staging.path / "file").write_text("made")
        staging.publish()

    assert (left_in(tmp_path), left_in(tmp_path / "out")) == (["out"], ["file"])


def test_a_file_system_without_hard_links_gets_its_file_too(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with Staging(tmp_path / "out") as staging:
        os.write(staging.fd, b"made")
        staging.publish()
    with pytest.raises(InvalidArgumentError):
        Staging(tmp_path / "out")

    assert (left_in(tmp_path), (tmp_path / "out").read_bytes()) == (["out"], b"made")


def test_a_mounted_file_system_was_found_out_after_all_the_work(
    capsys: pytest.CaptureFixture[str], broker_store: pathlib.Path
) -> None:
    code = cli.main.main(["export", "--store", str(broker_store), "--format", "store", "--out", "/proc"])

    assert code == 2
    assert "mounted" in capsys.readouterr().err


def test_a_store_that_cannot_begin_leaves_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr("cli.transfer.new_store.NewLog", refuse)
    with pytest.raises(OSError, match="no"):
        NewStore(tmp_path / "out")

    assert left_in(tmp_path) == []
