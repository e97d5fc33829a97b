"""Sends the dead letters of a group to their own topics again.

Each becomes a new message with a unique key of its own, so that it is tracked apart from the one that was given up; the dead
letter stays. RocketMQ's `queryMsgById -s` sends a message with its old key. A page token holds the ends of the queues as the
first page saw them: what is given up again meanwhile is not sent again by the same run.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.delivery.queue_end import QueueEnd, is_at_end
from gateway.groups.asking import answered, ask_all, check_users_group, group_not_found, raise_failure
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import Pulled, filter_key, pulled_from_no_message, takes_all
from gateway.ports.groups import GET_OFFSETS
from gateway.ports.shard import Shard, search_offset
from gateway.ports.shards import Shards, list_built_queues
from gateway.ports.time_window import TimeWindow
from gateway.queries.page import PageTokens
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import (
    GroupNotFoundError,
    InvalidArgumentError,
    InvalidMessageError,
    QueueNotFoundError,
    StoreError,
    TopicNotFoundError,
)
from store.format.topic import dead_letter_topic_of

METHOD = "ResendDeadLetters"
COUNT_DEFAULT = 64
COUNT_MAX = 1_024
# Messages of one append: at most 1,024, and bodies of 4 MiB together.
APPEND_BODY_BYTES_MAX = 3 << 20


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: its id, when it was stored, and the topic that it goes to; empty when it does not say."""

    offset_msg_id: str
    store_time_millis: int
    topic: str


@dataclass(frozen=True, slots=True)
class Resent:
    """A dead letter, and the id of the new message; empty when it was not sent."""

    letter: Letter
    new_offset_msg_id: str = ""


class Appending(Protocol):
    """Makes new messages of dead letters and appends them."""

    def append(self, broker_name: str, letters: Sequence[StoredMessage], deadline: Deadline) -> Sequence[str]:
        """The ids of the new messages, in the same shard. InvalidMessageError: none was appended, one of them cannot be."""


@dataclass(frozen=True, slots=True)
class ResendQuestion:
    """Which dead letters, and whether only to say what would be done."""

    consumer_group: str
    filter: gateway_pb.MessageFilter
    window: TimeWindow
    max_messages: int = 0
    dry_run: bool = False


@dataclass(slots=True)
class _Queue:
    """A queue of the dead-letter topic in a shard, and what of it is still to be looked at."""

    broker_name: str
    queue_id: int
    next_offset: int
    end_offset: int


class Resending:
    """One call.

    Args:
        shards: all shards.
        tokens: seals and opens page tokens.
        pull: asks the consumer service of a shard for messages of a queue.
        letter_of: reads a dead letter.
        appending: sends; also says what cannot be sent.
        pause: waits for so many seconds.
    """

    def __init__(
        self,
        shards: Shards,
        tokens: PageTokens,
        pull: Callable[[str, consumer_pb.PullMessagesRequest, Deadline], Pulled],
        letter_of: Callable[[StoredMessage], Letter],
        appending: Appending,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._shards = shards
        self._tokens = tokens
        self._pull = pull
        self._letter_of = letter_of
        self._appending = appending
        self._pause = pause

    def resend(self, question: ResendQuestion, page_token: str, deadline: Deadline) -> tuple[list[Resent], str]:
        """One page, in each queue oldest first, and the token that goes on; an empty one at the end.

        When a dead letter cannot be sent, the page ends before it; when it is the first one, its error is raised.

        Raises:
            GroupNotFoundError: there are neither dead letters nor such a group.
            InvalidArgumentError, InvalidPageTokenError, IllegalFilterError: by field.
            StoreError: a shard did not answer; nothing was sent.
        """
        check_users_group(question.consumer_group)
        if question.max_messages < 0:
            raise InvalidArgumentError(
                f"max_messages is {question.max_messages}: it must be 0 (for {COUNT_DEFAULT}) or more.",
                field="max_messages",
            )
        wanted_count = min(question.max_messages or COUNT_DEFAULT, COUNT_MAX)
        sealed = _sealed(question)
        cursors = self._tokens.open(page_token, METHOD, sealed)
        queues = self._queues(question, cursors, deadline)
        if not takes_all(question.filter) and all(queue.next_offset >= queue.end_offset for queue in queues):
            self._check_filter(question, deadline)
        resent: list[Resent] = []
        for queue in queues:
            while queue.next_offset < queue.end_offset and len(resent) < wanted_count:
                if resent and deadline.is_near():
                    return resent, self._token(sealed, queues)
                try:
                    resent += self._some(question, queue, wanted_count - len(resent), deadline)
                except StoreError:
                    if not resent:
                        raise
                    return resent, self._token(sealed, queues)
        return resent, self._token(sealed, queues)

    def _some(self, question: ResendQuestion, queue: _Queue, count_max: int, deadline: Deadline) -> list[Resent]:
        """The next dead letters of a queue; moves its position behind them."""
        try:
            return self._next(question, queue, count_max, deadline)
        except InvalidMessageError:
            if count_max == 1:
                raise
            return self._next(question, queue, 1, deadline)  # one of them cannot be sent: the others shall be

    def _next(self, question: ResendQuestion, queue: _Queue, count_max: int, deadline: Deadline) -> list[Resent]:
        ask = consumer_pb.PullMessagesRequest(
            topic=dead_letter_topic_of(question.consumer_group),
            queue_id=queue.queue_id,
            queue_offset=queue.next_offset,
            max_messages=min(count_max, queue.end_offset - queue.next_offset),
            filter=question.filter,
            consumer_group=question.consumer_group,
            max_bytes=APPEND_BODY_BYTES_MAX,
            ignore_perm=True,
        )
        pulled = self._pulled(queue, ask, deadline)
        next_offset = pulled.answer.next_offset
        if pulled.answer.status == gateway_pb.PULL_STATUS_NO_NEW_MSG or next_offset <= queue.next_offset:
            queue.next_offset = queue.end_offset
            return []
        letters = [(message, self._letter_of(message)) for message in pulled.messages]
        end_millis = question.window.end_millis
        if end_millis is not None and any(letter.store_time_millis > end_millis for _, letter in letters):
            letters = [each for each in letters if each[1].store_time_millis <= end_millis]
        sendable = [each for each in letters if each[1].topic]
        new_ids: dict[str, str] = {}
        if sendable and not question.dry_run:
            ids = self._appending.append(queue.broker_name, [message for message, _ in sendable], deadline)
            new_ids = {letter.offset_msg_id: new_id for (_, letter), new_id in zip(sendable, ids, strict=True)}
        queue.next_offset = next_offset
        return [Resent(letter, new_ids.get(letter.offset_msg_id, "")) for _, letter in letters]

    def _pulled(self, queue: _Queue, ask: consumer_pb.PullMessagesRequest, deadline: Deadline) -> Pulled:
        """What the queue has; a consumer service that has not seen all of the log is asked again, as it passes nothing over."""
        end = QueueEnd(self._shards.named(queue.broker_name), deadline.clock)
        while True:
            try:
                pulled = self._pull(queue.broker_name, ask, deadline)
            except TopicNotFoundError as error:
                pulled = pulled_from_no_message(ask, error)
            if not is_at_end(ask, pulled) or end.is_seen_by(ask, pulled, deadline):
                return pulled
            self._pause(end.pause())

    def _queues(self, question: ResendQuestion, cursors: Mapping[str, str | int], deadline: Deadline) -> list[_Queue]:
        """The queues and what of them is left, as the token says or as they are now."""
        if cursors:
            return [_queue_of(name, str(cursor)) for name, cursor in cursors.items()]
        topic = dead_letter_topic_of(question.consumer_group)
        answers = self._shards.fan_out.ask(self._shards, lambda shard: self._ranges(shard, question, topic, deadline))
        named = [(shard.broker_name, answer) for shard, answer in zip(self._shards, answers, strict=True)]
        raise_failure(named, (), "")
        queues = [queue for _, of_shard in answered(named) for queue in of_shard]
        if not queues:
            self._require_group(question.consumer_group, deadline)
        return queues

    def _check_filter(self, question: ResendQuestion, deadline: Deadline) -> None:
        """IllegalFilterError for an expression that no pull of a dead letter would take: the service reads it first."""
        topic = dead_letter_topic_of(question.consumer_group)
        ask = consumer_pb.PullMessagesRequest(
            topic=topic,
            max_messages=1,
            filter=question.filter,
            consumer_group=question.consumer_group,
            ignore_perm=True,
        )
        with contextlib.suppress(TopicNotFoundError, QueueNotFoundError):
            self._pull(next(iter(self._shards)).broker_name, ask, deadline)

    def _ranges(self, shard: Shard, question: ResendQuestion, topic: str, deadline: Deadline) -> list[_Queue]:
        queues: list[_Queue] = []
        for each in list_built_queues(shard, topic, deadline):
            begin, begin_millis = each.min_offset, question.window.begin_millis
            if begin_millis is not None and each.max_offset > each.min_offset:
                found = search_offset(shard, topic, each.queue_id, begin_millis, gateway_pb.BOUNDARY_LOWER, deadline)
                begin = found.answer.queue_offset
            queues.append(_Queue(shard.broker_name, each.queue_id, begin, each.max_offset))
        return sorted(queues, key=lambda queue: queue.queue_id)

    def _require_group(self, consumer_group: str, deadline: Deadline) -> None:
        """GroupNotFoundError when no shard knows the group."""
        request = consumer_pb.GetOffsetsRequest(consumer_group=consumer_group)
        answers = ask_all(self._shards, GET_OFFSETS, request, deadline)
        if not answered(answers):
            raise_failure(answers, (GroupNotFoundError,), "")
            raise group_not_found(consumer_group)

    def _token(self, sealed: Mapping[str, str | int | None], queues: Sequence[_Queue]) -> str:
        if all(queue.next_offset >= queue.end_offset for queue in queues):
            return ""
        cursors = {
            f"{queue.queue_id}@{queue.broker_name}": f"{queue.next_offset}-{queue.end_offset}" for queue in queues
        }
        return self._tokens.seal(METHOD, sealed, cursors)


def _queue_of(name: str, cursor: str) -> _Queue:
    """A queue as the token has it; the token is sealed, so its form is ours."""
    queue_id, _, broker_name = name.partition("@")
    next_offset, _, end_offset = cursor.partition("-")
    return _Queue(broker_name, int(queue_id), int(next_offset), int(end_offset))


def _sealed(question: ResendQuestion) -> dict[str, str | int | None]:
    """What a token must be used with again."""
    kind, expression = filter_key(question.filter)
    return {
        "consumer_group": question.consumer_group,
        "kind": kind,
        "expression": expression,
        "begin": question.window.begin_millis,
        "end": question.window.end_millis,
        "dry_run": int(question.dry_run),
    }
