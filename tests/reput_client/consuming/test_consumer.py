"""`Consumer` against `reput serve`."""

import collections
import subprocess
import sys
import threading
import time
from concurrent.futures import Future

import pytest

from reput_client import (
    Consumer,
    ConsumerClosedError,
    ConsumerSettings,
    Delivery,
    IllegalFilterError,
    ReceivedMessage,
    Sql,
)
from tests.reput_client.consuming.support import (
    WAIT_SECONDS,
    bodies_of,
    fresh,
    in_flight_count,
    make_group,
    send,
)
from tests.support.ports import free_port
from tests.support.stack import Stack, hosted_stack, running_stack
from tests.support.waiting import wait_until


def taken(consumer: Consumer, seconds: float = WAIT_SECONDS) -> Delivery[Future[None]]:
    """The next message, which must come."""
    delivery = consumer.take(seconds)
    assert delivery is not None, f"nothing in {seconds} s"
    return delivery


class Handled:
    """A handler that notes what it gets, and closes its consumer with the last message."""

    def __init__(self, count: int) -> None:
        self.bodies: list[bytes] = []
        self._left_count = count
        self._lock = threading.Lock()
        self.all_came = threading.Event()

    def __call__(self, message: ReceivedMessage) -> None:
        with self._lock:
            self.bodies.append(message.body)
            if len(self.bodies) == self._left_count:
                self.all_came.set()


def run_in_thread(consumer: Consumer, handler: object, concurrency: int = 8) -> threading.Thread:
    thread = threading.Thread(target=consumer.run, args=(handler, concurrency), daemon=True)
    thread.start()
    return thread


def test_a_handler_gets_each_message_once_with_all_that_its_producer_said(stack: Stack) -> None:
    topic, group = fresh("Once"), fresh("once")
    bodies = [b"%d" % i for i in range(400)]
    send(stack, topic, bodies, keys=["k1", "k2"], tags="A")
    seen: list[ReceivedMessage] = []
    handled = Handled(len(bodies))

    def handle(message: ReceivedMessage) -> None:
        seen.append(message)
        handled(message)

    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        thread = run_in_thread(consumer, handle)
        assert handled.all_came.wait(WAIT_SECONDS)
        consumer.close()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()

    assert collections.Counter(handled.bodies) == collections.Counter(bodies)
    assert {(each.topic, each.keys, each.tags, each.delivery_attempt) for each in seen} == {
        (topic, ("k1", "k2"), "A", 1)
    }
    assert len({each.message_id for each in seen}) == len(bodies)
    assert in_flight_count(stack, group) == 0
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as again:
        assert again.take(0.5) is None, "what was acknowledged does not come again"


def test_tags_and_sql_choose_messages(stack: Stack) -> None:
    topic, group = fresh("Chosen"), fresh("chosen")
    for tags in ("A", "B", "C"):
        send(stack, topic, [tags.encode()], tags=tags)
    with Consumer(stack.addresses["gateway"], group, {topic: "A || C"}) as consumer:
        assert {taken(consumer).message.body for _ in range(2)} == {b"A", b"C"}
        assert consumer.take(0.3) is None
    with Consumer(stack.addresses["gateway"], fresh("sql"), {topic: Sql("TAGS = 'B'")}) as consumer:
        assert taken(consumer).message.body == b"B"
        assert consumer.take(0.3) is None


def test_a_filter_that_cannot_be_read_ends_the_consumer_with_its_error(stack: Stack) -> None:
    with (
        Consumer(stack.addresses["gateway"], fresh("bad"), {fresh("Bad"): Sql("a = ")}) as consumer,
        pytest.raises(IllegalFilterError),
    ):
        consumer.take(WAIT_SECONDS)
    with pytest.raises(IllegalFilterError):
        consumer.run(lambda _: None)


def test_a_message_that_is_not_consumed_comes_again_after_its_pause(stack: Stack) -> None:
    topic, group = fresh("Again"), fresh("again")
    send(stack, topic, [b"again"])
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        first = taken(consumer)
        began_at = time.monotonic()
        first.nack(0.5).result(WAIT_SECONDS)
        second = taken(consumer)
        assert time.monotonic() - began_at >= 0.5
        assert (second.message.body, second.delivery_attempt, second.message.topic) == (b"again", 2, topic)
        assert second.ack() is second.ack(), "what is said once counts"
        second.ack().result(WAIT_SECONDS)
    assert in_flight_count(stack, group) == 0


def test_a_handler_that_raises_gets_the_message_after_the_back_off_of_its_attempt(stack: Stack) -> None:
    topic, group = fresh("Raising"), fresh("raising")
    send(stack, topic, [b"hard"])
    attempts: list[tuple[int, float]] = []
    done = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        attempts.append((message.delivery_attempt, time.monotonic()))
        if len(attempts) < 3:
            raise RuntimeError("not now")
        done.set()

    settings = ConsumerSettings(backoff_seconds=(0.2, 0.6))
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as consumer:
        run_in_thread(consumer, handle)
        assert done.wait(WAIT_SECONDS)
    assert [attempt for attempt, _ in attempts] == [1, 2, 3]
    assert attempts[1][1] - attempts[0][1] >= 0.2
    assert attempts[2][1] - attempts[1][1] >= 0.6


def test_a_handler_that_ended_the_program_ended_its_thread_only_and_kept_its_message(stack: Stack) -> None:
    topic, group = fresh("Exits"), fresh("exits")
    send(stack, topic, [b"exit"])

    def handle(_: ReceivedMessage) -> None:
        sys.exit(3)

    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        with pytest.raises(SystemExit) as caught:
            consumer.run(handle, concurrency=2)
        assert caught.value.code == 3
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        assert taken(consumer).message.body == b"exit"


def test_a_message_that_had_all_its_attempts_becomes_a_dead_letter(stack: Stack) -> None:
    topic, group = fresh("Dead"), fresh("dead")
    make_group(stack, group, delivery_attempts_max=2)
    send(stack, topic, [b"poison"])
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        taken(consumer).nack(0.1)
        second = taken(consumer)
        assert second.delivery_attempt == 2
        second.nack(0.1).result(WAIT_SECONDS)
        wait_until(lambda: bodies_of(stack, f"%DLQ%{group}") == [b"poison"], "the dead letter")
        assert consumer.take(0.3) is None


def test_a_message_can_be_given_up_at_once(stack: Stack) -> None:
    topic, group = fresh("Up"), fresh("up")
    send(stack, topic, [b"never"])
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        taken(consumer).forward_to_dead_letters().result(WAIT_SECONDS)
    wait_until(lambda: bodies_of(stack, f"%DLQ%{group}") == [b"never"], "the dead letter")
    # Dead letters are a topic like any other.
    with Consumer(stack.addresses["gateway"], fresh("mourner"), {f"%DLQ%{group}": "*"}) as consumer:
        assert taken(consumer).message.body == b"never"


def test_each_message_group_of_a_fifo_group_keeps_its_order_when_handlers_fail(stack: Stack) -> None:
    topic, group = fresh("Fifo"), fresh("fifo")
    make_group(stack, group, ordered=True)
    names = [f"customer-{i}" for i in range(6)]
    for name in names:
        send(stack, topic, [f"{name}:{i}".encode() for i in range(15)], message_group=name)
    lock = threading.Lock()
    consumed: dict[str, list[int]] = {name: [] for name in names}
    failed: set[bytes] = set()
    running: set[str] = set()
    overlapped: list[str] = []
    done = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        name, number = message.body.decode().split(":")
        assert message.message_group == name
        with lock:
            if name in running:
                overlapped.append(name)
            running.add(name)
            fails = int(number) % 4 == 1 and message.body not in failed
            failed.add(message.body)
        try:
            if fails:
                raise RuntimeError("first attempt of some")
            with lock:
                consumed[name].append(int(number))
                if sum(map(len, consumed.values())) == 90:
                    done.set()
        finally:
            with lock:
                running.discard(name)

    settings = ConsumerSettings(backoff_seconds=(0.05,))
    with (
        Consumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as one,
        Consumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as two,
    ):
        run_in_thread(one, handle)
        run_in_thread(two, handle)
        assert done.wait(WAIT_SECONDS), consumed
    assert consumed == {name: list(range(15)) for name in names}
    assert not overlapped


def test_a_fifo_message_that_always_fails_becomes_a_dead_letter_and_its_group_goes_on(stack: Stack) -> None:
    topic, group = fresh("Stuck"), fresh("stuck")
    make_group(stack, group, ordered=True, delivery_attempts_max=3)
    send(stack, topic, [b"a0", b"a1", b"a2"], message_group="a")
    calls: list[bytes] = []
    done = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        calls.append(message.body)
        if message.body == b"a1":
            raise RuntimeError("always")
        if message.body == b"a2":
            done.set()

    settings = ConsumerSettings(backoff_seconds=(0.05,))
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as consumer:
        run_in_thread(consumer, handle)
        assert done.wait(WAIT_SECONDS), calls
    assert calls == [b"a0", b"a1", b"a1", b"a1", b"a2"]
    wait_until(lambda: bodies_of(stack, f"%DLQ%{group}") == [b"a1"], "the dead letter")


def test_a_graceful_end_loses_nothing_and_repeats_nothing_that_was_handled(stack: Stack) -> None:
    topic, group = fresh("Ends"), fresh("ends")
    bodies = [b"%d" % i for i in range(300)]
    send(stack, topic, bodies)
    handled = Handled(len(bodies))
    some = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        handled(message)
        if len(handled.bodies) >= 60:
            some.set()

    for _ in range(2):
        with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
            run_in_thread(consumer, handle, concurrency=4)
            assert some.wait(WAIT_SECONDS)
        some.clear()
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        run_in_thread(consumer, handle)
        assert handled.all_came.wait(WAIT_SECONDS)
    assert collections.Counter(handled.bodies) == collections.Counter(bodies)


def test_the_end_waits_for_handlers_that_hold_messages(stack: Stack) -> None:
    topic, group = fresh("Holds"), fresh("holds")
    send(stack, topic, [b"slow"])
    began, may_end = threading.Event(), threading.Event()

    def handle(_: ReceivedMessage) -> None:
        began.set()
        may_end.wait(WAIT_SECONDS)

    consumer = Consumer(stack.addresses["gateway"], group, {topic: "*"})
    run_in_thread(consumer, handle)
    assert began.wait(WAIT_SECONDS)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    closing.join(0.3)
    assert closing.is_alive(), "it waits for the handler"
    may_end.set()
    closing.join(WAIT_SECONDS)
    assert not closing.is_alive()
    assert in_flight_count(stack, group) == 0
    with pytest.raises(ConsumerClosedError):
        consumer.take()


def test_the_end_has_a_time_limit_for_handlers_that_hang(stack: Stack) -> None:
    topic, group = fresh("Hangs"), fresh("hangs")
    send(stack, topic, [b"hang"])
    began, may_end = threading.Event(), threading.Event()

    def handle(_: ReceivedMessage) -> None:
        began.set()
        may_end.wait(WAIT_SECONDS)

    consumer = Consumer(stack.addresses["gateway"], group, {topic: "*"})
    thread = run_in_thread(consumer, handle)
    assert began.wait(WAIT_SECONDS)
    consumer.close(0.2)
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive(), "run returns, although a handler hangs"
    may_end.set()
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as other:
        assert taken(other).message.body == b"hang", "what was not acknowledged comes again"


def test_messages_of_a_killed_consumer_come_to_another_one(stack: Stack) -> None:
    topic, group = fresh("Killed"), fresh("killed")
    bodies = {b"%d" % i for i in range(20)}
    send(stack, topic, sorted(bodies))
    code = (
        "import sys; from reput_client import Consumer, ConsumerSettings\n"
        f"consumer = Consumer({stack.addresses['gateway']!r}, {group!r}, {{{topic!r}: '*'}},\n"
        "    settings=ConsumerSettings(invisible_seconds=10))\n"
        "for _ in range(5): consumer.take(); print('taken', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        assert [victim.stdout.readline() for _ in range(5)] == ["taken\n"] * 5
        victim.kill()
    seen: set[bytes] = set()
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        while seen != bodies:
            delivery = taken(consumer)
            seen.add(delivery.message.body)
            delivery.ack()


def test_a_consumer_outlives_its_gateway(tmp_path) -> None:
    """`reput serve` is killed and started again at the same address: nothing is lost, acknowledgements are tried meanwhile."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    with Consumer(address, "survivors", {"Orders": "*"}) as consumer:
        assert consumer.take(0.5) is None, "it waits for its gateway"
        with running_stack(tmp_path / "store", "--single-process", "--gateway-port", str(port)) as first:
            assert first.addresses["gateway"] == address
            send(first, "Orders", [b"%d" % i for i in range(40)])
            held = [taken(consumer) for _ in range(40)]
            first.kill()
        acknowledged = [delivery.ack() for delivery in held]
        assert not any(each.done() for each in acknowledged)
        with hosted_stack(tmp_path / "store", gateway_port=port) as second:
            for each in acknowledged:
                each.result(WAIT_SECONDS)
            send(second, "Orders", [b"after"])
            last = taken(consumer)
            last.ack().result(WAIT_SECONDS)
            assert in_flight_count(second, "survivors") == 0
    assert [each.message.delivery_attempt for each in [*held, last]] == [1] * 41
    assert {each.message.body for each in held} == {b"%d" % i for i in range(40)}


def test_no_more_messages_are_held_than_the_settings_say(stack: Stack) -> None:
    topic, group = fresh("Few"), fresh("few")
    send(stack, topic, [b"%d" % i for i in range(60)])
    with Consumer(
        stack.addresses["gateway"], group, {topic: "*"}, settings=ConsumerSettings(cache_count_max=10)
    ) as consumer:
        held = [taken(consumer) for _ in range(10)]
        assert consumer.take(0.5) is None
        assert in_flight_count(stack, group) == 10
        for _ in range(25):
            held.pop(0).ack()
            held.append(taken(consumer))
            assert in_flight_count(stack, group) <= 10
        assert len(held) == 10


def test_no_more_bytes_are_held_than_the_settings_say_and_one_answer(stack: Stack) -> None:
    topic, group = fresh("Large"), fresh("large")
    body = bytes(256 << 10)
    send(stack, topic, [body] * 60)
    settings = ConsumerSettings(cache_bytes_max=1 << 20, batch_count_max=4)
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as consumer:
        held = [taken(consumer)]
        while (more := consumer.take(0.5)) is not None:
            held.append(more)
        assert (1 << 20) <= len(held) * len(body) <= (2 << 20)
        for delivery in held:
            delivery.ack()
        assert taken(consumer).message.body == body, "there is room again"


def test_a_program_that_ends_without_closing_leaves_its_messages_to_others_at_once(stack: Stack) -> None:
    topic, group = fresh("Exit"), fresh("exit")
    send(stack, topic, [b"left"])
    code = (
        "from reput_client import Consumer\n"
        f"consumer = Consumer({stack.addresses['gateway']!r}, {group!r}, {{{topic!r}: '*'}})\n"
        "print(consumer.take().message.body.decode())\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (finished.returncode, finished.stdout) == (0, "left\n"), finished.stderr
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
        assert taken(consumer, 10).message.delivery_attempt == 2


def test_a_consumer_that_is_not_closed_warns(stack: Stack) -> None:
    consumer = Consumer(stack.addresses["gateway"], fresh("open"), {fresh("Open"): "*"})
    with pytest.warns(ResourceWarning, match="was not closed"):
        del consumer


@pytest.mark.parametrize(
    ("group", "subscriptions", "error"),
    [("", {"T": "*"}, ValueError), ("g", {}, ValueError), ("g", {"T": 3}, TypeError)],
)
def test_arguments_that_cannot_be_used_are_refused(group: str, subscriptions: dict[str, str], error: type) -> None:
    with pytest.raises(error):
        Consumer("127.0.0.1:1", group, subscriptions)
