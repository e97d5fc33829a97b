"""The contract of services/coordination/port.py: memory, a real etcd and a real Kubernetes decide the same."""

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlog_svc.replication.leading.record import ShardRecord
from services.coordination.access import CoordinatorAccess
from services.coordination.opening import open_record_store
from services.coordination.port import DATA_BYTES_MAX, MemoryRecordStore, RecordStore
from store.errors import InvalidArgumentError, RecordConflictError
from tests.support.control_plane import ControlPlane
from tests.support.etcd import ETCD, MISSING, running_etcd
from tests.support.waiting import WAIT_SECONDS_MAX
from tools.control_plane_build import missing_programs

THREAD_COUNT = 6
CHANGES_EACH = 5

Open = Callable[[str], RecordStore]
_numbers = itertools.count()


def _memory() -> Iterator[Open]:
    stores: dict[str, MemoryRecordStore] = {}
    yield lambda shard: stores.setdefault(shard, MemoryRecordStore())


def _etcd(directory: Path) -> Iterator[Open]:
    with running_etcd(directory) as etcd:
        yield lambda shard: open_record_store(f"etcd://{etcd.endpoint}/reput/shards", shard)


def _kubernetes(control_plane: ControlPlane, directory: Path) -> Iterator[Open]:
    access = service_account_access(control_plane, "record-stores", directory)
    address = f"kubernetes://record-stores/reput?server={control_plane.server}"
    yield lambda shard: open_record_store(address, shard, access)


def service_account_access(cluster: ControlPlane, namespace: str, directory: Path) -> CoordinatorAccess:
    """A service account with the rights that docs/kubernetes.md names, and nothing else, in a namespace that is made."""
    cluster.make_namespace(namespace)
    here = ("-n", namespace)
    cluster.kubectl(
        "create", "role", "replica", "--verb=get,create,update", "--resource=leases.coordination.k8s.io", *here
    )
    account = f"--serviceaccount={namespace}:default"
    cluster.kubectl("create", "rolebinding", "replica", "--role=replica", account, *here)
    token = directory / "token"
    token.write_text(cluster.kubectl("create", "token", "default", *here))
    return CoordinatorAccess(ca=cluster.ca, token_file=token)


@pytest.fixture(
    scope="module",
    params=[
        "memory",
        pytest.param("etcd", marks=[pytest.mark.etcd, pytest.mark.skipif(ETCD is None, reason=MISSING)]),
        pytest.param(
            "kubernetes",
            marks=[
                pytest.mark.kubernetes,
                pytest.mark.skipif(bool(missing_programs()), reason="needs tools/control_plane_build.py to have run"),
            ],
        ),
    ],
)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    directory = tmp_path_factory.mktemp("coordinator")
    match request.param:
        case "memory":
            yield from _memory()
        case "etcd":
            yield from _etcd(directory)
        case _:
            yield from _kubernetes(request.getfixturevalue("control_plane"), directory)


@pytest.fixture
def shard() -> str:
    return f"broker-{next(_numbers)}"


def record(epoch: int, renewal: int = 0) -> bytes:
    names = frozenset({"r1", "r2"})
    return ShardRecord(epoch, "r1", names, renewal, 4000, "", {"r1": {"commitlog": "10.0.0.1:8082"}}).to_bytes()


def test_what_was_written_is_read_with_its_version(opened: Open, shard: str) -> None:
    store = opened(shard)
    assert store.read(WAIT_SECONDS_MAX) is None

    version = store.write(record(1), None, WAIT_SECONDS_MAX)
    stored = opened(shard).read(WAIT_SECONDS_MAX)

    assert stored is not None
    assert (stored.data, stored.version) == (record(1), version)
    assert ShardRecord.from_bytes(stored.data).in_sync == {"r1", "r2"}


def test_only_who_knows_the_version_replaces_a_record(opened: Open, shard: str) -> None:
    store = opened(shard)
    with pytest.raises(RecordConflictError):
        store.write(record(3), store_version_of_another(opened), WAIT_SECONDS_MAX)
    first = store.write(record(1), None, WAIT_SECONDS_MAX)
    second = store.write(record(2), first, WAIT_SECONDS_MAX)

    for version in (first, None):
        with pytest.raises(RecordConflictError):
            store.write(record(9), version, WAIT_SECONDS_MAX)
    stored = store.read(WAIT_SECONDS_MAX)

    assert stored is not None
    assert (stored.data, stored.version) == (record(2), second)


def store_version_of_another(opened: Open) -> str:
    return opened(f"broker-{next(_numbers)}").write(record(1), None, WAIT_SECONDS_MAX)


def test_a_content_that_comes_back_has_another_version(opened: Open, shard: str) -> None:
    store = opened(shard)
    first = store.write(record(1), None, WAIT_SECONDS_MAX)
    second = store.write(record(2), first, WAIT_SECONDS_MAX)
    third = store.write(record(1), second, WAIT_SECONDS_MAX)

    assert len({first, second, third}) == 3
    with pytest.raises(RecordConflictError):
        store.write(record(2), first, WAIT_SECONDS_MAX)


def test_shards_have_records_of_their_own(opened: Open, shard: str) -> None:
    opened(shard).write(record(1), None, WAIT_SECONDS_MAX)

    assert opened(f"{shard}-other").read(WAIT_SECONDS_MAX) is None


def test_of_many_writers_one_wins_each_time(opened: Open, shard: str) -> None:
    opened(shard).write(record(0), None, WAIT_SECONDS_MAX)
    failures: list[BaseException] = []

    def count_up() -> None:
        store = opened(shard)
        done = 0
        try:
            while done < CHANGES_EACH:
                stored = store.read(WAIT_SECONDS_MAX)
                assert stored is not None
                following = ShardRecord.from_bytes(stored.data).epoch + 1
                try:
                    store.write(record(following), stored.version, WAIT_SECONDS_MAX)
                except RecordConflictError:
                    continue
                done += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=count_up) for _ in range(THREAD_COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = opened(shard).read(WAIT_SECONDS_MAX)

    assert failures == []
    assert stored is not None
    assert ShardRecord.from_bytes(stored.data).epoch == THREAD_COUNT * CHANGES_EACH


def test_a_large_record_is_stored_and_a_larger_one_refused(opened: Open, shard: str) -> None:
    store = opened(shard)
    names = "ü" * ((DATA_BYTES_MAX - 4) // 2)
    data = f'"{names}"'.encode()

    store.write(data, None, WAIT_SECONDS_MAX)
    stored = store.read(WAIT_SECONDS_MAX)

    assert stored is not None
    assert stored.data == data
    for refused in (b"x" * (DATA_BYTES_MAX + 1), b"\xff"):
        with pytest.raises(InvalidArgumentError):
            store.write(refused, stored.version, WAIT_SECONDS_MAX)
