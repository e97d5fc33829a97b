"""What a consumer asks its gateways for, step by step, on a transport that the test answers."""

import contextlib
from typing import Any

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.consuming.cache import HeldMessage
from reput_client.consuming.core import ConsumerCore
from reput_client.consuming.settings import ConsumerSettings
from reput_client.consuming.subscription import endpoints_of
from reput_client.errors import (
    ConsumerClosedError,
    PermissionDeniedError,
    ReceiptHandleNotFoundError,
    ServiceUnavailableError,
)
from tests.reput_client.consuming.fake_transport import FakeTransport

TARGET = "127.0.0.1:8081"
OK = v2.Status(code=v2.OK)


class Play:
    """A consumer whose gateway is played by the test."""

    def __init__(self, *, fifo: bool = False, begins: bool = True, asking_count: int = 100, **settings: Any) -> None:
        self.transport = FakeTransport()
        self.fifo = fifo
        self.core = ConsumerCore(self.transport, TARGET, "group", {"T": "*"}, ConsumerSettings(**settings), "client")
        self.core.start()
        self.asking = contextlib.ExitStack()
        for _ in range(asking_count):
            self.asking.enter_context(self.core.asking())
        if begins:
            self.agree()
            self.assign()

    def agree(self) -> None:
        settings = v2.Settings()
        settings.backoff_policy.max_attempts = 3
        settings.backoff_policy.customized_backoff.next.add(seconds=1)
        settings.backoff_policy.customized_backoff.next.add(seconds=5)
        settings.subscription.fifo = self.fifo
        settings.subscription.receive_batch_size = 32
        settings.subscription.long_polling_timeout.seconds = 20
        self.transport.telemetries[-1].taken(v2.TelemetryCommand(status=OK, settings=settings))

    def assign(self, *brokers: tuple[str, str]) -> None:
        answer = v2.QueryAssignmentResponse(status=OK)
        for name, target in brokers or [("broker-a", TARGET)]:
            queue = answer.assignments.add().message_queue
            queue.broker.name = name
            queue.broker.endpoints.CopyFrom(endpoints_of(target))
        assert self.transport.answer("QueryAssignment", lambda _: answer)

    def poll(self) -> Any:
        """The poll that is under way."""
        return self.transport.streams[-1]

    def deliver(self, *bodies: bytes, message_group: str = "") -> None:
        """Answer the poll with messages."""
        responses = [v2.ReceiveMessageResponse(status=OK)]
        for body in bodies:
            message = v2.Message(topic=v2.Resource(name="T"), body=body)
            message.system_properties.receipt_handle = f"handle-{body.decode()}"
            message.system_properties.delivery_attempt = 1
            if message_group:
                message.system_properties.message_group = message_group
            responses.append(v2.ReceiveMessageResponse(message=message))
        self.poll().done(responses, None)

    def acked(self, code: int = v2.OK) -> list[list[str]]:
        """Answer the acknowledgements; their handles by request."""
        seen: list[list[str]] = []

        def answer(request: v2.AckMessageRequest) -> v2.AckMessageResponse:
            seen.append([entry.receipt_handle for entry in request.entries])
            status = v2.Status()
            status.code = code  # type: ignore[assignment]
            return v2.AckMessageResponse(
                status=status,
                entries=[
                    v2.AckMessageResultEntry(receipt_handle=entry.receipt_handle, status=status)
                    for entry in request.entries
                ],
            )

        self.transport.answer("AckMessage", answer)
        return seen

    def changes(self) -> list[Any]:
        """Answer the changes of invisible times, and give them."""
        seen: list[Any] = []

        def answer(request: v2.ChangeInvisibleDurationRequest) -> v2.ChangeInvisibleDurationResponse:
            seen.append(request)
            return v2.ChangeInvisibleDurationResponse(status=OK)

        while self.transport.answer("ChangeInvisibleDuration", answer):
            pass
        return seen

    def take(self) -> Any:
        held = self.core.take()
        assert held is not None
        return held


def test_a_member_that_joined_polled_nothing_for_five_seconds_after_one_failed_assignment() -> None:
    play = Play(begins=False)
    play.agree()
    away = ServiceUnavailableError("away", code="UNAVAILABLE")
    for failures in range(1, 4):
        assert play.transport.answer("QueryAssignment", lambda _: away)
        assert not play.transport.calls
        play.transport.pass_time(0.1 * 2 ** (failures - 1))  # the pauses of `retry`, with jitter
    play.assign()
    assert len(play.transport.streams) == 1
    play.transport.pass_time(4.9)
    assert not play.transport.calls, "then as often as before"


def test_it_tells_its_settings_asks_for_its_shards_and_polls_each_once() -> None:
    play = Play(begins=False)
    (command,) = play.transport.telemetries[0].sent
    subscription = command.settings.subscription
    assert (command.settings.client_type, subscription.group.name) == (v2.PUSH_CONSUMER, "group")
    assert [(each.topic.name, each.expression.expression) for each in subscription.subscriptions] == [("T", "*")]
    assert not play.transport.calls, "nothing before its settings are agreed"
    play.agree()
    play.assign(("broker-a", TARGET), ("broker-a", TARGET), ("broker-b", "10.0.0.2:8081"))
    assert [each.request.message_queue.broker.name for each in play.transport.streams] == ["broker-a", "broker-b"]
    assert [each.request for each in play.transport.telemetries] == [TARGET, "10.0.0.2:8081"], "each gateway knows it"
    request = play.transport.streams[0].request
    assert (request.auto_renew, request.batch_size, request.long_polling_timeout.seconds) == (True, 32, 20)
    play.transport.pass_time(5)
    play.assign(("broker-b", "10.0.0.2:8081"))
    assert [each.is_cancelled for each in play.transport.streams] == [True, False], "a shard that is gone is not polled"


def test_a_poll_whose_answer_was_lost_is_sent_again_by_its_id() -> None:
    play = Play()
    first = play.poll()
    first.done([], ServiceUnavailableError("gone"))
    assert play.poll() is first, "after a pause"
    play.transport.pass_time(1)
    second = play.poll()
    assert second.request.attempt_id == first.request.attempt_id
    play.deliver(b"1")
    assert play.poll().request.attempt_id != first.request.attempt_id


def test_polls_are_tried_without_end_and_with_growing_pauses() -> None:
    play = Play()
    for _ in range(100):
        play.poll().done([], ServiceUnavailableError("gone"))
        count = len(play.transport.streams)
        play.transport.pass_time(5)
        assert len(play.transport.streams) == count + 1
    assert play.core.take() is None


def test_a_refusal_that_does_not_pass_ends_the_consumer() -> None:
    play = Play()
    play.poll().done([v2.ReceiveMessageResponse(status=v2.Status(code=v2.FORBIDDEN, message="no"))], None)
    with pytest.raises(PermissionDeniedError):
        play.core.take()


def test_a_topic_that_there_is_not_ended_the_consumer_or_was_waited_for_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A program may start before its topic is made; it is told once, and again when the topic is deleted later."""
    status = v2.Status(code=v2.TOPIC_NOT_FOUND, message="no topic")
    absent = v2.QueryAssignmentResponse(status=status)
    play = Play(begins=False)
    play.agree()
    for _ in range(3):
        assert play.transport.answer("QueryAssignment", lambda _: absent)
        assert play.core.take() is None
        play.transport.pass_time(5)
    play.assign()
    told = [(record.levelname, "the topic T, which does not exist" in record.message) for record in caplog.records]
    assert told == [("WARNING", True)]
    play.poll().done([v2.ReceiveMessageResponse(status=v2.Status(code=v2.MESSAGE_NOT_FOUND))], None)
    for _ in range(3):
        play.transport.pass_time(5)
        play.poll().done([v2.ReceiveMessageResponse(status=status)], None)
        assert play.core.take() is None
    assert len(caplog.records) == 2


def test_acknowledgements_that_come_while_one_is_under_way_share_the_next_request() -> None:
    play = Play()
    play.deliver(*[b"%d" % i for i in range(10)])
    outcomes = [play.core.ack(play.take()) for _ in range(10)]
    assert play.acked() == [["handle-0"]]
    assert play.acked() == [[f"handle-{i}" for i in range(1, 10)]]
    assert all(each.result(0) is None for each in outcomes)
    assert play.core.cache.count == 0


def test_an_acknowledgement_is_tried_until_its_time_is_over() -> None:
    play = Play(invisible_seconds=30)
    play.deliver(b"1")
    outcome = play.core.ack(play.take())
    began = play.transport.seconds
    while not outcome.done():
        assert play.acked(v2.HA_NOT_AVAILABLE)
        if not outcome.done():
            play.transport.pass_time(5)
    assert isinstance(outcome.exception(0), ServiceUnavailableError)
    assert 30 <= play.transport.seconds - began <= 40
    assert play.core.cache.count == 0, "its room is free"


def test_a_handle_whose_time_is_over_is_final() -> None:
    play = Play()
    play.deliver(b"1")
    outcome = play.core.ack(play.take())
    assert play.acked(v2.INVALID_RECEIPT_HANDLE) == [["handle-1"]]
    assert isinstance(outcome.exception(0), ReceiptHandleNotFoundError)
    play.transport.pass_time(100)
    assert play.acked() == []


def test_a_message_that_failed_in_a_fifo_group_waits_here_and_then_becomes_a_dead_letter() -> None:
    play = Play(fifo=True)
    play.deliver(b"1", b"2", message_group="g")
    for pause in (1.0, 5.0):
        play.core.nack(play.take(), None)
        assert play.core.next_time() == play.transport.seconds + pause
        assert play.core.take() is None
        play.transport.pass_time(pause)
    last = play.take()
    assert (last.message.body, last.attempt) == (b"1", 3)
    outcome = play.core.nack(last, None)
    assert play.core.take() is None, "the next one waits until the gateway has it"
    requests: list[Any] = []
    play.transport.answer(
        "ForwardMessageToDeadLetterQueue",
        lambda request: requests.append(request) or v2.ForwardMessageToDeadLetterQueueResponse(status=OK),
    )
    assert [(each.receipt_handle, each.delivery_attempt) for each in requests] == [("handle-1", 3)]
    assert outcome.result(0) is None
    assert play.take().message.body == b"2"


def test_in_a_fifo_group_the_next_message_waits_for_the_acknowledgement() -> None:
    play = Play(fifo=True)
    play.deliver(b"1", b"2", message_group="g")
    play.core.ack(play.take())
    assert play.core.take() is None
    play.acked(v2.INVALID_RECEIPT_HANDLE)
    assert play.core.take() is None, "the first one comes again, and the second one behind it"
    assert play.core.cache.count == 0


@pytest.mark.parametrize("invisible_seconds", [None, 30])
def test_the_end_cancels_polls_gives_back_what_nobody_saw_and_tells_the_gateway(
    invisible_seconds: float | None,
) -> None:
    play = Play(invisible_seconds=invisible_seconds)
    play.deliver(b"seen", b"unseen")
    seen = play.take()
    poll = play.poll()
    play.core.begin_close()
    assert poll.is_cancelled
    assert not play.core.is_quiet, "the poll has not ended yet"
    poll.done([], ServiceUnavailableError("cancelled"))
    given_back = play.changes()
    assert [(change.receipt_handle, change.suspend) for change in given_back] == (
        [] if invisible_seconds is None else [("handle-unseen", True)]
    ), "what is renewed is released when the client has ended"
    outcome = play.core.ack(seen)
    assert play.acked() == [["handle-seen"]]
    assert outcome.result(0) is None
    assert play.core.is_quiet
    play.core.terminate(1.0)
    assert not play.core.is_terminated
    assert play.transport.answer("NotifyClientTermination", lambda _: v2.NotifyClientTerminationResponse(status=OK))
    assert play.core.is_terminated
    with pytest.raises(ConsumerClosedError):
        play.core.ack(HeldMessage(seen.message, seen.receipt_handle, seen.target, seen.ends_at)).result(0)


@pytest.mark.parametrize("invisible_seconds", [None, 30])
def test_what_was_taken_and_not_settled_counts_at_the_end_and_what_waits_does_not(
    invisible_seconds: float | None,
) -> None:
    play = Play(invisible_seconds=invisible_seconds)
    play.deliver(b"seen", b"unseen")
    seen = play.take()
    play.core.begin_close()
    released = play.changes()
    play.core.abandon()
    counted = play.changes()
    # What is hidden for a fixed time keeps it; what is renewed and waits is released with NotifyClientTermination.
    assert [(change.receipt_handle, change.suspend) for change in released + counted] == (
        [("handle-seen", False)] if invisible_seconds is None else [("handle-unseen", True)]
    )
    with pytest.raises(ConsumerClosedError):
        play.core.ack(seen).result(0)


@pytest.mark.parametrize("invisible_seconds", [None, 30])
def test_a_failed_message_of_a_fifo_group_that_waits_here_counts_at_the_end(invisible_seconds: float | None) -> None:
    play = Play(fifo=True, invisible_seconds=invisible_seconds)
    play.deliver(b"1", b"2", message_group="A")
    play.core.nack(play.take(), None)
    play.core.begin_close()
    given_back = {change.receipt_handle: change.suspend for change in play.changes()}
    assert given_back == {"handle-1": False} | ({} if invisible_seconds is None else {"handle-2": True})


def test_a_program_that_does_not_ask_is_polled_nothing_for() -> None:
    play = Play(asking_count=0)
    assert play.transport.streams == []
    with play.core.asking():
        assert play.poll().request.batch_size == 1
        play.deliver(b"1")
        assert len(play.transport.streams) == 1, "it has what it asked for"
        play.take()
    with play.core.asking(), play.core.asking(), play.core.asking():
        assert len(play.transport.streams) == 2
        assert play.poll().request.batch_size == 1, "it began when the first one asked"
        play.deliver(b"2")
        assert play.poll().request.batch_size == 2


def test_its_stream_is_opened_again_and_heartbeats_and_settings_go_on() -> None:
    play = Play()
    play.transport.telemetries[0].done(ServiceUnavailableError("gone"))
    play.transport.pass_time(5)
    assert [len(each.sent) for each in play.transport.telemetries] == [1, 1]
    play.transport.pass_time(5)
    assert play.transport.answer("Heartbeat", lambda _: v2.HeartbeatResponse(status=OK)) == 1
    play.transport.pass_time(10)
    forgotten = v2.HeartbeatResponse(status=v2.Status(code=v2.UNRECOGNIZED_CLIENT_TYPE))
    play.transport.answer("Heartbeat", lambda _: forgotten)
    assert len(play.transport.telemetries[-1].sent) == 2, "a gateway that does not know it is told its settings"
    play.transport.pass_time(300)
    assert len(play.transport.telemetries[-1].sent) == 3


def test_a_gateway_that_asks_a_consumer_gets_its_stacks_and_no_message_consumed():
    play = Play()
    stream = play.transport.telemetries[0]
    del stream.sent[:]
    stream.taken(v2.TelemetryCommand(print_thread_stack_trace_command=v2.PrintThreadStackTraceCommand(nonce="first")))
    stream.taken(v2.TelemetryCommand(verify_message_command=v2.VerifyMessageCommand(nonce="second")))
    printed, refused = stream.sent
    assert (printed.status.code, printed.thread_stack_trace.nonce) == (v2.OK, "first")
    assert "in test_a_gateway_that_asks_a_consumer_gets_its_stacks" in printed.thread_stack_trace.thread_stack_trace
    assert (refused.status.code, refused.verify_message_result.nonce) == (v2.NOT_IMPLEMENTED, "second")
    assert not play.transport.streams[-1].is_cancelled
