"""A session: what waits for a client that takes nothing has a limit, and an answer belongs to its question."""

import queue
from collections.abc import Callable
from unittest.mock import Mock

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.delivery.timers import Timers
from gateway.rocketmq import sessions as sessions_module
from gateway.rocketmq import telemetry as telemetry_module
from gateway.rocketmq.asked_members import MessagingMembers
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.sessions import QuestionBytes, TelemetrySession
from gateway.rocketmq.telemetry import telemetry
from gateway.waiting.producers import Producers
from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1.schedule_service_pb2 import WatchChecksResponse


def alive() -> bool:
    return True


class Client:
    """One whose commands are said by a test; what wakes the session is an empty one."""

    def __init__(self, room: QuestionBytes | None = None) -> None:
        self.says: queue.SimpleQueue[v2.TelemetryCommand | None] = queue.SimpleQueue()
        self.session = TelemetrySession(alive, room or QuestionBytes(), lambda: self.says.put(v2.TelemetryCommand()))
        self.stream = self.session.commands(iter(self.says.get, None), self._answer)

    def _answer(self, command: v2.TelemetryCommand) -> v2.TelemetryCommand | None:
        if command.HasField("thread_stack_trace"):
            self.session.note_answer(command)
        return command if command.HasField("settings") else None

    def asked(self, answers: list) -> Callable[[], None] | None:
        question = v2.TelemetryCommand(print_thread_stack_trace_command=v2.PrintThreadStackTraceCommand())
        return self.session.ask_member(question, answers.append)

    def trace(self, nonce: str) -> v2.TelemetryCommand:
        return v2.TelemetryCommand(thread_stack_trace=v2.ThreadStackTrace(nonce=nonce, thread_stack_trace="main"))


def hanging(number: int, body_bytes: int = 10) -> WatchChecksResponse.Check:
    message = StoredMessage(topic="Orders", body=bytes(body_bytes))
    return WatchChecksResponse.Check(message=message, transaction_id=f"transaction-{number}")


def test_settings_whose_answers_nobody_took_filled_the_memory() -> None:
    client = Client()
    for _ in range(3):
        client.says.put(v2.TelemetryCommand(settings=v2.Settings()))
    next(client.stream)
    assert client.says.qsize() == 2, "nothing is read before the answer was taken"
    next(client.stream)
    assert client.says.qsize() == 1


def test_questions_of_all_clients_have_room_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "QUESTION_BYTES_MAX", 10_000)
    room = QuestionBytes()
    first, second = Client(room), Client(room)
    assert [first.session.ask(hanging(number, 4_000)) for number in range(3)] == [True, True, False]
    assert not second.session.ask(hanging(4, 4_000)), "the room is that of all"
    question = next(first.stream)
    assert question.recover_orphaned_transaction_command.transaction_id == "transaction-0"
    next(first.stream)
    assert second.session.ask(hanging(5, 4_000)), "one is written"
    first.stream.close()
    assert not first.session.ask(hanging(6))
    assert second.session.ask(hanging(7, 4_000)), "an ended session holds nothing"


def test_an_answer_goes_to_its_question_and_only_once() -> None:
    client = Client()
    first: list[v2.TelemetryCommand | None] = []
    second: list[v2.TelemetryCommand | None] = []
    client.asked(first)
    client.asked(second)
    nonces = [next(client.stream).print_thread_stack_trace_command.nonce for _ in range(2)]
    for nonce in ("", "another stream's", nonces[1], nonces[1], nonces[0]):
        client.says.put(client.trace(nonce))
    client.says.put(None)
    assert list(client.stream) == []
    assert (first, second) == ([client.trace(nonces[0])], [client.trace(nonces[1])])


def test_a_question_without_an_answer_is_told_at_its_end_or_with_the_stream() -> None:
    client = Client()
    late: list[v2.TelemetryCommand | None] = []
    left: list[v2.TelemetryCommand | None] = []
    give_up = client.asked(late)
    client.asked(left)
    nonce = next(client.stream).print_thread_stack_trace_command.nonce
    assert give_up is not None
    give_up()
    give_up()
    assert late == [None]
    client.says.put(client.trace(nonce))
    client.says.put(None)
    assert len(list(client.stream)) == 1, "the other question"
    assert (late, left) == ([None], [None])
    assert client.asked(late) is None, "the stream has ended"


def test_questions_without_answers_have_a_limit() -> None:
    client = Client()
    answers: list[v2.TelemetryCommand | None] = []
    asked = [client.asked(answers) for _ in range(sessions_module.UNANSWERED_COUNT_MAX + 1)]
    assert [number for number, each in enumerate(asked) if each is None] == [sessions_module.UNANSWERED_COUNT_MAX]
    assert asked[0] is not None
    asked[0]()
    assert client.asked(answers) is not None


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
    assert TelemetrySession(alive, QuestionBytes(), lambda: None).ask(check) is is_asked


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
    monkeypatch.setattr(telemetry_module, "wake_here", lambda: lambda: says.put(v2.TelemetryCommand()))
    members = MessagingMembers(clients, Timers())
    stream = telemetry(iter(says.get, None), context, clients, producers, members, QuestionBytes())

    assert next(stream).HasField("settings")
    assert producers.ask(hanging(1))
    assert next(stream).recover_orphaned_transaction_command.transaction_id == "transaction-1"
    says.put(None)
    assert list(stream) == []
    assert producers.topics() == []
