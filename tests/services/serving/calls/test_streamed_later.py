"""A call whose stream of answers is made elsewhere: it takes no thread, and it notices when its caller goes."""

import contextlib
import threading

import grpc
import pytest

from services import status
from services.serving.calls.streamed_later import StreamedLater
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import InvalidArgumentError
from tests.services.serving.calls.test_unary_call import Taken
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

SERVICE = "apache.rocketmq.v2.MessagingService"
METHOD = f"/{SERVICE}/ReceiveMessage"


@contextlib.contextmanager
def serving(offer, refused=None):
    server = ServiceServer("gateway", ServiceSettings(worker_count=4))
    handlers = {"ReceiveMessage": grpc.unary_stream_rpc_method_handler(StreamedLater(offer, refused))}

    def add(_servicer, grpc_server):
        grpc_server.add_registered_method_handlers(SERVICE, handlers)

    server.add(SERVICE, add, None)
    server.start()
    server.set_serving(True)
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    with grpc.insecure_channel(server.address) as channel:
        try:
            yield server, channel.unary_stream(METHOD)
        finally:
            server.stop()
            ended.join()


def polls_of(server):
    return next(lane for lane in server.lanes.all() if lane.name == "polls").call_count


def test_answers_come_in_order_from_any_thread():
    taken = Taken()
    with serving(taken) as (server, receive):
        answers = receive(b"request", timeout=WAIT_SECONDS_MAX)
        request, call = taken.next()
        assert request == b"request"
        for number in range(100):
            call.send(str(number).encode())
        went = []
        call.end(b"last", then=went.append)
        assert list(answers) == [*(str(number).encode() for number in range(100)), b"last"]
        wait_until(lambda: went == [True] and polls_of(server) == 0)


def test_an_answer_is_seen_before_the_call_is_ended():
    taken = Taken()
    with serving(taken) as (_, receive):
        answers = receive(b"request", timeout=WAIT_SECONDS_MAX)
        _, call = taken.next()
        call.send(b"first")
        assert next(answers) == b"first"
        call.send(b"second")
        assert next(answers) == b"second"
        call.end()
        assert list(answers) == []


def test_a_caller_that_goes_is_noticed_at_once():
    taken = Taken()
    with serving(taken) as (server, receive):
        answers = receive(b"request", timeout=WAIT_SECONDS_MAX)
        _, call = taken.next()
        gone = threading.Event()
        call.on_gone(gone.set)
        assert call.is_active()
        assert polls_of(server) == 1
        answers.cancel()
        assert gone.wait(WAIT_SECONDS_MAX)
        assert not call.is_active()
        went = []
        call.send(b"nobody reads this")
        call.end(b"nor this", then=went.append)
        assert went == [False]
        wait_until(lambda: polls_of(server) == 0)


def test_a_call_that_waits_keeps_no_metadata_and_is_answered_all_the_same():
    taken = Taken()
    with serving(taken) as (server, receive):
        answers = receive(b"request", timeout=WAIT_SECONDS_MAX, metadata=(("x-mq-client-id", "c" * 100),))
        _, call = taken.next()
        wait_until(lambda: not hasattr(call._event, "invocation_metadata"))
        assert call.is_active()
        assert call.peer().startswith("ipv4:127.0.0.1:")
        call.send(b"first")
        call.end(b"last")
        assert list(answers) == [b"first", b"last"]
        wait_until(lambda: polls_of(server) == 0)


def test_a_deadline_that_passes_is_noticed_too():
    taken = Taken()
    with serving(taken) as (_, receive):
        _answers = receive(b"request", timeout=0.5)
        _, call = taken.next()
        gone = threading.Event()
        call.on_gone(gone.set)
        assert gone.wait(WAIT_SECONDS_MAX)


def test_whoever_asks_late_hears_that_the_caller_has_gone():
    taken = Taken()
    with serving(taken) as (server, receive):
        answers = receive(b"request", timeout=WAIT_SECONDS_MAX)
        _, call = taken.next()
        answers.cancel()
        wait_until(lambda: polls_of(server) == 0)
        gone = threading.Event()
        call.on_gone(gone.set)
        assert gone.is_set()


def test_answers_that_did_not_go_out_are_reported():
    """A caller that takes nothing has a window of 64 KiB or more; the rest waits, and then the caller goes."""
    taken = Taken()
    with serving(taken) as (server, receive):
        answers = receive(b"request", timeout=WAIT_SECONDS_MAX)
        _, call = taken.next()
        went = []
        for _ in range(64):
            call.send(bytes(1 << 20))
        call.end(b"", then=went.append)
        assert next(answers) == bytes(1 << 20)
        answers.cancel()
        wait_until(lambda: went == [False] and polls_of(server) == 0)


def test_a_failure_of_a_stream_is_a_rich_status():
    def offer(request, call):
        call.fail(status.to_status(InvalidArgumentError("no", field="topic")))

    with serving(offer) as (server, receive):
        with pytest.raises(grpc.RpcError) as caught:
            list(receive(b"request", timeout=WAIT_SECONDS_MAX))
        wait_until(lambda: polls_of(server) == 0)
    assert status.from_rpc_error(caught.value).metadata == {"field": "topic"}


def test_a_bug_in_the_offer_is_internal_and_the_server_goes_on():
    def offer(request, call):
        if request == b"bug":
            raise ZeroDivisionError
        call.end(request)

    with serving(offer) as (_, receive):
        with pytest.raises(grpc.RpcError) as caught:
            list(receive(b"bug", timeout=WAIT_SECONDS_MAX))
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert list(receive(b"x", timeout=WAIT_SECONDS_MAX)) == [b"x"]


def test_a_stop_does_not_wait_for_calls_that_wait():
    taken = Taken()
    with serving(taken) as (server, receive):
        server.on_drain(lambda: call.end(b"the end"))
        answers = receive(b"request", timeout=WAIT_SECONDS_MAX)
        _, call = taken.next()
        server.stop()
        assert list(answers) == [b"the end"]
