"""ResendDeadLetters: reads the request, and appends through the gateway's ordinary way."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from google.rpc import status_pb2

from gateway.appends.forwarder import AppendForwarder
from gateway.group_wire import filter_of, letter_of
from gateway.groups.dead_letters import Resending, ResendQuestion
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import DeliveringSource, Pulled
from gateway.query_answers import Call
from gateway.rocketmq.message_rules import BODY_ENCODING, SYSTEM_PROPERTIES, TRACE_CONTEXT
from gateway.wire import window_of
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import NewMessage, StoredMessage
from services.status import from_status
from store.errors import DeadlineExceededError, InvalidMessageError, StoreError
from store.format.body_compression import BodyNotInflatedError, inflate
from store.format.properties import MOVED_FROM, SHARDING_KEY

BODY_BYTES_MAX = 4 << 20
# What the store, or a consumer service, wrote beside the producer's own properties.
LEFT_OUT = (SYSTEM_PROPERTIES - {SHARDING_KEY, TRACE_CONTEXT, BODY_ENCODING}) | {
    *(MOVED_FROM, "TIMER_DELAY_LEVEL", "TIMER_ROLL_LABEL", "TIMER_CHECKPOINT"),
}

CheckTopic = Callable[[str], object]


class LetterAppends:
    """An Appending over the forwarder.

    Args:
        forwarder: sends append requests.
        check_topic: raises PermissionDeniedError for a topic that the caller may not append to.
    """

    def __init__(self, forwarder: AppendForwarder, check_topic: CheckTopic = lambda _: None) -> None:
        self._forwarder = forwarder
        self._check_topic = check_topic

    def append(self, broker_name: str, letters: Sequence[StoredMessage], deadline: Deadline) -> Sequence[str]:
        """See Appending."""
        messages = [new_message(letter) for letter in letters]
        for topic in {message.topic for message in messages}:
            self._check_topic(topic)
        request = pb.AppendMessagesRequest(messages=messages, broker_name=broker_name)
        waiting = _Waiting(deadline)
        self._forwarder.append_messages(request.SerializeToString(), waiting)
        return [result.offset_msg_id for result in waiting.result().results]


class _Waiting:
    """An Answerable whose caller waits in its own thread."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._outcome: Future[bytes] = Future()

    def answer(self, response: bytes) -> None:
        self._outcome.set_result(response)

    def fail(self, status: status_pb2.Status) -> None:
        self._outcome.set_exception(from_status(status))

    def is_active(self) -> bool:
        return not self._outcome.done()

    def time_remaining(self) -> float | None:
        return self._deadline.remaining_seconds()

    def result(self) -> pb.AppendMessagesResponse:
        """The response; the error of the append."""
        try:
            return pb.AppendMessagesResponse.FromString(self._outcome.result(self._deadline.remaining_seconds()))
        except FutureTimeoutError as error:
            raise DeadlineExceededError(
                "The deadline passed before the append was answered: it is not known whether the dead letters were sent."
            ) from error


def new_message(letter: StoredMessage) -> NewMessage:
    """The message that its producer sent, as a new one.

    Raises:
        InvalidMessageError: its body cannot be read as its producer gave it.
    """
    try:
        body = inflate(letter.body, letter.sys_flag, BODY_BYTES_MAX)
    except BodyNotInflatedError as error:
        raise InvalidMessageError(
            f"the dead letter {letter.offset_msg_id} has a body that cannot be unpacked: {error}", field="body"
        ) from error
    return NewMessage(
        topic=letter_of(letter).topic,
        body=body,
        tags=letter.tags,
        keys=letter.keys,
        flag=letter.flag,
        properties={name: value for name, value in letter.properties.items() if name not in LEFT_OUT},
    )


def resend(
    call: Call,
    request: pb.ResendDeadLettersRequest,
    source: DeliveringSource,
    appends: LetterAppends,
) -> pb.ResendDeadLettersResponse:
    """ResendDeadLetters; errors as `Resending.resend`."""
    question = ResendQuestion(
        request.consumer_group, filter_of(request.filter), window_of(request), request.max_messages, request.dry_run
    )

    def pull(broker_name: str, ask: consumer_pb.PullMessagesRequest, deadline: Deadline) -> Pulled:
        return pull_now(source, broker_name, ask, deadline)

    resending = Resending(call.shards, call.tokens, pull, letter_of, appends)
    resent, next_page_token = resending.resend(question, request.page_token, call.deadline)
    return pb.ResendDeadLettersResponse(
        resent=[
            pb.ResendDeadLettersResponse.Resent(
                offset_msg_id=each.letter.offset_msg_id,
                topic=each.letter.topic,
                new_offset_msg_id=each.new_offset_msg_id,
            )
            for each in resent
        ],
        next_page_token=next_page_token,
    )


def pull_now(
    source: DeliveringSource,
    broker_name: str,
    question: consumer_pb.PullMessagesRequest,
    deadline: Deadline,
) -> Pulled:
    """One pull, waited for; its errors."""
    outcome: Future[Pulled | StoreError] = Future()
    seconds = deadline.remaining_seconds()
    source.named(broker_name).pull(question, seconds, outcome.set_result)
    try:
        pulled = outcome.result(seconds + 1.0)  # the call has its own deadline; this is only the last resort
    except FutureTimeoutError as error:
        raise DeadlineExceededError("The consumer service did not answer in time.") from error
    if isinstance(pulled, StoreError):
        raise pulled
    return pulled
