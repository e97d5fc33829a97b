"""A producer's session: what waits for a client that takes nothing has a limit."""

import itertools
import queue
import threading
from unittest.mock import Mock

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq import sessions as sessions_module
from gateway.rocketmq import telemetry as telemetry_module
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.sessions import ProducerSession, QuestionBytes
from gateway.rocketmq.telemetry import telemetry
from gateway.waiting.producers import Producers
from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1.schedule_service_pb2 import WatchChecksResponse
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


def alive() -> bool:
    return True


def commands(session: ProducerSession, requests):
    return session.commands(requests, lambda request: v2.TelemetryCommand(settings=request.settings))


def hanging(number: int, body_bytes: int = 10) -> WatchChecksResponse.Check:
    message = StoredMessage(topic="Orders", body=bytes(body_bytes))
    return WatchChecksResponse.Check(message=message, transaction_id=f"transaction-{number}")


def test_settings_whose_answers_nobody_took_filled_the_memory() -> None:
    taken = []
    is_over = threading.Event()

    def requests():
        for number in itertools.count():
            taken.append(number)
            yield v2.TelemetryCommand(settings=v2.Settings())
            if is_over.is_set():
                return

    stream = commands(ProducerSession(alive, QuestionBytes()), requests())
    next(stream)
    wait_until(lambda: len(taken) == 2, lambda: taken)  # the one that is written, and one whose answer has no room
    next(stream)
    wait_until(lambda: len(taken) == 3, lambda: taken)
    threads = [thread for thread in threading.enumerate() if thread.name == "telemetry"]
    is_over.set()
    stream.close()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)
        assert not thread.is_alive()
    assert len(taken) == 3


def test_questions_of_all_producers_have_room_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "QUESTION_BYTES_MAX", 10_000)
    room = QuestionBytes()
    first, second = ProducerSession(alive, room), ProducerSession(alive, room)
    is_over = threading.Event()
    stream = commands(first, (is_over.wait() for _ in ()))
    assert [first.ask(hanging(number, 4_000)) for number in range(3)] == [True, True, False]
    assert not second.ask(hanging(4, 4_000)), "the room is that of all"
    question = next(stream)
    assert question.recover_orphaned_transaction_command.transaction_id == "transaction-0"
    next(stream)
    assert second.ask(hanging(5, 4_000)), "one is written"
    stream.close()
    assert not first.ask(hanging(6))
    assert second.ask(hanging(7, 4_000)), "an ended session holds nothing"


@pytest.mark.parametrize(
    ("topic", "group", "is_asked"),
    [
        ("Orders", "", True),
        ("Orders", "Orders", True),  # as RocketMQ's proxy writes it
        ("space%Orders", "Orders", True),
        ("Orders", "pg", False),  # of a TransactionMQProducer
    ],
)
def test_a_half_message_of_another_producer_group_was_put_to_any_producer_of_its_topic(topic, group, is_asked) -> None:
    properties = {"PGROUP": group} if group else {}
    check = WatchChecksResponse.Check(message=StoredMessage(topic=topic, properties=properties))
    assert ProducerSession(alive, QuestionBytes()).ask(check) is is_asked


def test_a_producer_that_read_the_answer_to_its_settings_could_not_be_asked_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check of a hanging transaction that came at this moment was put off to the next one."""
    monkeypatch.setattr(telemetry_module, "agreed", lambda settings, *_: v2.TelemetryCommand(settings=settings))
    clients, producers = Mock(spec_set=Clients), Producers()
    clients.find.return_value = object()
    context = Mock(spec_set=grpc.ServicerContext)
    context.invocation_metadata.return_value = [("x-mq-client-id", "p1")]
    settings = v2.Settings(publishing=v2.Publishing(topics=[v2.Resource(name="Orders")]))
    says: queue.SimpleQueue[v2.TelemetryCommand | None] = queue.SimpleQueue()
    says.put(v2.TelemetryCommand(settings=settings))
    stream = telemetry(iter(says.get, None), context, clients, producers)

    assert next(stream).HasField("settings")
    assert producers.ask(hanging(1))
    assert next(stream).recover_orphaned_transaction_command.transaction_id == "transaction-1"
    says.put(None)
    assert list(stream) == []
    assert producers.topics() == []
