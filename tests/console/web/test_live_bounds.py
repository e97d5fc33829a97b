"""Live tails of a store that does not answer whole, is busy, or has more queues than a look has time for."""

import json
from typing import Any

import pytest
from google.rpc import status_pb2

from console.calls import CallContext, Calls
from console.pages.reports import Reports
from console.web import live
from console.web.app import ConsoleApp, ConsoleSource
from console.web.live import LOOK_MILLIS_MAX, QUEUE_COUNT_MAX, Look, TailPosition, look
from console.web.request_guard import RequestGuard
from console.web.sign_in import NoSignIn
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import ResourceBusyError, StoreError
from tests.console.asking import Browser
from tests.console.web.test_live import events_of


class Queues:
    """A gateway of one topic whose queues are numbers alone; the clock moves with what it is asked.

    Attributes:
        ends: behind the last message of each queue; the first is 0.
        down: shards that do not answer.
        failing: queues that fail, and how.
        asked: queues that were read, in order.
        searched_millis: time that each search was given.
        seconds: of the clock.
        read_seconds: that reading a queue takes.
    """

    def __init__(self, ends: dict[tuple[str, int], int]) -> None:
        self.ends = ends
        self.down: set[str] = set()
        self.failing: dict[tuple[str, int], StoreError] = {}
        self.asked: list[tuple[str, int]] = []
        self.searched_millis: list[int] = []
        self.seconds = 0.0
        self.read_seconds = 0.0

    def look(self, position: TailPosition, tags: tuple[str, ...] = ()) -> Look:
        return look(Calls(self, CallContext(5.0, clock=lambda: self.seconds)), "T", position, tags)

    def ListTopics(self, _request: Any, _context: Any) -> pb.ListTopicsResponse:
        answer = pb.ListTopicsResponse(completeness=message_pb2.COMPLETENESS_COMPLETE)
        topic = answer.topics.add(topic="T")
        for (name, queue_id), end in self.ends.items():
            if name not in self.down:
                topic.queues.add(broker_name=name, queue_id=queue_id, max_offset=end)
        for name in sorted(self.down):
            answer.completeness = message_pb2.COMPLETENESS_PARTIAL
            answer.shards.add(broker_name=name, error=status_pb2.Status(code=14, message="down"))
        return answer

    def QueryMessageByOffset(self, request: Any, _context: Any) -> pb.QueryMessageByOffsetResponse:
        end = self._read(request)
        begin, end = request.queue_offset, min(end, request.queue_offset + request.page_size)
        answer = pb.QueryMessageByOffsetResponse(next_queue_offset=end)
        self._add(answer, request, begin, end)
        return answer

    def SearchMessages(self, request: Any, _context: Any) -> pb.SearchMessagesResponse:
        self.searched_millis.append(request.max_millis)
        end = self._read(request)
        answer = pb.SearchMessagesResponse()
        answer.scanned_ranges.add(begin_offset=request.begin_queue_offset, end_offset=end)
        self._add(answer, request, request.begin_queue_offset, end)
        return answer

    def _read(self, request: Any) -> int:
        queue = (request.broker_name, request.queue_id)
        self.asked.append(queue)
        self.seconds += self.read_seconds
        if queue in self.failing:
            raise self.failing[queue]
        return self.ends[queue]

    @staticmethod
    def _add(answer: Any, request: Any, begin: int, end: int) -> None:
        for offset in range(begin, end):
            answer.messages.add(broker_name=request.broker_name, queue_id=request.queue_id, queue_offset=offset)


def seen(found: Look) -> list[tuple[str, int, int]]:
    return [(message.broker_name, message.queue_id, message.queue_offset) for message in found.messages]


@pytest.mark.parametrize("tags", [(), ("x",)])
def test_a_shard_that_came_back_had_its_old_messages_shown_as_new(tags) -> None:
    queues, position = Queues({("a", 0): 10, ("b", 0): 1_000_000}), TailPosition()
    queues.down = {"b"}
    first = queues.look(position, tags)
    queues.down = set()
    second = queues.look(position, tags)
    queues.ends["b", 0] += 2

    assert (seen(first), first.missing) == ([], ("b",))
    assert (seen(second), second.skipped_count, second.passed_count, second.missing) == ([], 0, 0, ())
    assert seen(queues.look(position, tags)) == [("b", 0, 1_000_000), ("b", 0, 1_000_001)]


def test_a_shard_that_was_known_and_comes_back_goes_on_where_it_was() -> None:
    queues, position = Queues({("a", 0): 10, ("b", 0): 10}), TailPosition()
    queues.look(position)
    queues.down = {"b"}
    queues.look(position)
    queues.down, queues.ends["b", 0] = set(), 11

    assert seen(queues.look(position)) == [("b", 0, 10)]


def test_queues_that_are_not_followed_were_not_spoken_of() -> None:
    queues, position = Queues({("a", number): 5 for number in range(QUEUE_COUNT_MAX + 3)}), TailPosition()

    assert queues.look(position).unfollowed_count == 3
    # Whichever come first now: the same are followed, and no others with what they had.
    queues.ends = {("a", number): 6 for number in reversed(range(QUEUE_COUNT_MAX + 3))}
    found = [queues.look(position) for _ in range(3)]
    assert {queue for look in found for queue in seen(look)} <= {("a", number, 5) for number in range(QUEUE_COUNT_MAX)}
    assert len(position.next_offsets) == QUEUE_COUNT_MAX


@pytest.mark.parametrize("tags", [(), ("x",)])
def test_one_busy_queue_threw_the_whole_look_away(tags) -> None:
    queues, position = Queues({("a", number): 0 for number in range(4)}), TailPosition()
    queues.look(position, tags)
    queues.ends = dict.fromkeys(queues.ends, 1)
    queues.failing = {("a", 2): ResourceBusyError("busy")}

    assert seen(queues.look(position, tags)) == [("a", 0, 0), ("a", 1, 0)]
    assert position.next_offsets["a", 2] == position.next_offsets["a", 3] == 0
    with pytest.raises(ResourceBusyError):
        queues.look(position, tags)  # it is the first now: what fails for ever is said
    queues.failing = {}
    assert seen(queues.look(position, tags)) == [("a", 2, 0), ("a", 3, 0)]


def test_a_look_with_tags_held_a_thread_for_seconds_and_its_last_queues_never_came() -> None:
    queues, position = Queues({("a", number): 0 for number in range(QUEUE_COUNT_MAX)}), TailPosition()
    queues.look(position, ("x",))
    queues.ends = dict.fromkeys(queues.ends, 1)
    queues.read_seconds = 0.05
    shown: list[tuple[str, int, int]] = []
    for _ in range(8):
        begin_seconds = queues.seconds
        shown += seen(queues.look(position, ("x",)))
        assert queues.seconds - begin_seconds < LOOK_MILLIS_MAX / 1000 + 2 * queues.read_seconds
    while found := seen(queues.look(position, ("x",))):
        shown += found

    assert sorted(shown) == [("a", number, 0) for number in range(QUEUE_COUNT_MAX)]
    assert queues.searched_millis[0] == LOOK_MILLIS_MAX // QUEUE_COUNT_MAX


def test_busy_first_queues_do_not_keep_the_last_ones_from_their_turn() -> None:
    queues, position = Queues({("a", number): 0 for number in range(4)}), TailPosition()
    queues.look(position)
    queues.read_seconds = 0.5
    for _ in range(4):  # all have something at each look, which has time for two
        queues.ends = {queue: end + 1 for queue, end in queues.ends.items()}
        queues.look(position)

    assert set(queues.asked) == set(queues.ends)


def test_a_stream_says_what_is_missing_each_time_that_it_changes(monkeypatch) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.0)
    ends = {("a", number): 0 for number in range(QUEUE_COUNT_MAX + 1)} | {("b", 0): 0}
    queues = Queues(ends)
    states = iter([set(), {"b"}, {"b"}, None, None, set()])

    class Changing(Queues):
        def ListTopics(self, request: Any, context: Any) -> Any:
            queues.down = next(states, "end")
            if queues.down == "end":
                raise StoreError("the end")
            if queues.down is None:
                raise ResourceBusyError("busy")
            return queues.ListTopics(request, context)

    app = ConsoleApp(ConsoleSource(Changing(ends), NoSignIn(), RequestGuard(), Reports(None)))
    try:
        events = events_of(Browser(app).get("/topics/T/tail").text)
    finally:
        app.close()

    said = [json.loads(data) for name, _, data in events if name == "partial"]
    nothing = {"shards": [], "unfollowedQueueCount": 2, "busy": False}
    missing = {"shards": ["b"], "unfollowedQueueCount": 1, "busy": False}
    assert said == [nothing, missing, missing | {"busy": True}, nothing]
    assert events[-1] == ("end", "", "the end")


def test_a_stream_that_is_busy_for_long_was_silent(monkeypatch) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(live, "STREAM_SECONDS_MAX", 0.3)
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.0)

    class Busy(Queues):
        def ListTopics(self, request: Any, context: Any) -> Any:
            raise ResourceBusyError("busy")

    app = ConsoleApp(ConsoleSource(Busy({}), NoSignIn(), RequestGuard(), Reports(None)))
    try:
        text = Browser(app).get("/topics/T/tail").text
    finally:
        app.close()

    assert [name for name, _, _ in events_of(text)] == ["partial", "end"]
    assert ": here\n\n" in text
