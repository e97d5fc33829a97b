"""ConsumeQueueExt as we write it, beside the real RocketMQ: the same bytes, and a store that it goes on with."""

import pathlib

import pytest

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.audit.store_audit import audit_store
from store.derive.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from tests.rocketmq import real_broker
from tests.support.dispatches import file_bytes, requests_of
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

EXT_FILE_SIZE_BYTES = 4096
QUEUE_FILE_SIZE_BYTES = 4000
BROKER = {
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": EXT_FILE_SIZE_BYTES,
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_SIZE_BYTES,
}
OURS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20),
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": str(QUEUE_FILE_SIZE_BYTES),
    "REPUT_CONSUMEQUEUE_EXT": "true",
    "REPUT_CONSUMEQUEUE_EXT_FILE_SIZE_BYTES": str(EXT_FILE_SIZE_BYTES),
}


def rebuilt(store: pathlib.Path, root: pathlib.Path) -> dict[str, bytes]:
    """The files that our builder makes of a store's log: queues and ConsumeQueueExt."""
    table = ConsumeQueueTable(root, RealFileSystem(), QUEUE_FILE_SIZE_BYTES, ext_file_size_bytes=EXT_FILE_SIZE_BYTES)
    requests = requests_of(store)
    for at in range(0, len(requests), 97):
        table.apply(DispatchColumns.of(requests[at : at + 97]))
    table.close()
    return queue_files(root)


def queue_files(root: pathlib.Path) -> dict[str, bytes]:
    return {
        f"{folder}/{name}": data
        for folder in ("consumequeue", "consumequeue_ext")
        for name, data in file_bytes(root / folder).items()
    }


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_the_files_of_a_broker_equal_those_that_we_make_of_its_log(tmp_path: pathlib.Path, version: str) -> None:
    store = tmp_path / "store"
    with real_broker.real_rocketmq(store, tmp_path / "rocketmq", version=version, **BROKER) as broker:
        broker.send("Orders", "order-", 1500)
    with real_broker.real_rocketmq(store, tmp_path / "rocketmq-again", version=version, **BROKER) as broker:
        broker.send("Orders", "again-", 500)  # its own files go on
    theirs = queue_files(store)
    ours = rebuilt(store, tmp_path / "rebuilt")
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert f"consumequeue_ext/Orders/0/{2 * EXT_FILE_SIZE_BYTES:020d}" in ours, "the test wants ends of files"


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_a_broker_consumes_from_our_store_with_filters_and_goes_on_with_it(
    tmp_path: pathlib.Path, version: str
) -> None:
    store = tmp_path / "store"
    broker = real_broker.RealRocketMQ(store, tmp_path / "rocketmq", version=version, **BROKER)
    settings = {**OURS, "REPUT_STORE_HOST": f"127.0.0.1:{broker.broker_port}"}

    def append(stack: HostedStack, first: int, count: int) -> None:
        messages = [
            new_message(
                "Orders",
                f"body {n}".encode(),
                keys=[f"k{n}"],
                tags=("TagA", "TagB", "TagC")[n % 3],
                properties={"amount": str(n % 10)},
            )
            for n in range(first, first + count)
        ]
        for at in range(0, count, 100):
            stack.gateway.AppendMessages(
                pb.AppendMessagesRequest(messages=messages[at : at + 100]), timeout=WAIT_SECONDS_MAX
            )
        stack.wait_until_built()

    with hosted_stack(store, settings=settings) as stack:
        append(stack, 0, 2000)
    made = queue_files(store)

    broker.start()
    try:
        wanted = [n for n in range(2000) if n % 10 > 7 and n % 3 == 0]
        by_sql = broker.consume("Orders", "G1", "sql", "amount > 7 AND TAGS = 'TagA'", len(wanted))
        assert sorted(by_sql) == sorted(f"k{n} body {n}" for n in wanted)
        by_tag = broker.consume("Orders", "G2", "tag", "TagB || TagC", 1333)
        assert sorted(by_tag) == sorted(f"k{n} body {n}" for n in range(2000) if n % 3)
        broker.send("Orders", "java-", 300)
        again = broker.consume("Orders", "G3", "tag", "TagJ", 300)
        assert len(set(again)) == len(again) == 300
    finally:
        broker.stop()
    theirs = queue_files(store)
    for name, data in made.items():
        used = data.rstrip(b"\0")
        assert theirs[name][: len(used)] == used, name
    ours = rebuilt(store, tmp_path / "rebuilt")
    assert [name for name in ours if ours[name] != theirs.get(name)] == []

    with hosted_stack(store, settings=settings) as stack:
        append(stack, 2000, 500)
    ours = rebuilt(store, tmp_path / "rebuilt-again")
    theirs = queue_files(store)
    assert [name for name in ours if ours[name] != theirs.get(name)] == []
    assert audit_store(RealFileSystem(), store).wrong_queues == frozenset()
