"""Commitlogs in memory, spread over as a gateway spreads, and who waits for their answers."""

import threading
import time

from hypothesis import strategies as st

from gateway.appends.routes import SHARDING_KEY, AppendRoutes
from gateway.appends.spread import AppendSpread
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.status import from_status, to_status
from store import errors
from tests.support.waiting import WAIT_SECONDS_MAX

NAMES = ("a", "b", "c")
REFUSED = b"refused"
UNKNOWN_OUTCOMES = [
    errors.ServiceUnavailableError("the connection broke"),
    errors.DeadlineExceededError("late"),
    errors.FlushFailedError("fenced"),
    errors.StoreError("who knows"),
]


class Log:
    """A commitlog in memory: bodies in the order in which they were written; one body is refused by its index."""

    def __init__(self, name, pool, jitter=None):
        self.name = name
        self.bodies = []
        self.checked_count = 0
        self.fail_with = None
        self.fails_writes_with = None
        self.on_append = lambda: None
        self._pool = pool
        self._jitter = jitter
        self._lock = threading.Lock()

    def send(self, request, deadline_seconds, caller):
        self._pool.submit(self._append, request, caller)

    def _append(self, request, caller):
        if self._jitter is not None:
            time.sleep(self._jitter())  # a commitlog that is sometimes slow: answers come in another order
        self.on_append()
        parsed = commitlog_pb.AppendMessagesRequest.FromString(request)
        failure = self.fail_with or (None if parsed.check_only else self.fails_writes_with)
        refused = next((i for i, one in enumerate(parsed.messages) if one.body == REFUSED), None)
        if failure is None and refused is not None:
            failure = errors.InvalidMessageError("a bad one", field="body", index=refused)
        if failure is not None:
            caller.fail(to_status(failure) if isinstance(failure, errors.StoreError) else failure)
            return
        if parsed.check_only:
            self.checked_count += 1
            caller.answer(b"")
            return
        with self._lock:
            begin = len(self.bodies)
            self.bodies += [one.body for one in parsed.messages]
        results = [
            message_pb2.AppendResult(unique_key=one.body.decode(), queue_offset=begin + i, broker_name=self.name)
            for i, one in enumerate(parsed.messages)
        ]
        caller.answer(commitlog_pb.AppendMessagesResponse(results=results).SerializeToString())


class Caller:
    def __init__(self):
        self.ends = []
        self._ended = threading.Event()

    def answer(self, response):
        self.ends.append(pb.AppendMessagesResponse.FromString(response).results)
        self._ended.set()

    def fail(self, status):
        self.ends.append(from_status(status))
        self._ended.set()

    def is_active(self):
        return True

    def time_remaining(self):
        return None

    def end(self):
        assert self._ended.wait(WAIT_SECONDS_MAX)
        (end,) = self.ends
        return end


def spread_over(logs, clock=lambda: 0.0):
    spread = AppendSpread(AppendRoutes(clock))
    spread.keep(logs)
    return spread


def message(body, key=None):
    properties = {SHARDING_KEY: key} if key is not None else {}
    return message_pb2.NewMessage(topic="orders", body=body, properties=properties)


def append(spread, messages, **fields):
    caller = Caller()
    request = pb.AppendMessagesRequest(messages=messages, **fields)
    spread.append(request.SerializeToString(), time.monotonic() + WAIT_SECONDS_MAX, caller)
    return caller.end()


def written(logs):
    return sorted(body for log in logs.values() for body in log.bodies)


def keyed_to_each(count=1):
    """Messages whose keys lead to every shard."""
    routes = AppendRoutes()
    routes.keep(NAMES)
    found = {}
    for number in range(1_000):
        one = message(b"m%d" % number, f"k{number}")
        (part,) = routes.parts(pb.AppendMessagesRequest(messages=[one]))
        found.setdefault(part.broker_name, []).append(one)
    return {name: ones[:count] for name, ones in found.items()}


# Requests of messages with keys or without.
requests = st.lists(st.lists(st.none() | st.sampled_from("klmnop"), min_size=1, max_size=6), min_size=1, max_size=8)
