"""Channels that reopen themselves, on loopback: when the calls of former channels end, and when those channels are closed."""

import asyncio
import threading
from collections.abc import Iterator

import grpc
import grpc.aio
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput_client import reloading_channel
from reput_client.reloading_channel import AsyncReloadingChannel, ReloadingChannel
from reput_client.security import async_interceptors
from tests.services.loopback import commit_log_server
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

# A call that nobody ends has this code after 20 s: DEADLINE_EXCEEDED.
KEY = async_interceptors(lambda: (("authorization", "Bearer reput_x"),))


class Files:
    """An identity that a test renews."""

    def __init__(self):
        self.pem = "first"

    def current(self):
        return self.pem


class Stall(grpc.aio.UnaryUnaryClientInterceptor):
    """Holds the first call back before it begins on its channel."""

    def __init__(self):
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def intercept_unary_unary(self, continuation, client_call_details, request):
        if not self.reached.is_set():
            self.reached.set()
            await self.go_on.wait()
        return await continuation(client_call_details, request)


@pytest.fixture(autouse=True)
def looked_at_with_each_call(monkeypatch):
    monkeypatch.setattr(reloading_channel, "LOOK_SECONDS", 0.0)


@pytest.fixture
def go_on() -> threading.Event:
    """Set: streams under way go on to their end."""
    return threading.Event()


@pytest.fixture
def address(go_on) -> Iterator[str]:
    def tail(request, context):
        context.add_callback(go_on.set)  # a call that ends gives its thread back
        yield pb.ReputResponse(next_offset=1)
        go_on.wait(60)
        yield pb.ReputResponse(next_offset=2)

    with commit_log_server(reput=tail, get_message=lambda *_: pb.GetMessageResponse()) as server:
        yield server.address


def is_closed(channel: grpc.aio.Channel) -> bool:
    return channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


def opened(address, made, interceptors=None) -> tuple[Files, AsyncReloadingChannel]:
    """A channel whose former channels stand in `made`."""

    def make(_pem):
        made.append(grpc.aio.insecure_channel(address, interceptors=interceptors))
        return made[-1]

    files = Files()
    return files, AsyncReloadingChannel(files, make)


async def begun(channel):
    """A stream under way."""
    stream = pb_grpc.CommitLogServiceStub(channel).Reput(pb.ReputRequest(), timeout=WAIT_SECONDS_MAX)
    assert (await stream.read()).next_offset == 1
    return stream


async def ask(channel):
    await pb_grpc.CommitLogServiceStub(channel).GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)


def test_close_left_calls_of_former_channels_open(address):
    files = Files()
    streams = []
    with ReloadingChannel(files, lambda _: grpc.insecure_channel(address)) as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        for pem in ("first", "second", "third"):
            files.pem = pem
            streams.append(stub.Reput(pb.ReputRequest(), timeout=WAIT_SECONDS_MAX))
            assert next(streams[-1]).next_offset == 1

    assert [stream.code() for stream in streams] == [grpc.StatusCode.CANCELLED] * 3


def test_former_channels_that_are_closed_are_not_kept(address):
    files = Files()
    with ReloadingChannel(files, lambda _: grpc.insecure_channel(address)) as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        for renewal in range(5):
            files.pem = str(renewal)
            stub.GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)
        assert len(channel._former) <= 1


@pytest.mark.parametrize("interceptors", [None, KEY])
def test_close_left_calls_of_former_channels_of_asyncio_open(address, interceptors):
    made = []

    async def close() -> list[grpc.StatusCode]:
        files, channel = opened(address, made, interceptors)
        streams = []
        for pem in ("first", "second", "third"):
            files.pem = pem
            streams.append(await begun(channel))
        await channel.close()
        assert [is_closed(each) for each in made] == [True] * 3
        return [await stream.code() for stream in streams]

    assert asyncio.run(close()) == [grpc.StatusCode.CANCELLED] * 3


def test_calls_of_former_channels_of_asyncio_have_the_grace_of_close(address, go_on):
    made = []

    async def close() -> grpc.StatusCode:
        files, channel = opened(address, made)
        stream = await begun(channel)
        files.pem = "second"
        await ask(channel)
        closing = asyncio.create_task(channel.close(WAIT_SECONDS_MAX))
        go_on.set()
        assert (await stream.read()).next_offset == 2
        code = await stream.code()
        await closing
        assert [is_closed(each) for each in made] == [True] * 2
        return code

    assert asyncio.run(close()) is grpc.StatusCode.OK


@pytest.mark.parametrize("interceptors", [None, KEY])
def test_a_former_channel_of_asyncio_is_closed_after_its_last_call(address, go_on, interceptors):
    made = []

    async def renew() -> None:
        files, channel = opened(address, made, interceptors)
        stream = await begun(channel)
        files.pem = "second"
        await ask(channel)
        assert not is_closed(made[0])
        go_on.set()
        assert (await stream.read()).next_offset == 2
        assert await stream.read() is grpc.aio.EOF
        await asyncio.to_thread(wait_until, lambda: is_closed(made[0]))
        await ask(channel)
        await channel.close()

    asyncio.run(renew())
    assert len(made) == 2


def test_a_call_that_an_interceptor_held_back_lost_its_former_channel(address):
    """It had chosen that channel before the renewal, and began on it long after."""

    async def renew() -> None:
        made, stall = [], Stall()
        files, channel = opened(address, made, [stall])
        call = asyncio.create_task(ask(channel))
        await stall.reached.wait()
        files.pem = "second"
        await ask(channel)
        stall.go_on.set()
        await call
        await channel.close()
        assert len(made) == 2

    asyncio.run(renew())
