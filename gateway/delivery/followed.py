"""The services of one kind of all shards; each has a thread that follows a stream of it."""

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import structlog

from store.errors import BrokerNotFoundError, ServiceUnavailableError, StoreError

# Between two attempts to follow a stream of a shard; with jitter, so that gateways do not come back together.
RECONNECT_SECONDS_FIRST = 0.1
RECONNECT_SECONDS_MAX = 2.0

_log = structlog.get_logger("reput.gateway")


class Named(Protocol):
    """A service of a shard."""

    @property
    def broker_name(self) -> str:
        """The shard's name."""


Service = TypeVar("Service", bound=Named)


class Stream(Protocol):
    """An open stream; iteration raises a StoreError when it ends, for whatever reason."""

    def __iter__(self) -> Iterator[Any]:
        """The answers, without end."""

    def cancel(self) -> None:
        """End the stream; from any thread."""


class StreamFollower:
    """Follows a stream of one shard in a thread of its own, until `stop`.

    Args:
        name: what is followed, in logs and as the thread's name.
        broker_name: the shard.
        open_stream: opens the stream.
        take: gets each answer.
        lost: called when the stream has ended.
        jitter: a random number from 0 to 1.
    """

    def __init__(
        self,
        name: str,
        broker_name: str,
        open_stream: Callable[[], Stream],
        take: Callable[[Any], object],
        lost: Callable[[], object] = lambda: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._name = name
        self._broker_name = broker_name
        self._open_stream = open_stream
        self._take = take
        self._lost = lost
        self._jitter = jitter
        self._stopping = threading.Event()
        self._stream: Stream | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name=f"{name}-{broker_name}", daemon=True).start()

    def stop(self) -> None:
        """Follow no more."""
        with self._lock:
            self._stopping.set()
            stream = self._stream
        if stream is not None:
            stream.cancel()

    def _run(self) -> None:
        pause_seconds = RECONNECT_SECONDS_FIRST
        while not self._stopping.is_set():
            try:
                for answer in self._open():
                    pause_seconds = RECONNECT_SECONDS_FIRST
                    self._take(answer)
                error: Exception | None = None
            except StoreError as store_error:
                error = store_error
            except Exception as unexpected:  # it would end the thread, and nothing would be followed any more
                error = unexpected
                _log.exception(f"delivery.{self._name}_failed", broker_name=self._broker_name)
            self._lost()
            if self._stopping.is_set():
                return
            _log.info(f"delivery.{self._name}_lost", broker_name=self._broker_name, error=str(error))
            self._stopping.wait(pause_seconds * (0.5 + self._jitter()))
            pause_seconds = min(pause_seconds * 2, RECONNECT_SECONDS_MAX)

    def _open(self) -> Stream:
        stream = self._open_stream()
        with self._lock:
            self._stream = stream
            if self._stopping.is_set():
                stream.cancel()
        return stream


class FollowedShards(Generic[Service]):
    """The services of the shards that have one; thread-safe.

    Args:
        service: its name, for errors.
        what: what a shard without it does not do, in words.
        follow: begins to follow a service.
    """

    def __init__(self, service: str, what: str, follow: Callable[[Service], StreamFollower]) -> None:
        self._service = service
        self._what = what
        self._follow = follow
        self._lock = threading.Lock()
        self._by_name: dict[str, tuple[Service, StreamFollower]] = {}
        self._is_closed = False

    def named(self, broker_name: str) -> Service:
        """The service of that shard, or the only one when the name is empty.

        Raises:
            ServiceUnavailableError: no shard has one.
            BrokerNotFoundError: no shard of that name has one.
        """
        known = self._by_name
        if not broker_name and len(known) == 1:
            return next(iter(known.values()))[0]
        if broker_name not in known:
            if not known:
                raise ServiceUnavailableError(
                    f"no shard has a {self._service} service: name one in the gateway's settings",
                    service=self._service,
                )
            raise BrokerNotFoundError(
                f"No shard that {self._what} is called {broker_name!r}; there are: {', '.join(known)}.",
                brokerName=broker_name,
                brokerNames=", ".join(known),
            )
        return known[broker_name][0]

    def all(self) -> Sequence[Service]:
        """Those of all shards."""
        return [service for service, _ in self._by_name.values()]

    def keep(self, shards: Iterable[Service]) -> None:
        """These are the shards from now on. One that is the same object as before stays as it is."""
        with self._lock:
            before = self._by_name
            kept = {}
            for service in shards:
                name = service.broker_name
                if name in before and before[name][0] is service:
                    kept[name] = before[name]
                elif not self._is_closed:
                    kept[name] = service, self._follow(service)
            self._by_name = kept
            stay = {id(follower) for _, follower in kept.values()}
            left = [follower for _, follower in before.values() if id(follower) not in stay]
        for follower in left:
            follower.stop()

    def close(self) -> None:
        """Follow no more."""
        with self._lock:
            self._is_closed = True
        self.keep(())
