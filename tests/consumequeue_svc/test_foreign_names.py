"""What a foreign log or hand puts where queues are: it is left out, and the queues go on."""

import json
import os

import pytest
import structlog

from consumequeue_svc import consume_queue_table
from consumequeue_svc.__main__ import QueuePart
from consumequeue_svc.servicer import ConsumeQueueServicer
from consumequeue_svc.settings import ConsumeQueueSettings
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.following.follower_progress import FollowerProgress
from store.files.file_system import RealFileSystem
from store.files.overlay_file_system import OverlayFileSystem
from store.readers.queue_reader import detect_queue_file_size, list_queue_ids, queue_strangers
from tests.support.builders import QUEUE_FILE_SIZE, follow, open_queues, queue_bytes
from tests.support.dispatches import make_request

FS = RealFileSystem()
REQUESTS = [make_request(n) for n in range(30)]


@pytest.mark.parametrize("topic", ["x" * 256, "订" * 86, "../out", "x" * 32_767])
def test_a_topic_that_no_folder_can_be_named_by_stops_no_queue(tmp_path, topic):
    hostile = [make_request(n, topic=topic, queue_offset=n - 10) if 10 <= n < 20 else REQUESTS[n] for n in range(20)]
    hostile += [make_request(n, queue_offset=n - 10) for n in range(20, 30)]
    builder = open_queues(tmp_path, hostile)

    follow(builder, hostile)

    builder.stop()
    assert list_queue_ids(FS, tmp_path) == [("orders", 0)]
    assert builder._table.queue("orders", 0).units.end == 20


def test_refused_queues_are_remembered_only_so_many(tmp_path, caplog):
    hostile = [make_request(n, topic=f"{n:0300d}", queue_offset=0) for n in range(600)]
    builder = open_queues(tmp_path, hostile)
    follow(builder, hostile)
    builder.stop()
    assert len(builder._table._refused) == consume_queue_table.REFUSED_COUNT_MAX
    assert caplog.text.count("queue refused") == consume_queue_table.REFUSED_COUNT_MAX


def test_the_highest_queue_id_costs_one_queue(tmp_path):
    requests = [make_request(n, queue_id=(1 << 31) - 1) for n in range(5)]
    builder = open_queues(tmp_path, requests)
    follow(builder, requests)
    servicer = ConsumeQueueServicer(builder.progress, lambda units, _: [])
    servicer.open(builder._table)
    (queue,) = servicer.ListQueues(pb.ListQueuesRequest(), None).queues
    builder.stop()
    assert (queue.queue_id, queue.max_offset) == ((1 << 31) - 1, 5)


@pytest.fixture
def planted(tmp_path):
    """A sound store, with everything in it that somebody may plant."""
    builder = open_queues(tmp_path, REQUESTS)
    follow(builder, REQUESTS)
    builder.stop()
    base = tmp_path / "consumequeue"
    strangers = [
        "stray", "orders/stray", "orders/00", "orders/-1", "orders/2147483648", f"orders/{'9' * 200}", "orders/0/stray",
        "orders/0/99999999999999999999", "orders/0/00000000000000000001.tmp",
    ]  # fmt: skip
    for name in strangers:
        (base / name).write_bytes(b"planted")
    directories = ["orders/0/00000000000000008000", b"\xff\xfe"]
    (base / directories[0]).mkdir()
    with open(bytes(base) + b"/\xff\xfe", "wb") as file:
        file.write(b"planted")
    return tmp_path


def test_planted_names_are_left_alone_and_told(planted):
    assert list_queue_ids(FS, planted) == [("orders", 0)]
    assert detect_queue_file_size(FS, planted) == QUEUE_FILE_SIZE
    assert len(list(queue_strangers(FS, planted))) == 11

    builder = open_queues(planted, REQUESTS)
    follow(builder, REQUESTS)
    builder.stop()

    assert builder._table.queue("orders", 0).units.end == 30
    assert (planted / "consumequeue/stray").read_bytes() == b"planted"


def test_a_start_tells_once_what_it_skips(planted):
    part = QueuePart(
        FS,
        ConsumeQueueSettings(store=planted, file_size_bytes=QUEUE_FILE_SIZE),
        ConsumeQueueServicer(FollowerProgress(), lambda units, _: []),
        FollowerProgress(),
        None,
    )
    with structlog.testing.capture_logs() as logs:
        part._tell_strangers()
    (event,) = logs
    assert (event["event"], event["count"], len(event["first"])) == ("store.strangers_skipped", 11, 10)
    json.dumps(event).encode()


@pytest.mark.parametrize(
    "where", ["consumequeue/orders/0/00000000000000000400", "consumequeue/orders/0", "consumequeue/orders"]
)
@pytest.mark.parametrize("fs", [RealFileSystem, OverlayFileSystem], ids=["real", "read-only"])
def test_what_is_in_the_way_of_a_queue_is_renamed_and_the_queue_built(tmp_path, where, fs):
    fs = fs()
    path = tmp_path / where
    path.parent.mkdir(parents=True)
    if path.name.startswith("000"):
        path.mkdir()
        (path / "kept").write_bytes(b"planted")
    else:
        path.write_bytes(b"planted")
    (path.parent / f"{path.name}.foreign").write_bytes(b"planted before")
    builder = open_queues(tmp_path, REQUESTS, fs=fs)

    follow(builder, REQUESTS)

    queue = builder._table.queue("orders", 0)
    assert [n for n, _ in queue.units.units(0, 100)] == list(range(30))
    builder.stop()
    if isinstance(fs, OverlayFileSystem):
        assert path.exists()
    else:
        assert (path.parent / f"{path.name}.foreign1").exists()
        assert sum(len(data) for name, data in queue_bytes(tmp_path).items() if name.startswith("orders/0/0")) >= 800


def plant(kind, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/nowhere/at/all")


@pytest.mark.parametrize("kind", ["pipe", "link to nothing"])
def test_a_queue_file_that_is_no_regular_file_is_told_and_moved_out_of_the_way(tmp_path, kind):
    builder = open_queues(tmp_path, REQUESTS)
    follow(builder, REQUESTS)
    builder.stop()
    expected = queue_bytes(tmp_path)
    folder = tmp_path / "consumequeue/orders/0"
    plant(kind, folder / f"{800:020d}")  # the next file
    plant(kind, folder / f"{8000:020d}")
    plant(kind, tmp_path / "consumequeue/orders/1" / f"{0:020d}")
    more = [*REQUESTS, *(make_request(n) for n in range(30, 50))]

    assert detect_queue_file_size(FS, tmp_path) == QUEUE_FILE_SIZE
    assert len(list(queue_strangers(FS, tmp_path))) == 3
    builder = open_queues(tmp_path, more)
    follow(builder, more)
    builder.stop()

    assert list_queue_ids(FS, tmp_path) == [("orders", 0)]
    assert (folder / f"{800:020d}").stat().st_size == QUEUE_FILE_SIZE
    assert os.path.lexists(folder / f"{800:020d}.foreign")
    assert (folder / f"{0:020d}").read_bytes() == expected[f"orders/0/{0:020d}"]
