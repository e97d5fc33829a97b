"""Direct calls beside the end of their service, and calls whose answer is made elsewhere; tests/reput_embedded has the rest."""

import threading
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from services.serving.calls import direct_call
from services.serving.calls.direct_call import DirectCallError, DirectChannel
from services.serving.calls.open_work import OpenWork
from tests.support.waiting import WAIT_SECONDS_MAX


class Work(OpenWork):
    """Notes what a stop would see when the call looks whether it may begin."""

    def __init__(self) -> None:
        super().__init__()
        self.count_at_look: list[int] = []
        self.stopping = SimpleNamespace(is_set=self._look)  # type: ignore[assignment]

    def _look(self) -> bool:
        self.count_at_look.append(self._count)
        return False


def channel_to(stream_unary: Any, work: OpenWork) -> tuple[DirectChannel, Any]:
    channel = DirectChannel(
        lambda _path: SimpleNamespace(stream_unary=stream_unary), work, lambda: SimpleNamespace(close=lambda: None)
    )
    return channel, channel.unary_unary("/a.B/C", lambda request: request, lambda answer: answer)


def behaviour(take: Any = None) -> Any:
    def handle(requests: Any, _context: Any) -> bytes:
        return b"to " + next(requests)

    handle.take = take  # type: ignore[attr-defined]
    return handle


def test_a_call_that_raced_the_end_of_its_service_ran_on_closed_files() -> None:
    work = Work()
    channel, call = channel_to(behaviour(), work)
    assert call(b"a", timeout=WAIT_SECONDS_MAX) == b"to a"
    assert work.count_at_look == [1], "it is open work before it looks whether the service stops"
    assert work.wait_until_done(0)
    channel.close()


def test_a_call_whose_helper_had_ended_waited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_call, "LOOK_SECONDS", 0.01)
    channel, call = channel_to(behaviour(), OpenWork())
    assert call(b"a", timeout=WAIT_SECONDS_MAX) == b"to a"
    channel.close()  # by another thread, after the main thread saw that the service does not stop
    with pytest.raises(DirectCallError) as refused:
        call(b"b", timeout=WAIT_SECONDS_MAX)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("is_main", [True, False])
def test_a_call_whose_receiver_never_answered_waited_for_ever(monkeypatch: pytest.MonkeyPatch, is_main: bool) -> None:
    monkeypatch.setattr(direct_call, "LATE_SECONDS_MAX", 0.05)
    channel, call = channel_to(behaviour(lambda _request, _call: None), OpenWork())
    failed: list[DirectCallError] = []

    def make() -> None:
        with pytest.raises(DirectCallError) as caught:
            call(b"a", timeout=0.05)
        failed.append(caught.value)

    if is_main:
        make()
    else:
        thread = threading.Thread(target=make)
        thread.start()
        thread.join(WAIT_SECONDS_MAX)
    assert [error.code() for error in failed] == [grpc.StatusCode.DEADLINE_EXCEEDED]
    channel.close()


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_ctrl_c_while_a_helper_started_was_an_error_of_threading(
    monkeypatch: pytest.MonkeyPatch, is_interrupted: bool
) -> None:
    def start(_thread: threading.Thread) -> None:
        try:
            if is_interrupted:
                raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    channel, call = channel_to(behaviour(), OpenWork())
    with monkeypatch.context() as patch:
        patch.setattr(direct_call.threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt if is_interrupted else RuntimeError):
            call(b"a", timeout=WAIT_SECONDS_MAX)
    assert call(b"a", timeout=WAIT_SECONDS_MAX) == b"to a"
    channel.close()
