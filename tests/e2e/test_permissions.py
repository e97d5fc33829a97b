"""What the services and the pipeline's command write is no other user's to read, whatever umask they inherit."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.support.service import Service
from tests.support.stack import new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = Path(__file__).parents[2]


def modes(root: Path) -> dict[str, int]:
    """The permissions of everything below a directory; of sockets and links nothing is said here."""
    found = {}
    for path in [root, *root.rglob("*")]:
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            found[str(path.relative_to(root)) + ("/" if stat.S_ISDIR(mode) else "")] = stat.S_IMODE(mode)
    return found


def is_private(modes_found: dict[str, int], file_mode: int, directory_mode: int) -> dict[str, str]:
    """What has more permissions than that."""
    return {
        name: f"{mode:o}"
        for name, mode in modes_found.items()
        if mode & ~(directory_mode if name.endswith("/") else file_mode)
    }


def fill(store: Path, settings: dict[str, str], *flags: str) -> None:
    small = {
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20),
        "REPUT_INDEX_HASH_SLOT_COUNT": "100",
        "REPUT_INDEX_ENTRY_COUNT_MAX": "200",
    }
    with running_stack(store, *flags, settings=small | settings) as stack:
        for number in range(8):
            messages = [new_message(f"t{number}", bytes(500), keys=[f"k{number}-{n}"]) for n in range(64)]
            stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
        stack.wait_until_built()
    assert {"commitlog", "consumequeue", "index", "config", "reput", "checkpoint"} <= set(os.listdir(store))


@pytest.fixture(scope="module", autouse=True)
def open_umask():
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, open_umask: None) -> Path:
    """A store of default settings; not to be written to."""
    store = tmp_path_factory.mktemp("filled") / "store"
    fill(store, {})
    return store


def test_store_files_are_private_by_default(filled: Path) -> None:
    assert is_private(modes(filled), 0o640, 0o750) == {}


def test_a_service_that_runs_alone_makes_private_files_too(tmp_path: Path) -> None:
    """`reput serve` has set the umask before it starts the services; on Kubernetes each is started by itself."""
    with Service("commitlog", tmp_path / "store"):
        pass

    found = modes(tmp_path / "store")
    assert {"lock", "reput/"} <= set(found)
    assert is_private(found, 0o640, 0o750) == {}


def test_the_setting_decides_and_existing_files_stay_as_they_are(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(store, {"REPUT_UMASK": "0007"}, "--single-process")
    log_file = store / "commitlog" / f"{0:020d}"
    assert is_private(modes(store), 0o660, 0o770) == {}
    assert stat.S_IMODE(log_file.stat().st_mode) == 0o660
    log_file.chmod(0o644)

    fill(store, {}, "--single-process")

    assert stat.S_IMODE(log_file.stat().st_mode) == 0o644
    assert stat.S_IMODE((store / "commitlog").stat().st_mode) == 0o770


@pytest.mark.parametrize(("setting", "file_mode", "directory_mode"), [("", 0o640, 0o750), ("077", 0o600, 0o700)])
def test_a_store_that_the_command_makes_is_private(
    filled: Path, tmp_path: Path, setting: str, file_mode: int, directory_mode: int
) -> None:
    source, out = filled, tmp_path / "out"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("REPUT_")}
    environment |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'protos'}", "REPUT_UMASK": setting}
    out.mkdir(mode=0o700)
    verbs = [
        ["export", "--store", str(source), "--out", str(out / "messages")],
        ["import", str(out / "messages"), "--store", str(out / "store")],
    ]
    both = f"from cli.main import main\nfor words in {verbs!r}:\n    assert main(words) == 0"
    subprocess.run([sys.executable, "-c", both], env=environment, check=True, capture_output=True)

    assert is_private(modes(out), file_mode, directory_mode) == {}
