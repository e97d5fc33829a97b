"""A store inside this process: what it answers, what it refuses, what it leaves."""

import datetime
import gc
import hashlib
import inspect
import os
import pathlib
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import reput_embedded
from deploy.background import BackgroundStack
from reput_client import (
    AdminClient,
    AppendClient,
    Completeness,
    Consumer,
    NewMessage,
    Producer,
    QueryClient,
)
from reput_client.errors import (
    ConsumerClosedError,
    DataLossError,
    FailedPreconditionError,
    InvalidMessageError,
    InvalidSettingError,
    ProducerClosedError,
    RecordNotFoundError,
    ReputClientError,
    StoreLockedError,
    StoreReadOnlyError,
    UnsupportedStoreError,
)
from tests.support.fixture_stores import read_rows, unpack_store
from tests.support.process_state import nothing_left_behind
from tests.support.stack import HostedStack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

MIB = 1 << 20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[reput_embedded.EmbeddedStore]:
    with reput_embedded.open(tmp_path_factory.mktemp("embedded") / "store") as store:
        yield store


def allocated_bytes(root: pathlib.Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in root.rglob("*"))


def snapshot(root: pathlib.Path) -> dict[str, tuple[int, int, int]]:
    """Name, size, time and mode of everything under a directory."""
    return {
        str(path.relative_to(root)): (found.st_size, found.st_mtime_ns, found.st_mode)
        for path in sorted(root.rglob("*"))
        for found in [path.lstat()]
    }


def test_a_message_is_found_by_everything_that_names_it(shared: reput_embedded.EmbeddedStore) -> None:
    receipt = shared.append(
        "Orders",
        b"hello",
        keys=["order-1", "client-7"],
        tags="paid",
        properties={"colour": "red"},
        unique_key="0102030405060708090A0B0C0D0E0F10",
    )
    found = [
        *shared.by_key("Orders", "order-1"),
        *shared.by_key("Orders", "client-7"),
        *shared.by_unique_key("Orders", "0102030405060708090A0B0C0D0E0F10"),
        shared.by_id(receipt.offset_msg_id),
        *shared.by_offset("Orders", receipt.queue_id, receipt.queue_offset, max_messages=1),
        *shared.search("Orders", tags=["paid"], properties={"colour": "red"}, body="ell"),
        *(match.message for match in shared.find("order-1")),
    ]
    assert [(each.body, each.offset_msg_id, each.tags) for each in found] == [
        (b"hello", receipt.offset_msg_id, "paid")
    ] * 7


def test_each_query_sees_what_was_appended_before_it(shared: reput_embedded.EmbeddedStore) -> None:
    for number in range(30):
        shared.append("Seen", b"x", keys=[f"key-{number}"])
        found = shared.by_key("Seen", f"key-{number}")
        assert (len(list(found)), found.completeness) == (1, Completeness.COMPLETE)


def test_a_consumer_gets_what_was_appended_and_acknowledges_it(shared: reput_embedded.EmbeddedStore) -> None:
    shared.append("Consumed", b"first", tags="a")
    shared.append("Consumed", b"second", tags="b")
    with shared.consume({"Consumed": "b"}, "group-of-tag") as consumer:
        delivery = consumer.take(timeout_seconds=WAIT_SECONDS_MAX)
        assert delivery is not None
        assert delivery.message.body == b"second"
        delivery.ack().result(WAIT_SECONDS_MAX)
    with shared.consume("Consumed", "group-of-all") as consumer:
        bodies = set()
        while len(bodies) < 2 and (delivery := consumer.take(timeout_seconds=WAIT_SECONDS_MAX)) is not None:
            bodies.add(delivery.message.body)
            delivery.ack()
    assert bodies == {b"first", b"second"}


def test_a_delayed_message_waits_and_can_be_recalled(shared: reput_embedded.EmbeddedStore) -> None:
    receipt = shared.append("Later", b"x", delay=datetime.timedelta(hours=1))
    assert receipt.recall_handle
    assert shared.recall(receipt.recall_handle) == receipt.unique_key
    assert list(shared.search("Later")) == []


def test_a_batch_is_appended_whole_or_not_at_all(shared: reput_embedded.EmbeddedStore) -> None:
    receipts = shared.append_all(NewMessage("Batch", b"x", queue_id=0) for _ in range(10))
    assert [each.queue_offset for each in receipts] == list(range(10))
    with pytest.raises(InvalidMessageError):
        shared.append_all([NewMessage("Batch", b"x"), NewMessage("Batch", b"")])
    assert len(list(shared.search("Batch"))) == 10


def test_two_messages_with_one_unique_key_are_stored_once(shared: reput_embedded.EmbeddedStore) -> None:
    first, second = (shared.append("Once", b"x", unique_key="0A0B0C0D0E0F0001020304050607080F") for _ in range(2))
    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert second.offset_msg_id == first.offset_msg_id


def test_a_producer_and_an_admin_client_use_the_same_store(shared: reput_embedded.EmbeddedStore) -> None:
    with AdminClient(shared.target) as admin:
        admin.create_topic("Made", queue_count=2)
    with shared.producer(linger_millis=0) as producer:
        receipts = [future.result(WAIT_SECONDS_MAX) for future in [producer.send("Made", b"x") for _ in range(20)]]
    assert {each.queue_id for each in receipts} == {0, 1}


def test_append_takes_the_arguments_of_a_producer() -> None:
    ours = inspect.signature(reput_embedded.EmbeddedStore.append).parameters
    theirs = inspect.signature(Producer.send).parameters
    assert [str(each) for each in ours.values()] == [
        str(each) for name, each in theirs.items() if name != "on_delivery"
    ]


def test_an_embedded_store_is_a_query_client_and_its_consumer_the_usual_one(
    shared: reput_embedded.EmbeddedStore,
) -> None:
    assert isinstance(shared, QueryClient)
    with shared.consume("Orders", "typed") as consumer:
        assert type(consumer) is Consumer


def test_errors_are_those_of_the_client_library(shared: reput_embedded.EmbeddedStore) -> None:
    with pytest.raises(RecordNotFoundError):
        shared.by_id("7F00000100002A9F00000000FFFFFFFF")
    with pytest.raises(InvalidMessageError):
        shared.append("Orders", b"")


def test_threads_share_a_store(shared: reput_embedded.EmbeddedStore) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                receipt = shared.append("Shared", b"x", keys=[f"{number}-{turn}"])
                assert [each.offset_msg_id for each in shared.by_key("Shared", f"{number}-{turn}")] == [
                    receipt.offset_msg_id
                ]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_process_listens_on_no_port(shared: reput_embedded.EmbeddedStore) -> None:
    shared.append("Orders", b"x")
    ours = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_socket(fd)}
    lines = [line.split() for name in ("tcp", "tcp6", "udp", "udp6") for line in _lines(f"/proc/self/net/{name}")]
    ports = [line[1] for line in lines if f"socket:[{line[9]}]" in ours]
    # Other tests of this process may have left connections of clients: those have a remote address.
    listening = [line[1] for line in lines if f"socket:[{line[9]}]" in ours and line[3] == "0A"]
    assert listening == [], ports
    assert shared.target.startswith("unix:")


def _is_socket(fd: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(f"/proc/self/fd/{fd}").st_mode)
    except OSError:
        return False


def _lines(path: str) -> list[str]:
    return pathlib.Path(path).read_text().splitlines()[1:] if pathlib.Path(path).exists() else []


def test_a_new_store_takes_less_than_64_mib_of_the_disk(tmp_path: pathlib.Path) -> None:
    with reput_embedded.open(tmp_path / "store") as store:
        assert allocated_bytes(tmp_path) < MIB
        for topic in ("A", "B", "C"):
            store.append_all(NewMessage(topic, b"x" * 1000, keys=["k"]) for _ in range(100))
        assert len(list(store.by_key("C", "k"))) == 100
        assert allocated_bytes(tmp_path) < 64 * MIB


def test_what_was_appended_is_there_when_it_is_opened_again(tmp_path: pathlib.Path) -> None:
    with reput_embedded.open(tmp_path) as store:
        receipt = store.append("Orders", b"hello", keys=["k"])
    with reput_embedded.open(tmp_path) as store:
        assert store.by_id(receipt.offset_msg_id).body == b"hello"
        assert [each.body for each in store.by_key("Orders", "k")] == [b"hello"]
    assert not (tmp_path / "abort").exists()


def test_a_store_with_other_sizes_of_files_keeps_them(tmp_path: pathlib.Path) -> None:
    sizes = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20), "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "2000"}
    with reput_embedded.open(tmp_path, settings=sizes) as store:
        for _ in range(3):
            store.append_all(NewMessage("Orders", b"x" * 1000, keys=["k"]) for _ in range(500))
    with reput_embedded.open(tmp_path) as store:
        receipt = store.append("Orders", b"y", keys=["last"])
        assert (
            len(list(store.by_key("Orders", "k", after=receipt))) == 1500
        )  # a stop waits for the index for seconds only
        assert [each.body for each in store.by_key("Orders", "last")] == [b"y"]
    assert {path.stat().st_size for path in (tmp_path / "commitlog").iterdir()} == {1 << 20}


def test_read_only_shows_a_copy_and_writes_nothing_under_it(tmp_path: pathlib.Path) -> None:
    with reput_embedded.open(tmp_path / "store") as store:
        receipt = store.append("Orders", b"hello", keys=["k"])
    before = snapshot(tmp_path)
    with reput_embedded.open(tmp_path / "store", read_only=True) as store:
        assert [each.body for each in store.by_key("Orders", "k")] == [b"hello"]
        assert store.by_id(receipt.offset_msg_id).body == b"hello"
        with pytest.raises(StoreReadOnlyError):
            store.append("Orders", b"x")
        with store.consume("Orders", "g") as consumer, pytest.raises(FailedPreconditionError):
            consumer.take(timeout_seconds=WAIT_SECONDS_MAX)
    assert snapshot(tmp_path) == before


def test_read_only_opens_a_store_that_has_another_opener(tmp_path: pathlib.Path) -> None:
    with reput_embedded.open(tmp_path) as store:
        receipt = store.append("Orders", b"hello", keys=["k"])
        assert len(list(store.by_key("Orders", "k"))) == 1
        with reput_embedded.open(tmp_path, read_only=True) as second:
            assert second.by_id(receipt.offset_msg_id).body == b"hello"
        assert store.append("Orders", b"more").queue_offset >= 0


def test_read_only_answers_from_a_store_that_rocketmq_wrote(tmp_path: pathlib.Path) -> None:
    root = unpack_store("broker", tmp_path / "store")
    before = snapshot(root)
    sends = [row for row in read_rows("broker.sends.jsonl") if row["keys"] and row["status"] == "SEND_OK"][:20]
    assert sends
    with reput_embedded.open(root, read_only=True) as store:
        for row in sends:
            found = store.by_key(row["topic"], row["keys"].split(" ")[0])
            assert row["offset_msg_id"] in {each.offset_msg_id for each in found}
            message = store.by_id(row["offset_msg_id"])
            assert (message.topic, message.unique_key) == (row["topic"], row["msg_id"])
            assert hashlib.sha256(message.body).hexdigest() == row["body_sha256"]
    assert snapshot(root) == before


def test_a_copy_of_rocketmq_s_store_is_continued(tmp_path: pathlib.Path) -> None:
    root = unpack_store("broker", tmp_path / "store")
    row = read_rows("broker.sends.jsonl")[0]
    sizes = {path.stat().st_size for path in (root / "commitlog").iterdir()}
    with reput_embedded.open(root) as store:
        store.append(row["topic"], b"ours", keys=["ours"])
        assert [each.body for each in store.by_key(row["topic"], "ours")] == [b"ours"]
        assert store.by_id(row["offset_msg_id"]).topic == row["topic"]
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == sizes


def test_read_only_refuses_a_directory_without_a_store(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnsupportedStoreError):
        reput_embedded.open(tmp_path / "none", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_second_opener_in_this_process_is_refused_at_once_and_told_so(tmp_path: pathlib.Path) -> None:
    with reput_embedded.open(tmp_path) as store:
        with pytest.raises(StoreLockedError, match="is held by this process: close what has it open first"):
            reput_embedded.open(tmp_path)
        store.append("Orders", b"still served")


def test_a_store_that_another_process_has_is_refused_at_once_and_told_so(tmp_path: pathlib.Path) -> None:
    program = """
import pathlib, sys
from store.files.locks import OwnerLock
OwnerLock(pathlib.Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""
    lock = tmp_path / "reput" / "commitlog" / "lock"
    holder = subprocess.Popen([sys.executable, "-c", program, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLockedError, match="is held by another process: stop that process first"):
            reput_embedded.open(tmp_path)
        holder.kill()


def test_the_services_on_ports_open_an_embedded_store_and_back(tmp_path: pathlib.Path) -> None:
    with reput_embedded.open(tmp_path) as store:
        receipt = store.append("Orders", b"hello", keys=["k"])
    with HostedStack(tmp_path) as stack, QueryClient(stack.addresses["gateway"]) as client:
        assert stack.addresses["gateway"].startswith("127.0.0.1:")
        assert client.by_id(receipt.offset_msg_id).body == b"hello"
        with AppendClient(stack.addresses["gateway"]) as appends:
            appends.append([NewMessage("Orders", b"served", keys=["k"])])
    with reput_embedded.open(tmp_path) as store:
        assert {each.body for each in store.by_key("Orders", "k")} == {b"hello", b"served"}


def test_a_file_in_place_of_the_directory_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("no store")
    with pytest.raises(ReputClientError, match="file"):
        reput_embedded.open(tmp_path / "file")
    with pytest.raises(ReputClientError, match="file"):
        reput_embedded.open(tmp_path / "file" / "below")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ReputClientError, match="/proc/no-store"):
        reput_embedded.open("/proc/no-store")


def test_a_directory_of_something_else_is_refused_and_not_touched(tmp_path: pathlib.Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UnsupportedStoreError):
        reput_embedded.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_damage_is_a_typed_error_and_the_rest_is_answered(tmp_path: pathlib.Path) -> None:
    with reput_embedded.open(tmp_path) as store:
        first, second = (store.append("Orders", b"x" * 1000) for _ in range(2))
    (log,) = (tmp_path / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(500)
        file.write(b"damage")
    with reput_embedded.open(tmp_path) as store:
        with pytest.raises(DataLossError):
            store.by_id(first.offset_msg_id)
        assert store.by_id(second.offset_msg_id).body == b"x" * 1000


def test_an_unknown_setting_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidSettingError, match="REPUT_COMMITLOG_FLUSH_MOD"):
        reput_embedded.open(tmp_path / "store", settings={"REPUT_COMMITLOG_FLUSH_MOD": "sync"})


def test_the_environment_of_the_program_has_no_effect(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPUT_COMMITLOG_AUTO_CREATE_TOPIC", "false")
    with reput_embedded.open(tmp_path) as store:
        store.append("Orders", b"x")


def test_a_closed_store_refuses_calls_with_words(tmp_path: pathlib.Path) -> None:
    store = reput_embedded.open(tmp_path)
    store.close()
    store.close()
    assert store.is_closed
    for call in (
        lambda: store.append("Orders", b"x"),
        lambda: list(store.by_key("Orders", "k")),
        lambda: store.consume("Orders", "g"),
        store.producer,
        lambda: store.download_body("7F00000100002A9F0000000000000000"),
    ):
        with pytest.raises(reput_embedded.StoreClosedError, match="is closed: open it again"):
            call()


def test_a_store_that_ended_by_itself_says_why(tmp_path: pathlib.Path) -> None:
    store = reput_embedded.open(tmp_path)
    stack = store._stack
    assert stack is not None
    stack._stack._children["index"].server.fail(3, "a reason")  # type: ignore[attr-defined]
    stack.wait(WAIT_SECONDS_MAX)
    with pytest.raises(reput_embedded.StoreClosedError, match="index ended with exit code 3: a reason"):
        store.append("Orders", b"x")
    store.close()


def test_an_error_in_the_block_closes_the_store(tmp_path: pathlib.Path) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), reput_embedded.open(tmp_path) as store:
            store.append("Orders", b"x")
            raise error
    with reput_embedded.open(tmp_path) as store:
        assert len(list(store.search("Orders"))) == 2


def test_open_consumers_and_producers_are_closed_with_their_store(tmp_path: pathlib.Path) -> None:
    with reput_embedded.open(tmp_path) as store:
        producer = store.producer(linger_millis=1000)
        future = producer.send("Orders", b"x")
        consumer = store.consume("Orders", "g")
        consumer.take(timeout_seconds=0)
    assert future.result(0).queue_offset == 0
    with pytest.raises(ConsumerClosedError):
        consumer.take(timeout_seconds=0)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_store_that_was_forgotten_is_closed_and_can_be_opened_again(tmp_path: pathlib.Path) -> None:
    def helpers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "direct-calls"]

    before = len(helpers())
    for number in range(3):
        store = reput_embedded.open(tmp_path)
        assert len(list(store.search("Orders"))) == number if number else True
        store.append("Orders", b"x")
        del store
        gc.collect()
    wait_until(lambda: len(helpers()) == before, "the threads that made its calls have ended")


@pytest.mark.filterwarnings("error::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forgotten_store_ends_where_its_warning_is_an_error(tmp_path: pathlib.Path) -> None:
    store = reput_embedded.open(tmp_path)
    stack = store._stack
    assert stack is not None
    del store
    gc.collect()
    assert stack.is_stopping
    assert stack.wait(WAIT_SECONDS_MAX) == 0


def test_a_producer_and_a_consumer_keep_their_store(tmp_path: pathlib.Path) -> None:
    producer = reput_embedded.open(tmp_path / "a").producer(linger_millis=0)
    consumer = reput_embedded.open(tmp_path / "b").consume("Orders", "g")
    gc.collect()
    stores = [reput_embedded.store._STORES[client] for client in (producer, consumer)]
    assert [store.is_closed for store in stores] == [False, False]
    assert producer.send("Orders", b"x").result(WAIT_SECONDS_MAX).queue_offset == 0
    stores[1].append("Orders", b"x")
    assert consumer.take(timeout_seconds=WAIT_SECONDS_MAX) is not None
    for store in stores:
        store.close()


def test_a_client_that_is_made_while_its_store_closes_is_closed_and_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Producer] = []

    def slow(target: str, **settings: int) -> Producer:
        made.append(Producer(target, **settings))
        store.close()
        return made[-1]

    store = reput_embedded.open(tmp_path)
    monkeypatch.setattr("reput_embedded.store.Producer", slow)
    with pytest.raises(reput_embedded.StoreClosedError, match="is closed: open it again"):
        store.producer()
    with pytest.raises(ProducerClosedError):
        made[0].send("Orders", b"x")


def test_clients_that_are_made_while_others_are_closed_change_no_set_in_use() -> None:
    class Client:
        def close(self, seconds: float) -> None:
            late.append(clients.add(Client()))  # type: ignore[arg-type]

    late: list[bool] = []
    clients = reput_embedded.store._OpenClients()
    kept = [Client() for _ in range(3)]
    assert all(clients.add(client) for client in kept)  # type: ignore[arg-type]
    clients.close()
    assert late == [False] * 3


def test_ctrl_c_between_the_start_of_a_stack_and_its_assignment_left_it_running(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks: list[BackgroundStack] = []

    def interrupted(*arguments: Any, **choices: Any) -> BackgroundStack:
        stacks.append(BackgroundStack(*arguments, **choices))
        raise KeyboardInterrupt

    monkeypatch.setattr("reput_embedded.store.BackgroundStack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reput_embedded.open(tmp_path)
    assert stacks[0].wait(WAIT_SECONDS_MAX) == 0


@pytest.mark.parametrize("name", reput_embedded.store.REFUSED_SETTINGS)
def test_settings_that_lock_the_program_out_are_refused_by_name(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"{name} has no use in an embedded store.*`reput serve`"):
        reput_embedded.open(tmp_path / "store", settings={name: "on"})
    assert not (tmp_path / "store").exists()


def test_sign_in_that_a_settings_file_asks_for_is_refused_too(tmp_path: pathlib.Path) -> None:
    (tmp_path / "reput.toml").write_text('[gateway]\nauth = "on"\n')
    with pytest.raises(InvalidSettingError, match="REPUT_GATEWAY_AUTH has no use"):
        reput_embedded.open(tmp_path / "store", settings={"REPUT_CONFIG": tmp_path / "reput.toml"})


# 20 stores have 1,400 threads.
@pytest.mark.parametrize("count", [4, pytest.param(20, marks=[pytest.mark.long, pytest.mark.release])])
def test_many_stores_in_one_process_leave_nothing_behind(tmp_path: pathlib.Path, count: int) -> None:
    BackgroundStack(tmp_path / "first", is_private=True).stop()
    with nothing_left_behind():
        stores = [reput_embedded.open(tmp_path / str(number)) for number in range(count)]
        for number, store in enumerate(stores):
            store.append("Orders", b"%d" % number, keys=["k"])
        assert [[each.body for each in store.by_key("Orders", "k")] for store in stores] == [
            [b"%d" % number] for number in range(count)
        ]
        for store in stores:
            store.close()
