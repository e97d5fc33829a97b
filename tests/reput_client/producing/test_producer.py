"""The threaded producer against a gateway that fails on purpose."""

import concurrent.futures
import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import threading
import time
import warnings

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput_client import (
    BatchDeliveryError,
    BufferFullError,
    DeliveryTimeoutError,
    DeliveryUnknownError,
    FlushMode,
    InvalidMessageError,
    NewMessage,
    PermissionDeniedError,
    Producer,
    ProducerClosedError,
    ReputClientError,
    RetryPolicy,
    TopicNotFoundError,
)
from reput_client.errors import DiskFullError, FlushFailedError, QuotaExceededError, StoreReadOnlyError
from reput_client.producing.settings import MESSAGE_OVERHEAD_BYTES
from tests.reput_client.fake_gateway import BREAK, HANG, LOST, OK, FakeGateway, fake_gateway, refusal
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

QUICK = RetryPolicy(attempt_count_max=50, pause_seconds_first=0.001, pause_seconds_max=0.01)
BUSY = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL", retry_seconds=0.01)
FLUSH_FAILED = refusal(grpc.StatusCode.UNAVAILABLE, "FLUSH_FAILED")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def producer(gateway: FakeGateway, **options: object) -> Producer:
    return Producer(gateway.address, **{"retry": QUICK, "linger_millis": 1, **options})


def test_oneway_messages_are_tried_again_stored_once_in_order_and_bounded() -> None:
    with fake_gateway(LOST, BUSY) as gateway:
        with producer(gateway, buffer_bytes_max=20 * (MESSAGE_OVERHEAD_BYTES + 100)) as sender:
            for number in range(100):  # more than the buffer holds at once
                assert sender.send_oneway("T", b"%d" % number, keys=["k"], tags="A") is None
        stored = {message.unique_key: message.body for message in gateway.stored}
        assert list(stored.values()) == [b"%d" % number for number in range(100)]
    with fake_gateway(HANG) as gateway:
        small = producer(gateway, buffer_bytes_max=2 * (MESSAGE_OVERHEAD_BYTES + 100), block_seconds_max=0.2)
        with contextlib.closing(small):
            began = time.monotonic()
            with pytest.raises(BufferFullError):
                for _ in range(4):
                    small.send_oneway("T", b"x" * 50)
            assert 0.2 <= time.monotonic() - began < 20
            small.close(0)


def test_messages_share_requests_and_are_stored_in_order_with_their_fields() -> None:
    with fake_gateway() as gateway:
        with producer(gateway, flush_mode=FlushMode.SYNC, linger_millis=50, batch_count_max=128) as sender:
            made = [
                sender.send("T", b"%d" % i, keys=[f"k{i}", "all"], tags="A", properties={"p": "v"}, queue_id=2, flag=5)
                for i in range(300)
            ]
            receipts = [future.result(WAIT_SECONDS_MAX) for future in made]
        assert gateway.bodies() == [b"%d" % i for i in range(300)]
        assert [receipt.queue_offset for receipt in receipts] == list(range(300))
        assert len({receipt.unique_key for receipt in receipts}) == 300
        assert not any(receipt.deduplicated for receipt in receipts)
        assert max(len(request.messages) for request in gateway.requests) == 128
        assert {(request.deduplicate, request.flush) for request in gateway.requests} == {(True, 2)}
        first = gateway.stored[7]
        assert (list(first.keys), first.tags, dict(first.properties)) == (["k7", "all"], "A", {"p": "v"})
        assert (first.queue_id, first.flag, first.HasField("born_time")) == (2, 5, False)


def test_no_request_is_larger_than_its_limits() -> None:
    with fake_gateway() as gateway:
        with producer(gateway, batch_count_max=10, batch_bytes_max=5000, linger_millis=20) as sender:
            for size in (1000, 6000, 10, 10, 4000, 990, 3000) * 10:
                sender.send("T", b"x" * size)
        assert len(gateway.stored) == 70
        for request in gateway.requests:
            assert len(request.messages) <= 10
            assert len(request.messages) == 1 or request.ByteSize() <= 5000 + 16


def test_a_bad_message_fails_alone() -> None:
    bad_index = lambda request: (  # noqa: E731
        refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE", {"index": str(bad[0]), "field": "keys"})
        if (bad := [i for i, message in enumerate(request.messages) if message.body.startswith(b"bad")])
        else OK
    )
    with fake_gateway(*[bad_index] * 20) as gateway, producer(gateway, linger_millis=100) as sender:
        made = [sender.send("T", b"bad" if i in (3, 4, 9) else b"%d" % i) for i in range(12)]
        assert sender.flush(30)
        failed = [i for i, future in enumerate(made) if future.exception() is not None]
        assert failed == [3, 4, 9]
        assert isinstance(made[4].exception(), InvalidMessageError)
        assert gateway.bodies() == [b"%d" % i for i in range(12) if i not in failed]


@pytest.mark.parametrize(
    ("code", "reason", "error_class"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED", PermissionDeniedError),
        (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND", TopicNotFoundError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", QuotaExceededError),
    ],
)
def test_messages_to_a_refused_topic_took_a_request_each(
    code: grpc.StatusCode, reason: str, error_class: type[ReputClientError]
) -> None:
    refuses = lambda request: (  # noqa: E731
        refusal(code, reason, {"index": str(refused[0]), "topic": "Closed"})
        if (refused := [i for i, message in enumerate(request.messages) if message.topic == "Closed"])
        else OK
    )
    with fake_gateway(*[refuses] * 100) as gateway, producer(gateway, linger_millis=0) as sender:
        batch = [NewMessage("Closed" if i % 3 else "T", b"%d" % i) for i in range(60)]
        error = sender.send_batch(batch).exception(WAIT_SECONDS_MAX)
        assert isinstance(error, BatchDeliveryError)
        assert {i: type(each) for i, each in error.errors.items()} == {i: error_class for i in range(60) if i % 3}
        assert gateway.bodies() == [b"%d" % i for i in range(0, 60, 3)]
        assert [len(request.messages) for request in gateway.requests] == [60, 20]


def test_a_refusal_of_the_whole_request_fails_all_of_it_at_once() -> None:
    read_only = refusal(grpc.StatusCode.FAILED_PRECONDITION, "STORE_READ_ONLY")
    with fake_gateway(read_only) as gateway, producer(gateway, linger_millis=50) as sender:
        made = [sender.send("T", b"x") for _ in range(3)]
        assert all(isinstance(future.exception(WAIT_SECONDS_MAX), StoreReadOnlyError) for future in made)
        assert sender.send_and_wait("T", b"y", timeout_seconds=WAIT_SECONDS_MAX).queue_offset == 0
        assert len(gateway.requests) == 2, "not tried again"


def test_a_batch_that_lost_a_bad_message_and_is_then_refused_fails_each_with_its_own_error() -> None:
    bad = refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE", {"index": "0"})
    read_only = refusal(grpc.StatusCode.FAILED_PRECONDITION, "STORE_READ_ONLY")
    with fake_gateway(bad, read_only) as gateway, producer(gateway, linger_millis=100) as sender:
        made = [sender.send("T", b"x") for _ in range(3)]
        outcomes = [type(future.exception(WAIT_SECONDS_MAX)) for future in made]
    assert outcomes == [InvalidMessageError, StoreReadOnlyError, StoreReadOnlyError]


def test_who_gives_up_learns_the_keys_that_were_made_for_him() -> None:
    with fake_gateway(HANG) as gateway:
        sender = producer(gateway, linger_millis=100)
        made = [sender.send("T", b"x") for _ in range(3)]
        gateway.wait_for(lambda: gateway.requests)
        sender.close(timeout_seconds=0.05)
        told = [future.exception(0).metadata["uniqueKey"] for future in made]
        assert told == [message.unique_key for message in gateway.requests[0].messages]


@pytest.mark.parametrize("trouble", [LOST, BREAK, BUSY, FLUSH_FAILED])
def test_trouble_is_tried_again_and_stored_once(trouble: object) -> None:
    with fake_gateway(OK, trouble, OK, trouble, trouble) as gateway:
        with producer(gateway, batch_count_max=5) as sender:
            made = [sender.send("T", b"%d" % i) for i in range(100)]
            receipts = [future.result(WAIT_SECONDS_MAX) for future in made]
        assert sorted(gateway.bodies()) == sorted(b"%d" % i for i in range(100))
        assert len({receipt.queue_offset for receipt in receipts}) == 100
        if trouble in (LOST, BREAK):
            assert gateway.bodies() == [b"%d" % i for i in range(100)], "a broken stream does not change the order"
        if trouble == LOST:
            assert any(receipt.deduplicated for receipt in receipts)


@settings(max_examples=25, deadline=None)
@given(
    script=st.lists(st.sampled_from([OK, OK, LOST, BREAK, BUSY, FLUSH_FAILED]), max_size=12),
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=60),
    in_flight=st.integers(1, 8),
)
def test_whatever_happens_each_acknowledged_message_is_stored_exactly_once(
    script: list, sizes: list, in_flight: int
) -> None:
    bodies = [b"%d:" % i + b"x" * size for i, size in enumerate(sizes)]
    limits = {"batch_count_max": 7, "batch_bytes_max": 8000, "in_flight_count_max": in_flight}
    with fake_gateway(*script) as gateway:
        with producer(gateway, **limits) as sender:
            made = [sender.send("T", body) for body in bodies]
            receipts = [future.result(60) for future in made]
        assert sorted(gateway.bodies()) == sorted(bodies)
        assert [gateway.stored[receipt.queue_offset].body for receipt in receipts] == bodies
        if in_flight == 1 or not {str(BUSY), str(FLUSH_FAILED)} & set(map(str, script)):
            assert gateway.bodies() == bodies


def test_the_pause_that_a_server_asks_for_is_kept() -> None:
    times: list[float] = []

    def note(_request: object) -> object:
        times.append(time.monotonic())
        return refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_BUSY", retry_seconds=0.3) if len(times) < 2 else OK

    with fake_gateway(note, note) as gateway, producer(gateway) as sender:
        sender.send_and_wait("T", b"x", timeout_seconds=WAIT_SECONDS_MAX)
    assert times[1] - times[0] >= 0.3


def test_what_was_sent_and_never_answered_fails_with_outcome_unknown() -> None:
    with fake_gateway(*[FLUSH_FAILED] * 10_000) as gateway, producer(gateway, delivery_seconds_max=0.3) as sender:
        future = sender.send("T", b"x", unique_key="mine")
        error = future.exception(WAIT_SECONDS_MAX)
        assert isinstance(error, DeliveryUnknownError)
        assert error.metadata == {"uniqueKey": "mine"}
        assert isinstance(error.__cause__, FlushFailedError)


def test_what_was_refused_to_the_end_is_known_not_to_be_stored() -> None:
    with fake_gateway(*[BUSY] * 10_000) as gateway, producer(gateway, delivery_seconds_max=0.3) as sender:
        error = sender.send("T", b"x").exception(WAIT_SECONDS_MAX)
        assert isinstance(error, DeliveryTimeoutError)
        assert isinstance(error.__cause__, DiskFullError)
        assert gateway.stored == []


def test_attempts_have_an_end() -> None:
    policy = RetryPolicy(attempt_count_max=3, pause_seconds_first=0.001, pause_seconds_max=0.002)
    with fake_gateway(*[BREAK] * 100) as gateway, producer(gateway, retry=policy) as sender:
        assert isinstance(sender.send("T", b"x").exception(WAIT_SECONDS_MAX), DeliveryUnknownError)
        assert len(gateway.requests) == 3


def test_a_gateway_that_does_not_answer_is_asked_again_on_a_new_stream() -> None:
    with fake_gateway(HANG) as gateway, producer(gateway, request_seconds_max=0.2) as sender:
        assert sender.send_and_wait("T", b"x", timeout_seconds=WAIT_SECONDS_MAX).queue_offset == 0
        assert gateway.streams == 2


def test_nobody_there_is_not_an_error_until_the_time_is_over() -> None:
    gateway = FakeGateway()
    gateway.start()
    address = gateway.address
    gateway.stop()
    with Producer(address, retry=QUICK, delivery_seconds_max=0.5) as sender:
        assert isinstance(
            sender.send("T", b"x").exception(WAIT_SECONDS_MAX), DeliveryUnknownError | DeliveryTimeoutError
        )
        late = sender.send("T", b"late")
        gateway = FakeGateway()
        gateway.start(address)
        try:
            sender.flush(30)
            assert late.done()
        finally:
            gateway.stop()


def test_the_buffer_is_bounded_and_send_waits_for_room() -> None:
    size_bytes = 10_000
    with fake_gateway(HANG) as gateway:
        sender = producer(gateway, buffer_bytes_max=200_000, block_seconds_max=0.2, batch_count_max=4)
        accepted = []
        with pytest.raises(BufferFullError):
            while True:
                accepted.append(sender.send("T", b"x" * size_bytes))
        held = len(accepted) * (size_bytes + MESSAGE_OVERHEAD_BYTES)
        assert 200_000 - 2 * (size_bytes + MESSAGE_OVERHEAD_BYTES) < held <= 200_000
        with pytest.raises(BufferFullError):
            sender.send("T", b"x" * 300_000)
        gateway.released.set()  # the stream ends, the next is answered
        assert all(future.result(WAIT_SECONDS_MAX) for future in accepted)
        assert sender._sender.core._outbox.buffered_bytes == 0
        assert sender.send_and_wait("T", b"y", timeout_seconds=WAIT_SECONDS_MAX)
        sender.close()


def test_who_waits_for_room_goes_on_when_there_is_some() -> None:
    with fake_gateway(HANG) as gateway:
        sender = producer(gateway, buffer_bytes_max=50_000, block_seconds_max=60, batch_count_max=1)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(lambda: [sender.send("T", b"x" * 5000) for _ in range(20)]) for _ in range(4)]
            gateway.wait_for(lambda: gateway.requests)
            gateway.released.set()
            made = [future for job in jobs for future in job.result(60)]
        assert all(future.result(WAIT_SECONDS_MAX) for future in made)
        assert len(gateway.stored) == 80
        sender.close()


def test_callbacks_hear_of_both_outcomes_and_may_fail_and_send() -> None:
    heard: list[object] = []
    bad = refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE", {"index": "0"})
    with fake_gateway(bad) as gateway:
        with producer(gateway) as sender:

            def on_delivery(receipt: object, error: object) -> None:
                heard.append((receipt, error))
                if error is not None:
                    sender.send("T", b"instead", on_delivery=on_delivery)
                raise RuntimeError("a bug of the application")

            sender.send("T", b"x", on_delivery=on_delivery)
            gateway.wait_for(lambda: gateway.stored)
        assert [type(error) for _, error in heard] == [InvalidMessageError, type(None)]
        assert gateway.bodies() == [b"instead"]


def test_a_callback_that_waits_for_its_own_thread_is_told_so() -> None:
    errors: list[BaseException] = []
    with fake_gateway() as gateway, producer(gateway) as sender:

        def on_delivery(_receipt: object, _error: object) -> None:
            try:
                sender.flush()
            except RuntimeError as error:
                errors.append(error)

        sender.send("T", b"x", on_delivery=on_delivery)
        assert sender.flush(30)
        assert len(errors) == 1


def test_close_delivers_what_waits_and_then_refuses() -> None:
    with fake_gateway() as gateway:
        sender = producer(gateway, linger_millis=10_000)
        made = [sender.send("T", b"%d" % i) for i in range(10)]
        sender.close()
        assert [future.result(0).queue_offset for future in made] == list(range(10))
        with pytest.raises(ProducerClosedError):
            sender.send("T", b"x")
        sender.close()


def test_close_has_an_end_and_says_what_became_of_each() -> None:
    with fake_gateway(HANG) as gateway:
        sender = producer(gateway, batch_count_max=1, in_flight_count_max=1)
        sent, waiting = sender.send("T", b"0"), sender.send("T", b"1")
        gateway.wait_for(lambda: gateway.requests)
        sender.close(timeout_seconds=0.05)
        assert isinstance(sent.exception(0), DeliveryUnknownError)
        assert isinstance(waiting.exception(0), ProducerClosedError)


def test_no_thread_is_left_behind() -> None:
    before = set(threading.enumerate())
    with fake_gateway() as gateway:
        with producer(gateway) as sender:
            sender.send_and_wait("T", b"x", timeout_seconds=WAIT_SECONDS_MAX)

        def names() -> list[str]:
            return [each.name for each in set(threading.enumerate()) - before if each.name.startswith("reput-")]

        wait_until(lambda: names() == [], names)


def test_an_idle_stream_is_closed_and_opened_again() -> None:
    with fake_gateway() as gateway, producer(gateway, idle_seconds_max=0.05) as sender:
        sender.send_and_wait("T", b"0", timeout_seconds=WAIT_SECONDS_MAX)
        gateway.wait_for(lambda: gateway.ended_streams == 1)
        sender.send_and_wait("T", b"1", timeout_seconds=WAIT_SECONDS_MAX)
        assert gateway.bodies() == [b"0", b"1"]
        assert gateway.streams == 2


def test_an_unclosed_producer_warns_and_still_delivers() -> None:
    with fake_gateway() as gateway:
        sender = producer(gateway, linger_millis=10_000)
        future = sender.send("T", b"x")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del sender
            gc.collect()
        assert [warning.category for warning in caught if "Producer(" in str(warning.message)] == [ResourceWarning]
        assert future.result(WAIT_SECONDS_MAX).queue_offset == 0


def test_many_threads_share_one_producer() -> None:
    with fake_gateway() as gateway, producer(gateway) as sender:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            one = list(pool.map(lambda i: sender.send_and_wait("T", b"w%d" % i, timeout_seconds=60), range(200)))
            many = list(pool.map(lambda i: sender.send("T", b"s%d" % i), range(200)))
        assert (
            len({future.result(WAIT_SECONDS_MAX).unique_key for future in many} | {each.unique_key for each in one})
            == 400
        )
        assert len(gateway.stored) == 400


def test_the_interpreter_ends_cleanly_and_nothing_waiting_is_lost() -> None:
    with fake_gateway() as gateway:
        code = (
            "from reput_client import Producer\n"
            f"p = Producer({gateway.address!r}, linger_millis=5000)\n"
            "p.send_and_wait('T', b'first', timeout_seconds=30)\n"
            "for i in range(10): p.send('T', b'%d' % i)\n"
        )
        path = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert gateway.bodies() == [b"first"] + [b"%d" % i for i in range(10)]


def test_a_forked_child_is_refused_at_once() -> None:
    with fake_gateway() as gateway:
        code = (
            "import os\n"
            "from reput_client import Producer, ProducerClosedError\n"
            f"p = Producer({gateway.address!r})\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    try: p.send('T', b'x')\n"
            "    except ProducerClosedError: p.close(); os._exit(7)\n"
            "    os._exit(1)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
            "p.close()\n"
        )
        path = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"body": "text"}, TypeError),
        ({"keys": "one"}, TypeError),
        ({"body": b"x" * (5 << 20)}, InvalidMessageError),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(arguments: dict, error: type[Exception]) -> None:
    with Producer("127.0.0.1:1") as sender, pytest.raises(error):
        sender.send(**{"topic": "T", "body": b"x", **arguments})


@pytest.mark.parametrize(
    "setting", [{"batch_bytes_max": 5 << 20}, {"batch_count_max": 0}, {"linger_millis": -1}, {"no_such": 1}]
)
def test_unusable_settings_are_refused(setting: dict) -> None:
    with pytest.raises((ValueError, TypeError)):
        Producer("127.0.0.1:1", **setting)


def test_what_people_install_brings_no_server_with_it() -> None:
    code = (
        "import sys, reput_client\n"
        "own = {'store', 'services', 'commitlog_svc', 'consumequeue_svc', 'index_svc', 'gateway', 'cli', 'deploy'}\n"
        "heavy = {'numpy', 'pydantic', 'structlog', 'typer', 'rich'}\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & (own | heavy)))\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "protos")])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=60
    )
    assert done.stdout == b"[]\n", done.stderr
