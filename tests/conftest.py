"""For all tests: fixture stores, one unpacked copy a session to look at, a fresh copy a test to write on; a Kubernetes
control plane."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# Set before any gRPC starts, see pipeline/spark_session.py: test processes serve, call, and start others.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Likewise: numpy's threads, which nothing here uses, spin when it is imported, 60 ms of CPU in each process that a test starts.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tests.support.control_plane import ControlPlane, running_control_plane
from tests.support.fixture_stores import unpack_store
from tests.support.signals import let_children_be_interrupted

pytest_plugins = ["tests.support.failures", "tests.support.logs", "pytester"]

let_children_be_interrupted()

# An example that takes long says that the machine is busy. Each run draws others, so many runs for few changes find what one
# with many examples would.
hypothesis.settings.register_profile("shared-machine", deadline=None, print_blob=True, max_examples=40)
hypothesis.settings.load_profile("shared-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: transcripts of tests/scenarios get the answers of this run."""
    parser.addoption("--rewrite", action="store_true", help="write the answers of this run into tests/scenarios")


def _read_only(name: str, factory: pytest.TempPathFactory) -> Path:
    root = unpack_store(name, factory.mktemp("stores") / name)
    for path in root.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    return root


def _writable_copy(store: Path, target: Path) -> Path:
    shutil.copytree(store, target)
    for path in target.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    return target


@pytest.fixture(scope="session")
def broker_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's whole root after a clean stop; not to be written to."""
    return _read_only("broker", tmp_path_factory)


@pytest.fixture(scope="session")
def engine_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """IPv6 hosts, V2 magic, odd flags; not to be written to."""
    return _read_only("engine", tmp_path_factory)


@pytest.fixture(scope="session")
def engine_crc_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same kind with `__CRC32#`; not to be written to."""
    return _read_only("engine_crc", tmp_path_factory)


@pytest.fixture(scope="session")
def crashed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's root as kill -9 left it; not to be written to."""
    return _read_only("crashed", tmp_path_factory)


@pytest.fixture(scope="session")
def rocketmq_5_5_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole root of RocketMQ 5.5.0 after a clean stop, with entries of tags in its index; not to be written to."""
    return _read_only("rocketmq-5.5", tmp_path_factory)


@pytest.fixture
def copy_of_broker_store(broker_store: Path, tmp_path: Path) -> Path:
    """A writable `broker_store`."""
    return _writable_copy(broker_store, tmp_path / "broker")


@pytest.fixture
def copy_of_engine_store(engine_store: Path, tmp_path: Path) -> Path:
    """A writable `engine_store`."""
    return _writable_copy(engine_store, tmp_path / "engine")


@pytest.fixture
def copy_of_engine_crc_store(engine_crc_store: Path, tmp_path: Path) -> Path:
    """A writable `engine_crc_store`."""
    return _writable_copy(engine_crc_store, tmp_path / "engine_crc")


@pytest.fixture
def copy_of_crashed_store(crashed_store: Path, tmp_path: Path) -> Path:
    """A writable `crashed_store`."""
    return _writable_copy(crashed_store, tmp_path / "crashed")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for all files that need one (`tests/support/scheduling.py`); each test has namespaces of its own."""
    with running_control_plane(tmp_path_factory.mktemp("control-plane") / "cluster") as cluster:
        yield cluster
