"""TLS channels that follow their certificate: when the files have changed, new calls use a new channel.

A gRPC channel keeps the certificate that it was made with. So these classes open another channel when there are other bytes
(each call checks, at most once in LOOK_SECONDS) and close the former one after its last call: no call is cut off. `close` ends
the calls of all channels, also of former ones.

The clients use both, and our services the first, with files of their own (services/serving/tls.py).
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import grpc
import grpc.aio

LOOK_SECONDS = 10.0
# For asyncio: how long the calls of a former channel may last; a consumer's stream lasts as long as the consumer.
RETIRED_SECONDS_MAX = 30 * 86_400.0

_AnyChannel = TypeVar("_AnyChannel", bound="ReloadingChannel | AsyncReloadingChannel")
_AnyGeneration = TypeVar("_AnyGeneration", bound="_Generation | _AsyncGeneration")


class Identity(Protocol):
    """Files that change."""

    def current(self) -> Any:
        """Their contents now; the same object as before when nothing has changed."""
        ...


class _Generation:
    """A channel and the count of its calls under way."""

    def __init__(self, channel: grpc.Channel, pem: Any) -> None:
        self.channel = channel
        self.pem = pem
        self._lock = threading.Lock()
        self._call_count = 0
        self._is_retired = False

    def enter(self) -> bool:
        """Count a call; False when the channel is closed or will be."""
        with self._lock:
            if self._is_retired:
                return False
            self._call_count += 1
            return True

    def leave(self) -> None:
        """A call has ended."""
        with self._lock:
            self._call_count -= 1
            is_over = self._is_retired and self._call_count == 0
        if is_over:
            # In its own thread: gRPC reports the end of a call in a thread of the channel.
            threading.Thread(target=self.channel.close, name="tls-channel-close", daemon=True).start()

    def retire(self) -> None:
        """Close it after its last call."""
        with self._lock:
            self._is_retired = True
        if self.is_over():
            self.channel.close()

    def is_over(self) -> bool:
        """Whether it is retired and has no calls: it is closed or about to be."""
        with self._lock:
            return self._is_retired and self._call_count == 0


class ReloadingChannel(grpc.Channel):
    """A channel that reopens itself with a new certificate.

    Args:
        identity: the certificate.
        make: makes a channel with these bytes.
        clock: seconds, rising.
    """

    def __init__(
        self,
        identity: Identity,
        make: Callable[[Any], grpc.Channel],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity = identity
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._is_closed = False
        pem = identity.current()
        self._generation = _Generation(make(pem), pem)
        self._former: list[_Generation] = []  # those that may have calls
        self._look_seconds = clock() + LOOK_SECONDS

    def entered(self) -> _Generation:
        """The channel for a new call; the call is counted."""
        while True:
            generation = self._current()
            if generation.enter():
                return generation
            if self._is_closed:
                raise ValueError("Cannot invoke RPC on closed channel!")  # gRPC's own words

    def _current(self) -> _Generation:
        if self._clock() < self._look_seconds:
            return self._generation
        former = None
        with self._lock:
            self._look_seconds = self._clock() + LOOK_SECONDS
            pem = self._identity.current()
            if pem is not self._generation.pem and not self._is_closed:
                former, self._generation = self._generation, _Generation(self._make(pem), pem)
                self._former = [each for each in self._former if not each.is_over()] + [former]
        if former is not None:
            former.retire()
        return self._generation

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.Channel."""
        return _UnaryAnswer(self, "unary_unary", method, args, kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.Channel."""
        return _StreamAnswer(self, "unary_stream", method, args, kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.Channel."""
        return _UnaryAnswer(self, "stream_unary", method, args, kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.Channel."""
        return _StreamAnswer(self, "stream_stream", method, args, kwargs)

    def subscribe(self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool = False) -> None:
        """See grpc.Channel; for the current channel."""
        self._generation.channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """See grpc.Channel."""
        self._generation.channel.unsubscribe(callback)

    def close(self) -> None:
        """Close; calls under way end, also those of former channels."""
        with self._lock:
            self._is_closed = True
            generations = [*self._former, self._generation]
        for generation in generations:
            generation.retire()
            generation.channel.close()

    def __enter__(self) -> "ReloadingChannel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Method(Generic[_AnyChannel, _AnyGeneration]):
    """A method of the channel that is there when it is called; with asyncio or without."""

    def __init__(
        self, channel: _AnyChannel, kind: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._channel = channel
        self._kind = kind
        self._method = method
        self._args = args
        self._kwargs = kwargs
        self._made: tuple[_AnyGeneration, Any] | None = None

    def _callable_of(self, generation: _AnyGeneration) -> Any:
        made = self._made
        if made is not None and made[0] is generation:
            return made[1]
        callable_ = getattr(generation.channel, self._kind)(self._method, *self._args, **self._kwargs)
        self._made = generation, callable_
        return callable_


class _UnaryAnswer(_Method[ReloadingChannel, _Generation]):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        generation = self._channel.entered()
        try:
            return self._callable_of(generation)(*args, **kwargs)
        finally:
            generation.leave()

    def with_call(self, *args: Any, **kwargs: Any) -> Any:
        generation = self._channel.entered()
        try:
            return self._callable_of(generation).with_call(*args, **kwargs)
        finally:
            generation.leave()

    def future(self, *args: Any, **kwargs: Any) -> Any:
        generation = self._channel.entered()
        try:
            call = self._callable_of(generation).future(*args, **kwargs)
        except BaseException:
            generation.leave()
            raise
        call.add_done_callback(lambda _: generation.leave())
        return call


class _StreamAnswer(_Method[ReloadingChannel, _Generation]):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        generation = self._channel.entered()
        try:
            call = self._callable_of(generation)(*args, **kwargs)
        except BaseException:
            generation.leave()
            raise
        if not call.add_callback(generation.leave):
            generation.leave()  # it has ended already
        return call


class _AsyncGeneration:
    """The same for asyncio.

    gRPC's own `close(grace)` cannot wait for the last call: when that wait is cancelled, another `close` does nothing.
    """

    def __init__(self, channel: grpc.aio.Channel, pem: Any) -> None:
        self.channel = channel
        self.pem = pem
        self._call_count = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def enter(self, call: Any) -> None:
        """Count a call until it ends."""
        self._call_count += 1
        self._is_idle.clear()
        call.add_done_callback(self._leave)

    def _leave(self, _call: Any) -> None:
        self._call_count -= 1
        if self._call_count == 0:
            self._is_idle.set()

    async def retire(self) -> None:
        """Close it after its last call."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETIRED_SECONDS_MAX):
                await self._is_idle.wait()
        await self.channel.close()


class AsyncReloadingChannel(grpc.aio.Channel):
    """The same for asyncio.

    Args:
        identity: the certificate.
        make: makes a channel with these bytes.
        clock: seconds, rising.
    """

    def __init__(
        self,
        identity: Identity,
        make: Callable[[Any], grpc.aio.Channel],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity = identity
        self._make = make
        self._clock = clock
        pem = identity.current()
        self._generation = _AsyncGeneration(make(pem), pem)
        self._former: dict[asyncio.Task[None], _AsyncGeneration] = {}
        self._is_closed = False
        self._look_seconds = clock() + LOOK_SECONDS

    def current(self) -> _AsyncGeneration:
        """The channel for a new call."""
        if self._clock() >= self._look_seconds and not self._is_closed:
            self._look_seconds = self._clock() + LOOK_SECONDS
            pem = self._identity.current()
            if pem is not self._generation.pem:
                former, self._generation = self._generation, _AsyncGeneration(self._make(pem), pem)
                task = asyncio.get_running_loop().create_task(former.retire())
                self._former[task] = former
                task.add_done_callback(self._former.pop)
        return self._generation

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _AsyncMethod(self, "unary_unary", method, args, kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _AsyncMethod(self, "unary_stream", method, args, kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _AsyncMethod(self, "stream_unary", method, args, kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See grpc.aio.Channel."""
        return _AsyncMethod(self, "stream_stream", method, args, kwargs)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """See grpc.aio.Channel; of the current channel."""
        return self._generation.channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """See grpc.aio.Channel; of the current channel."""
        await self._generation.channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """See grpc.aio.Channel; of the current channel."""
        await self._generation.channel.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        """Close; calls under way end after `grace` seconds, also those of former channels."""
        self._is_closed = True
        former = dict(self._former)
        for task in former:
            task.cancel()
        await asyncio.gather(*former, return_exceptions=True)
        generations = (*former.values(), self._generation)
        await asyncio.gather(*(generation.channel.close(grace) for generation in generations))

    async def __aenter__(self) -> "AsyncReloadingChannel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _AsyncMethod(_Method[AsyncReloadingChannel, _AsyncGeneration]):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        generation = self._channel.current()
        call = self._callable_of(generation)(*args, **kwargs)
        generation.enter(call)
        return call
