"""Where one case of one language plays: names of its own on the server, and its programs, which end with it."""

import contextlib
import itertools
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tests.clients.programs import Program, Said
from tests.clients.servers import Server

# RocketMQ's default: 16 retries.
DELIVERY_ATTEMPTS_MAX = 17
INVISIBLE_SECONDS = 10  # the least that RocketMQ takes
# The least that RocketMQ waits for a message.
AWAIT_SECONDS = 5
RECEIVE_BATCH = 16
# Calls of a simple consumer that may fail: Python's does not wait for its settings, Rust's waits no longer than the server.
FAILURES_MAX = 5


def message(body: str, **fields: object) -> Said:
    """A message to send: tag, keys, properties and message_group as programs.py names them."""
    return {"body": body, **fields}


class Stage:
    """What a case plays on.

    Args:
        server: the one under test.
        language: of the client under test.
        name: no other case of this server has it.
        work: a directory of its own.
    """

    def __init__(self, server: Server, language: str, name: str, work: pathlib.Path) -> None:
        self.language = language
        self.server = server
        self._name = name
        self._work = work
        self._numbers = itertools.count()
        self._programs: list[Program] = []

    def topic(self, message_type: str = "NORMAL", queue_count: int = 4) -> str:
        """A new topic."""
        topic = f"T{next(self._numbers)}-{self._name}"
        self.server.create_topic(topic, queue_count, message_type)
        return topic

    def group(
        self, *, ordered: bool = False, delivery_attempts_max: int = DELIVERY_ATTEMPTS_MAX, **lite_attributes: str
    ) -> str:
        """A new consumer group; RocketMQ's attributes `lite.*` have names with underscores here."""
        group = f"G{next(self._numbers)}-{self._name}"
        attributes = {f"lite.{name.replace('_', '.')}": value for name, value in lite_attributes.items()}
        self.server.create_group(
            group, ordered=ordered, delivery_attempts_max=delivery_attempts_max, attributes=attributes
        )
        return group

    def _start(self, language: str | None, order: Said) -> Program:
        work = self._work / f"program-{next(self._numbers)}"
        program = Program(language or self.language, {"endpoint": self.server.endpoint, **order}, work)
        self._programs.append(program)
        return program

    def push(self, topic: str, group: str, language: str | None = None, **order: object) -> Program:
        """A push consumer that may not have started yet."""
        return self._start(language, {"role": "push", "topic": topic, "group": group, **order})

    def lite(self, topic: str, group: str, *lite_topics: str, language: str | None = None, **order: object) -> Program:
        """A lite push consumer that has started, and has subscribed to these lite topics."""
        started = self._start(language, {"role": "lite", "topic": topic, "group": group, **order}).wait_until_started()
        for lite_topic in lite_topics:
            subscribe(started, lite_topic)
        return started

    def simple(self, topic: str, group: str, language: str | None = None, **order: object) -> Program:
        """A simple consumer that has started."""
        simple = {"role": "simple", "topic": topic, "group": group, "await_seconds": AWAIT_SECONDS, **order}
        return self._start(language, simple).wait_until_started()

    def producer(self, topic: str, language: str | None = None, **order: object) -> Program:
        """A producer that has started."""
        return self._start(language, {"role": "send", "topic": topic, **order}).wait_until_started()

    def close(self) -> None:
        """End all programs."""
        for program in self._programs:
            program.kill()


def subscribe(consumer: Program, lite_topic: str, **option: object) -> Said:
    """What a consumer says when it has subscribed to a lite topic."""
    said = tell(consumer, do="subscribe", lite_topic=lite_topic, **option)
    assert said["event"] == "subscribed", said
    return said


def tell(consumer: Program, **line: object) -> Said:
    """What a lite consumer answers to a line; it receives messages meanwhile."""

    def answers() -> list[Said]:
        return [said for said in consumer.said if said["event"] in ("subscribed", "failed")]

    before = len(answers())
    consumer.tell(**line)
    consumer.wait(lambda: len(answers()) > before, f"it answers {line}")
    return answers()[before]


def send(producer: Program, *messages: Said) -> list[str]:
    """The message ids that a producer gave to messages, in their order."""
    return [send_one(producer, each) for each in messages]


def send_one(producer: Program, what: Said) -> str:
    """Likewise of one."""
    return str(receipt_of(producer, what)["message_id"])


def receipt_of(producer: Program, what: Said) -> Said:
    """What a producer says of a message that it has sent."""
    before = len(producer.events("sent"))
    producer.tell(**what)
    producer.wait(lambda: len(producer.events("sent")) > before, f"it sends {what}")
    return producer.events("sent")[before]


def ids(consumers: Sequence[Program]) -> Counter[str]:
    """How often each message was received."""
    return Counter(said["message_id"] for consumer in consumers for said in consumer.received)


def wait_for_ids(expected: Sequence[str], *consumers: Program) -> None:
    """Return once push consumers have received these messages among them."""
    consumers[0].wait(
        lambda: set(expected) <= set(ids(consumers)),
        lambda: f"they receive {sorted(set(expected) - set(ids(consumers)))}",
    )


def received_again(consumer: Program, message_id: str, count: int) -> list[Said]:
    """The receptions of one message by a push consumer, once there are so many."""

    def receptions() -> list[Said]:
        return [said for said in consumer.received if said["message_id"] == message_id]

    consumer.wait(lambda: len(receptions()) >= count, f"it receives {message_id} {count} times")
    return receptions()


def receive(consumer: Program, invisible_seconds: float = INVISIBLE_SECONDS) -> list[Said]:
    """What one call of a simple consumer brings; nothing when it fails, which a client has to try again now and then."""
    said = consumer.ask(do="receive", batch=RECEIVE_BATCH, invisible_seconds=invisible_seconds)
    assert len(consumer.events("failed")) <= FAILURES_MAX, consumer.events("failed")
    return list(said.get("messages", ()))


def receive_until(
    consumer: Program, is_enough: Callable[[list[Said]], object], invisible_seconds: float = INVISIBLE_SECONDS
) -> list[Said]:
    """What a simple consumer receives by calls one after the other, until it is enough."""
    messages: list[Said] = []

    def is_so() -> object:
        messages.extend(receive(consumer, invisible_seconds))
        return is_enough(messages)

    consumer.wait(is_so, lambda: f"it receives enough, not only {messages}")
    return messages


def acknowledge(consumer: Program, *messages: Said) -> None:
    """Acknowledge messages that a simple consumer has received."""
    for each in messages:
        said = consumer.ask(do="ack", message_id=each["message_id"])
        assert said["event"] == "acked", said


@contextlib.contextmanager
def opened(server: Server, language: str, name: str, work: pathlib.Path) -> Iterator[Stage]:
    """A stage whose programs are gone when the block ends."""
    stage = Stage(server, language, name, work)
    try:
        yield stage
    finally:
        stage.close()
