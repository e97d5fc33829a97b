"""The room where long polls wait: which of them look when something arrives, and which may answer.

Theory of operation: polls of one shard, group, topic and filter wait together (`Queue` in polls.py), for lite topics those of
one client. What one cannot get, no other can. A poll is in one of three phases:

    add ─▶ LOOKING ── nothing ──▶ PARKED ── something arrived ──▶ LOOKING ── found ──▶ ENDED
              ▲                     │ time over, caller gone, client ended                ▲
              └── known to be empty ┘────────────────────────────────────────────────────┘

Looking is one Pop, which never waits. It begins when a poll comes, unless an earlier look found nothing and nothing has arrived
since. An arrival makes one parked poll look, not all: the next ones look when that one has found something, in growing numbers,
until one finds nothing.

Nothing is missed, because each queue counts what has arrived. A look that finds nothing says so about the arrivals before its
begin only. At all times, with `looked` as the count at the begin of the latest such look:

    a queue with parked polls and no look under way has looked == arrived, or a timer set that makes it look

A look that takes long holds nobody else up: after SLOW_LOOK_SECONDS another parked poll looks, if something has arrived. The
arrivals themselves may stand still without an error, such as of a shard that hangs: its stream says something each second, so
after SILENT_SECONDS without a word its queues look by themselves.

A poll whose caller has gone is ENDED; what its Pop still brings is refused by `found`, and the owner of the poll gives it back.
"""

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from gateway.delivery.polls import EACH_QUEUE, Arrival, FilterShares, Phase, Poll, Queue, QueueName, woken_by
from gateway.delivery.timers import Timers
from reput.consumer.v1.consumer_service_pb2 import WatchArrivalsResponse
from store.errors import ResourceBusyError

# Polls of one queue that look at the same time after an arrival: each found something means more of them.
LOOKING_COUNT_MAX = 16
# After a look that failed, the polls that are still parked look again.
RETRY_SECONDS = 1.0
# A look of a woken poll that takes longer is not waited for by the polls behind it.
SLOW_LOOK_SECONDS = 1.0
# A shard's arrivals come with a heartbeat each second; without a word for so long nothing is known of it, and its queues look
# again each time that so much has passed.
SILENT_SECONDS = 5.0
# How often both are looked for.
WATCH_SECONDS = 0.5
# For so long a look that found nothing counts, unless something arrives: a bound for the damage of an arrival that got lost.
TRUST_SECONDS = 60.0
# Queues that look when everything may have arrived, such as after a restart of the consumer service.
LOOKS_PER_SECOND = 2_000
# Queues without polls are forgotten after TRUST_SECONDS; looked for so often.
SWEEP_SECONDS = 15.0
# Queues that are remembered without polls, at most 2 KiB each; further ones, and those with a long filter, are forgotten with
# their last poll.
QUEUE_COUNT_MAX = 16_384
FILTER_CHARACTERS_MAX = 1_024
# Filters of all polls that wait: as many as 20,000 polls have of which each has 4,096 characters.
ALL_FILTERS_CHARACTERS_MAX = 20_000 * 4_096


class WaitingRoom:
    """All polls of a gateway; thread-safe.

    Args:
        timers: ends polls.
        clock: seconds, rising; that of the timers.
        filters: divides the characters of the filters of all polls; None: they are not limited.
    """

    def __init__(
        self,
        timers: Timers,
        clock: Callable[[], float] = time.monotonic,
        filters: FilterShares | None = None,
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._lock = threading.Lock()
        self._queues: dict[QueueName, Queue] = {}
        self._woken_by: dict[Arrival, dict[Queue, None]] = {}
        self._followed: set[str] = set()
        self._heard: dict[str, float] = {}  # by shard: its last word, or the last look for want of one
        self._woken: dict[
            Poll, float
        ] = {}  # woken polls that look, and since when; the one that looks for longest first
        self._is_closed = False
        self._filters = filters
        self._set_sweep()
        self._set_watch()

    @property
    def poll_count(self) -> int:
        """Polls that wait."""
        with self._lock:
            return sum(len(queue.polls) for queue in self._queues.values())

    def add(self, poll: Poll) -> None:
        """Let a poll wait; it looks first, unless it is known that there is nothing.

        Raises:
            ResourceBusyError: the filters of its client's polls are too long together.
        """
        now = self._clock()
        with self._lock:
            if not self._is_closed:
                if poll.filter_characters:
                    self._keep_filter(poll)
                queue = self._queue_of(poll.name)
                poll._queue = queue
                poll.name = queue.name  # equal: one for all that wait
                queue.polls[poll] = None
                must_look = poll.must_look or not self._is_known_empty(queue, now)
                poll._tick = self._timers.set(poll, poll.ends_at, partial(self._due, poll))
                if must_look:
                    self._begin_look(queue, poll, is_woken=False)
                else:
                    self._park(queue, poll)
            else:
                poll._phase = Phase.ENDED
                must_look = False
        if must_look:
            poll.look()
        elif poll._phase is Phase.ENDED:
            poll.end()

    def found(self, poll: Poll) -> bool:
        """The look has messages: whether the poll may answer with them. If not, they are to be given back."""
        with self._lock:
            queue = poll._queue
            is_open = self._leave(poll)
            looks: list[Poll] = []
            if self._end_look(queue, poll):
                queue.width = min(queue.width * 2, LOOKING_COUNT_MAX)
                looks = self._wake(queue, queue.width - queue.looking_count)
        self._look(looks)
        return is_open

    def found_nothing(self, poll: Poll) -> None:
        """The look has none: the poll waits on, if it may."""
        now = self._clock()
        is_over = False
        with self._lock:
            queue = poll._queue
            if self._end_look(queue, poll):
                queue.width = 1
            queue.looked = max(queue.looked, poll._began)
            queue.looked_seconds = now
            if poll._phase is Phase.LOOKING:
                is_over = now >= poll.ends_at
                if is_over:
                    self._leave(poll)
                else:
                    self._park(queue, poll)
            looks = self._wake_if_needed(queue)
        if is_over:
            poll.end()
        self._look(looks)

    def failed(self, poll: Poll) -> bool:
        """The look has failed: whether the poll may answer with the error. The others look again soon."""
        with self._lock:
            queue = poll._queue
            is_open = self._leave(poll)
            self._end_look(queue, poll)
            queue.width = 1
            if queue.parked and not queue.looking_count:
                self._set_retry(queue)
        return is_open

    def remove(self, poll: Poll) -> bool:
        """The caller has gone; whether the poll waited until now."""
        with self._lock:
            return self._leave(poll)

    def end_client(self, client_id: str, consumer_group: str) -> None:
        """A client has ended: so do its polls, at once."""
        with self._lock:
            ended = [
                poll
                for queue in self._queues.values()
                if queue.name.consumer_group == consumer_group
                for poll in queue.polls
                if poll.client_id == client_id
            ]
            ended = [poll for poll in ended if self._leave(poll)]
        for poll in ended:
            poll.end()

    def arrive(self, broker_name: str, arrivals: WatchArrivalsResponse) -> None:
        """Something may be there for groups of a shard."""
        looks: list[Poll] = []
        now = self._clock()
        with self._lock:
            self._followed.add(broker_name)
            self._heard[broker_name] = now
            if arrivals.all or arrivals.all_lite_clients:
                self._arrive_for_all(broker_name, only_lite=not arrivals.all)
            queues = {row.topic: row.queue_ids for row in arrivals.queues}
            for topic in arrivals.topics:
                looks += self._arrive_for(self._woken_by.get((broker_name, topic), ()))
                for queue_id in queues.get(topic, (EACH_QUEUE,)):
                    looks += self._arrive_for(self._woken_by.get((broker_name, topic, queue_id), ()))
            for each in arrivals.group_topics:
                looks += self._arrive_for(self._woken_by.get((broker_name, each.consumer_group, each.topic), ()))
            for one in arrivals.lite_clients:
                of_client = broker_name, one.consumer_group, one.topic, one.client_id
                looks += self._arrive_for(self._woken_by.get(of_client, ()))
        self._look(looks)

    def lose_sight(self, broker_name: str) -> None:
        """Arrivals of a shard are not known from now on, until the next ones: each poll looks when it comes."""
        with self._lock:
            self._followed.discard(broker_name)

    def close(self) -> None:
        """End all polls; later ones end at once."""
        with self._lock:
            self._is_closed = True
            ended = [poll for queue in list(self._queues.values()) for poll in list(queue.polls) if self._leave(poll)]
        for poll in ended:
            poll.end()

    # With the lock held.

    def _queue_of(self, name: QueueName) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name)
            for key in woken_by(name):
                self._woken_by.setdefault(key, {})[queue] = None
        return queue

    def _keep_filter(self, poll: Poll) -> None:
        filters = self._filters
        if filters is None:
            return
        if not filters.has_room(poll.owner, poll.filter_characters):
            raise ResourceBusyError(
                f"the filters of this client's polls that wait have {filters.held(poll.owner)} characters, which is its share "
                f"of the {filters.count_max} of all polls: use a shorter filter, or ask again later"
            )
        filters.take(poll.owner, poll.filter_characters)

    def _forget(self, queue: Queue) -> None:
        if self._queues.pop(queue.name, None) is None:
            return
        for key in woken_by(queue.name):
            queues = self._woken_by[key]
            del queues[queue]
            if not queues:
                del self._woken_by[key]

    def _is_known_empty(self, queue: Queue, now: float) -> bool:
        return (
            queue.looked == queue.arrived
            and queue.name.broker_name in self._followed
            and now - queue.looked_seconds < TRUST_SECONDS
        )

    def _begin_look(self, queue: Queue, poll: Poll, *, is_woken: bool) -> None:
        poll._phase = Phase.LOOKING
        poll._began = queue.arrived
        poll._is_woken = is_woken
        queue.looking_count += is_woken
        if is_woken:
            self._woken[poll] = self._clock()

    def _end_look(self, queue: Queue, poll: Poll) -> bool:
        """Count the end of a look; whether the poll had been woken for it."""
        was_woken, poll._is_woken = poll._is_woken, False
        if was_woken:
            queue.looking_count -= 1
            del self._woken[poll]
        return was_woken

    def _park(self, queue: Queue, poll: Poll) -> None:
        poll._phase = Phase.PARKED
        queue.parked[poll] = None

    def _leave(self, poll: Poll) -> bool:
        """Whether it was open. A look under way goes on and is counted."""
        if poll._phase is Phase.ENDED:
            return False
        poll._phase = Phase.ENDED
        if poll.filter_characters and self._filters is not None:
            self._filters.give_back(poll.owner, poll.filter_characters)
        queue = poll._queue
        queue.parked.pop(poll, None)
        del queue.polls[poll]
        self._timers.drop(poll, poll._tick)
        if not queue.polls:
            queue.idle_since = self._clock()
            if not _is_remembered(queue.name) or len(self._queues) > QUEUE_COUNT_MAX:
                self._forget(queue)
        return True

    def _wake(self, queue: Queue, count: int) -> list[Poll]:
        """The parked polls that look now, those that wait for longest first."""
        woken: list[Poll] = []
        while queue.parked and len(woken) < count:
            poll = next(iter(queue.parked))
            del queue.parked[poll]
            self._begin_look(queue, poll, is_woken=True)
            woken.append(poll)
        return woken

    def _wake_if_needed(self, queue: Queue) -> list[Poll]:
        if queue.looking_count or queue.looked >= queue.arrived:
            return []
        return self._wake(queue, 1)

    def _arrive_for(self, queues: Iterable[Queue]) -> list[Poll]:
        looks: list[Poll] = []
        for queue in queues:
            queue.arrived += 1
            looks += self._wake_if_needed(queue)
        return looks

    def _arrive_for_all(self, broker_name: str, *, only_lite: bool = False) -> None:
        """Each queue looks, or each one of a client of lite topics, but not all at the same time."""
        now = self._clock()
        queues = [
            queue
            for queue in self._queues.values()
            if queue.name.broker_name == broker_name and (queue.name.client_id or not only_lite)
        ]
        for number, queue in enumerate(queues):
            queue.arrived += 1
            if queue.parked:
                self._set_look(queue, now + number / LOOKS_PER_SECOND)

    def _set_retry(self, queue: Queue) -> None:
        if not queue.retries:
            queue.retries = True
            self._set_look(queue, self._clock() + RETRY_SECONDS)

    def _set_look(self, queue: Queue, at_seconds: float) -> None:
        self._timers.set(queue, at_seconds, partial(self._look_again, queue))

    # In the timers' thread.

    def _look_again(self, queue: Queue) -> None:
        with self._lock:
            queue.retries = False
            looks = self._wake_if_needed(queue)
        self._look(looks)

    def _due(self, poll: Poll) -> None:
        with self._lock:
            if poll._phase is Phase.ENDED:
                return
            is_looking = poll._phase is Phase.LOOKING
            if is_looking and self._clock() < poll.gives_up_at:
                poll._tick = self._timers.set(poll, poll.gives_up_at, partial(self._due, poll))
                return
            self._leave(poll)
        if is_looking:
            poll.give_up()
        else:
            poll.end()

    def _set_watch(self) -> None:
        self._timers.set(self._watch, self._clock() + WATCH_SECONDS, self._watch)

    def _watch(self) -> None:
        """Pass looks that take long, and look for shards that say nothing."""
        now = self._clock()
        looks: list[Poll] = []
        with self._lock:
            while self._woken and now - (slow := next(iter(self._woken.items())))[1] >= SLOW_LOOK_SECONDS:
                poll = slow[0]
                self._end_look(poll._queue, poll)
                looks += self._wake_if_needed(poll._queue)
            for broker_name, heard in self._heard.items():
                if now - heard >= SILENT_SECONDS:
                    self._heard[broker_name] = now
                    self._followed.discard(broker_name)
                    self._arrive_for_all(broker_name)
        self._look(looks)
        self._set_watch()

    def _set_sweep(self) -> None:
        self._timers.set(self, self._clock() + SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Forget queues that had no poll for long."""
        before = self._clock() - TRUST_SECONDS
        with self._lock:
            idle = [queue for queue in self._queues.values() if not queue.polls and queue.idle_since < before]
            for queue in idle:
                self._forget(queue)
        self._set_sweep()

    # Without the lock.

    @staticmethod
    def _look(polls: Iterable[Poll]) -> None:
        for poll in polls:
            poll.look()


def _is_remembered(name: QueueName) -> bool:
    if not name.consumer_group:
        return False
    variant = name.variant
    return not (isinstance(variant, tuple) and len(variant[1]) > FILTER_CHARACTERS_MAX)
