"""One lane: its threads, and the way of a call to one of them (services/serving/lanes.py has the table of lanes).

On its way a call with one request passes three counts. Each is divided by the rule for clients (shares.py):

    arrives ─▶ waiting ─▶ asked for its request ─▶ place and thread ─▶ answered
               64 KiB      up to 4 MiB each          │
               each        ended when others need    │ a request that is whole waits here for its turn;
                           its room                  │ clients take turns

- A call takes its place only when its request is whole. So half requests hold no place. They hold room for requests; a client
  that has less of it takes it from one that has more, after HALF_REQUEST_SECONDS. Half of the room is only for clients whose
  last request came whole, so they wait for nobody else's half ones.
- A call that finds no waiting room takes it from the newest call of the client that has most, unless that is its own.
- A stream of requests takes its place and thread at its beginning. In a lane without room, the append stream that has been idle
  for longest, of the client that has most, is ended with ResourceBusyError: its producer opens another for its next message.
- A full lane first ends the call that has waited longest for its own caller, if that is more than 5 s (stall_watch.py). A call
  that then finds no room is refused with ResourceBusyError (RESOURCE_EXHAUSTED with RetryInfo).

A lane is an executor. gRPC takes the executor of a method from an attribute of its handler, and submits from one thread.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent import futures
from functools import partial
from typing import Any, TypeVar

import structlog

from services import status
from services.serving.admission.callers import Callers, WorkingFor, note_in_context
from services.serving.admission.shares import Client, FairQueue, Shares
from services.serving.admission.untaken import UntakenAnswers
from services.serving.calls.call_end import as_store_error
from services.serving.calls.unary_call import UnaryCall
from services.serving.stall_watch import REQUEST_SECONDS_MAX, StallWatch
from store.errors import ResourceBusyError

# Requests that arrive at the same time, as a part of the places: each may have 4 MiB.
ASKED_DIVISOR = 2
ASKED_COUNT_MIN = 8
# In lanes where no call waits for a place: calls that wait to be asked for their request, a quarter of a second at most.
UNASKED_COUNT_MAX = 64
# A caller that has not taken an answer for so long loses its place to a call that needs it.
EVICT_SECONDS = 5.0
# A request that has not come whole for so long gives its room to a client that has less. Usual requests come with their call.
HALF_REQUEST_SECONDS = 0.25
# An append stream without an unanswered request for so long gives its place to a client that needs it.
IDLE_STREAM_SECONDS = 2.0
# Clients that are remembered because their last request came whole; 100 bytes each.
KNOWN_CLIENT_COUNT_MAX = 16_384
# In lanes without waiting room: threads for calls that got the place of a call that is still ending.
SPARE_COUNT = 4

Result = TypeVar("Result")
# gRPC wants a future for each call and looks only at whether it is done. Our unary calls signal their end elsewhere.
UNDER_WAY: futures.Future[Any] = futures.Future()
UNDER_WAY.set_result(None)

_log = structlog.get_logger("reput.rpc")


class Lane(futures.ThreadPoolExecutor):
    """The threads of one kind of call.

    Args:
        name: stands in errors, logs and metrics.
        place_count: calls worked on at the same time.
        waiting_count_max: calls that may wait until they are asked for their request.
        watch: knows which calls wait for their callers.
        callers: finds the client of a call.
        untaken: counts answers, in a lane of calls with one answer; None: nothing is counted.
        asked_count: requests that arrive at the same time; None: half of the places.
        unasked_count: calls that wait to be asked for their request, in a lane without waiting room.

    Attributes:
        callers: see above.
        refused_count: calls refused so far.
        note_failed: called with the method and the google.rpc.Code of a call that ended before its handler.
        elsewhere: how many calls of its kind other threads serve: services/local/server.py.
    """

    def __init__(
        self,
        name: str,
        place_count: int,
        waiting_count_max: int,
        watch: StallWatch,
        callers: Callers | None = None,
        untaken: UntakenAnswers | None = None,
        *,
        asked_count: int | None = None,
        unasked_count: int = UNASKED_COUNT_MAX,
    ) -> None:
        super().__init__(place_count + (0 if waiting_count_max else SPARE_COUNT), thread_name_prefix=f"rpc-{name}")
        self.name = name
        self.refused_count = 0
        self.note_failed: Callable[[str, int], None] = lambda _method, _code: None
        self.elsewhere: Callable[[], int] = lambda: 0
        self._place_count = place_count
        self._waiting_count_max = waiting_count_max
        self._watch = watch
        self.callers = callers or Callers()
        self._untaken = untaken
        self._lock = threading.Lock()
        self._here = threading.local()
        self._places = Shares(place_count)
        self._asked_room = Shares(asked_count or max(ASKED_COUNT_MIN, place_count // ASKED_DIVISOR))
        self._waiting_room = Shares(waiting_count_max or unasked_count)
        self._waiting: FairQueue[UnaryCall] = FairQueue()
        self._asked: dict[UnaryCall, float] = {}  # since when, the oldest first
        self._whole: FairQueue[tuple[UnaryCall, bytes | None]] = FairQueue()
        self._known: dict[str, None] = {}
        self._ending_count = 0  # calls that were ended to make room and still have their threads

    @property
    def call_count(self) -> int:
        """Calls that run or wait now."""
        return self._places.count + self._asked_room.count + self._waiting_room.count + self.elsewhere()

    def note_ended(self, method: str, code: int, *, is_stalled: bool) -> None:
        """Count one of the calls elsewhere, which has ended with that google.rpc.Code."""
        self.note_failed(method, code)
        if is_stalled:
            self._watch.note_ended(self.name, 1)

    def refusal(self) -> ResourceBusyError:
        """The error for a refused call."""
        return ResourceBusyError(
            f"this client's share of {self._place_count} {self.name} is in use, or all of them are: try again later",
            lane=self.name,
            countMax=self._place_count,
        )

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> futures.Future[Result]:
        """See Executor. A call of one request gets a thread when its request is whole, a stream gets it now."""
        call = UnaryCall.of(fn, args)
        if call is None:
            return super().submit(fn, *args, **kwargs)
        try:
            call.client = self.callers.of(call.context, _method_of(call))
            if getattr(call.behaviour, "has_one_request", False):
                self._enter(call)
            else:
                self._begin_stream(call)
        except Exception as error:  # it would end the thread that polls for all calls
            self._fail(call, error)
        return UNDER_WAY

    def _fail(self, call: UnaryCall, error: Exception) -> None:
        """End a call that has not reached its handler."""
        method = _method_of(call)
        known = as_store_error(error, method)
        ending = status.to_status(known)
        refused = getattr(call.behaviour, "refused", None)
        if refused is not None and isinstance(known, ResourceBusyError):
            call.answer(refused(known))
        else:
            call.fail(ending)
        self.note_failed(method, ending.code)

    # Calls of one request.

    def _enter(self, call: UnaryCall) -> None:
        client = call.client
        refused: UnaryCall | None = None
        with self._lock:
            is_asked = self._may_ask(client, call)
            if is_asked:
                self._note_asked(call)
            else:
                if not self._waiting_room.has_room(client):
                    self.refused_count += 1
                    refused = self._take_waiting_of_another(client)
                self._waiting_room.take(client)
                # Its request is not asked for yet, so it costs no more than a window.
                self._waiting.append(client, call)
        if is_asked:
            self._receive(call)
            return
        if refused is not None:
            self._fail(refused, self.refusal())
        with self._lock:
            clients_without_room = [] if self._has_asked_room(client) else [client]
        self._end_half_requests(clients_without_room)
        self._go_on()  # room that was given back since the look above

    def _take_waiting_of_another(self, client: Client) -> UnaryCall:
        """The newest waiting call of the client that has most, if that is still more without it; with the lock held.

        Raises:
            ResourceBusyError: no client and no address has so many.
        """
        room = self._waiting_room
        most = max(self._waiting.clients(), key=room.weight, default=client)
        of_address, of_name = room.weight(client)
        has_more = room.held(most) > of_name + 1
        if not has_more and (most.address == client.address or room.weight(most)[0] <= of_address + 1):
            raise self.refusal()
        room.give_back(most)
        return self._waiting.pop_newest(most)

    def _may_ask(self, client: Client, call: UnaryCall) -> bool:
        """Whether there is room for a request of the client, and for its answer; with the lock held."""
        return self._has_asked_room(client) and self._has_answer_room(client, call)

    def _has_asked_room(self, client: Client) -> bool:
        room = self._asked_room
        return room.has_room(client) and (client.name in self._known or len(self._asked) * 2 < room.count_max)

    def _has_answer_room(self, client: Client, call: UnaryCall) -> bool:
        return self._untaken is None or self._untaken.has_room(client, _method_of(call))

    def _note_asked(self, call: UnaryCall) -> None:
        self._asked_room.take(call.client)
        self._asked[call] = time.monotonic()

    def _receive(self, call: UnaryCall) -> None:
        call.receive(lambda request: self._arrived(call, request))

    def _arrived(self, call: UnaryCall, request: bytes | None) -> None:
        client = call.client
        with self._lock:
            if self._asked.pop(call, None) is None:
                return  # ended because it was a half request
            if request is not None and client.name not in self._known:
                self._remember(client)
            has_place = self._may_work(client, (call, request))
            if has_place:
                self._places.take(client)
            if has_place or not self._waiting_count_max:
                self._asked_room.give_back(client)
            else:
                self._whole.append(client, (call, request))
        if has_place:
            self._work(call, request)
        elif not self._waiting_count_max:
            self._work_instead_of_another(call, lambda: self._work(call, request))
        if self._whole.count or self._waiting.count:
            self._go_on()

    def _may_work(self, client: Client, whole: tuple[UnaryCall, bytes | None]) -> bool:
        return self._places.has_room(client) and self._has_answer_room(client, whole[0])

    def _remember(self, client: Client) -> None:
        self._known[client.name] = None
        if len(self._known) > KNOWN_CLIENT_COUNT_MAX:
            del self._known[next(iter(self._known))]

    def _work(self, call: UnaryCall, request: bytes | None) -> None:
        expected_bytes = 0 if self._untaken is None else self._untaken.expect(call.client, _method_of(call))
        if call.behaviour.take is not None:
            call.ended = partial(self._answered, call, expected_bytes)
            try:
                call.behaviour.take(request, call)
            except Exception as error:
                self._fail(call, error)
        elif not self._has_ended_at_once(call, request, expected_bytes):
            self._in_thread(call, expected_bytes, call.in_thread(request))

    def _has_ended_at_once(self, call: UnaryCall, request: bytes | None, expected_bytes: int) -> bool:
        """Whether the call was answered in this thread (services/serving/calls/at_once.py)."""
        at_once = getattr(call.behaviour, "at_once", None)
        # A call that had to wait begins in whichever thread has made room, which others may wait for (`_go_on`).
        if at_once is None or request is None or getattr(self._here, "is_going_on", False):
            return False
        before, call.ended = call.ended, partial(self._answered, call, expected_bytes)
        if at_once(request, call):
            return True
        call.ended = before
        return False

    def _in_thread(self, call: UnaryCall, expected_bytes: int, work: tuple[Any, ...]) -> None:
        turns = [call]  # taken by the thread, or here when there is none: the executor keeps work that got no thread
        try:
            super().submit(self._run, turns, expected_bytes, *work)
        except RuntimeError:
            _log.exception("rpc.failed")
            with contextlib.suppress(IndexError):
                turns.pop()
                self._give_back(call, expected_bytes)
                self._fail(call, _no_thread(self.name))

    def _run(self, turns: list[UnaryCall], expected_bytes: int, fn: Callable[..., None], *args: Any) -> None:
        try:
            call = turns.pop()
        except IndexError:
            return
        try:
            with WorkingFor(call.client):
                fn(note_in_context, call.client)  # gRPC's function that runs another one in the context of the call
                fn(*args)
        finally:
            self._give_back(call, expected_bytes)

    def _give_back(self, call: UnaryCall, expected_bytes: int) -> None:
        if self._untaken is not None and expected_bytes:
            self._untaken.release(call.client, expected_bytes, _method_of(call))
        self._leave(call.client)

    def _answered(self, call: UnaryCall, expected_bytes: int) -> None:
        if self._untaken is not None:
            self._untaken.add(call.client, call.context, call.answer_bytes, _method_of(call), expected_bytes)
        self._leave(call.client)

    def _leave(self, client: Client) -> None:
        with self._lock:
            self._places.give_back(client)
            # Another call may have left instead; then one stalled call too many is ended, never one too few.
            self._ending_count = max(0, self._ending_count - 1)
        if self._whole.count or self._waiting.count:
            self._go_on()

    def _go_on(self) -> None:
        """Begin what has room now, one after the other: a step that ends at once must not begin the next one inside."""
        if getattr(self._here, "is_going_on", False):
            return
        self._here.is_going_on = True
        try:
            while (step := self._next_step()) is not None:
                step()
        finally:
            self._here.is_going_on = False

    def _next_step(self) -> Callable[[], None] | None:
        with self._lock:
            while (
                self._whole.count
                and self._places.count < self._places.count_max
                and (whole := self._whole.pop(self._may_work)) is not None
            ):
                client, (call, request) = whole
                self._asked_room.give_back(client)
                if call.is_active():
                    self._places.take(client)
                    return partial(self._work, call, request)
            while (
                self._waiting.count
                and self._asked_room.count < self._asked_room.count_max
                and (waiting := self._waiting.pop(self._may_ask)) is not None
            ):
                client, call = waiting
                self._waiting_room.give_back(client)
                if call.is_active():
                    self._note_asked(call)
                    return partial(self._receive, call)
        return None

    # Calls with a stream of requests.

    def _begin_stream(self, call: UnaryCall) -> None:
        with self._lock:
            has_room = self._places.has_room(call.client)
            if has_room:
                self._places.take(call.client)
        if has_room:
            self._in_thread(call, 0, call.as_stream())
        else:
            self._work_instead_of_another(call, lambda: self._in_thread(call, 0, call.as_stream()))

    def _work_instead_of_another(self, call: UnaryCall, work: Callable[[], None]) -> None:
        """Work on the call in the place of one that is ended for it; refuse it when there is none."""
        client = call.client
        with self._lock:
            has_thread = self._places.count < self._place_count + SPARE_COUNT
        if has_thread and (self._end_idle(client) or self._end_longest()):
            with self._lock:
                self._places.take(client)
            work()
            return
        self.refused_count += 1
        self._fail(call, self.refusal())

    # Room.

    def go_on(self) -> None:
        """Begin what waits and has room; there may be more than before."""
        if self._whole.count or self._waiting.count:
            self._go_on()

    def make_room(self) -> None:
        """End what others need the room of; called regularly."""
        with self._lock:
            for client, _ in self._whole.drop(lambda whole: not whole[0].is_active()):
                self._asked_room.give_back(client)
            for client, _ in self._waiting.drop(lambda call: not call.is_active()):
                self._waiting_room.give_back(client)
            waiting = self._waiting.heads()
            clients_without_room = [client for client, _ in waiting if not self._has_asked_room(client)]
            waiting += [(client, call) for client, (call, _) in self._whole.heads()]
        if self._untaken is not None:
            self._untaken.end_some((client, _method_of(call)) for client, call in waiting)
        self._end_half_requests(clients_without_room)
        for _ in range(self._whole.count - self._ending_count):
            if not self._end_longest():
                break
        self._go_on()

    def _end_half_requests(self, clients_without_room: list[Client]) -> None:
        """End half requests that are too old, or whose room another client needs: one for each such client.

        Args:
            clients_without_room: clients that wait for room for a request.
        """
        now = time.monotonic()
        ended: list[tuple[UnaryCall, float]] = []
        with self._lock:
            room = self._asked_room
            least = min(clients_without_room, key=room.weight, default=None)
            for call, since in list(self._asked.items()):
                seconds = now - since
                if seconds <= HALF_REQUEST_SECONDS:
                    break
                client = call.client
                is_needed = len(ended) < sum(each != client for each in clients_without_room)
                has_more = least is not None and room.weight(client) > room.weight(least)
                if seconds > REQUEST_SECONDS_MAX or (is_needed and (has_more or seconds > EVICT_SECONDS)):
                    ended.append((call, seconds))
                    del self._asked[call]
                    room.give_back(client)
                    self._known.pop(client.name, None)
            self.refused_count += len(ended)
        if not ended:
            return
        self._watch.note_ended(self.name, len(ended))
        oldest, seconds = ended[0]
        _log.warning(
            "rpc.half_request", lane=self.name, count=len(ended), peer=oldest.peer(), seconds=round(seconds, 1)
        )
        for call, seconds in ended:
            self._fail(call, _half_request(self.name, seconds))
        self._go_on()

    def _end_idle(self, newcomer: Client) -> bool:
        return self._watch.end_idle(self.name, IDLE_STREAM_SECONDS, newcomer, self._places, self.refusal())

    def _end_longest(self) -> bool:
        if not self._watch.end_longest(self.name, EVICT_SECONDS):
            return False
        with self._lock:
            self._ending_count += 1
        return True


def _method_of(call: UnaryCall) -> str:
    return getattr(call.behaviour, "method", "")


def _no_thread(lane: str) -> ResourceBusyError:
    return ResourceBusyError(
        f"no thread could be started for {lane}: raise the limit of threads, or try later", lane=lane
    )


def _half_request(lane: str, seconds: float) -> ResourceBusyError:
    return ResourceBusyError(
        f"the request had not arrived whole after {seconds:.1f} s, and its room was needed: send it at once, or later",
        lane=lane,
    )
