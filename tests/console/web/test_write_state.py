"""Whether a store takes writes, by the states of its commit logs."""

import pytest

from console.web.write_state import KEPT_SECONDS, WriteState
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import ServiceUnavailableError


class Gateway:
    def __init__(self, *states: str) -> None:
        self.states: tuple[str, ...] | None = states
        self.asked_count = 0
        self.seconds = 0.0

    def get_status(self, _request, _context) -> pb.GetStatusResponse:
        self.asked_count += 1
        if self.states is None:
            raise ServiceUnavailableError("nobody answers")
        rows = [pb.GetStatusResponse.ServiceStatus(service="commitlog", state=state) for state in self.states]
        return pb.GetStatusResponse(
            services=[*rows, pb.GetStatusResponse.ServiceStatus(service="index", state="serving")]
        )

    def state(self) -> WriteState:
        return WriteState(self.get_status, lambda: self.seconds)


@pytest.mark.parametrize(
    ("states", "takes_writes"),
    [
        (("serving",), True),
        (("read-only",), False),
        (("following",), False),
        (("mirroring",), False),
        (("read-only", "following"), False),
        (("read-only", "serving"), True),
        (("",), True),
        ((), True),
    ],
)
def test_a_store_takes_writes_unless_every_shard_is_only_read(states: tuple[str, ...], *, takes_writes: bool) -> None:
    assert Gateway(*states).state().takes_writes() is takes_writes


def test_the_state_is_kept_for_some_seconds_and_over_a_failure() -> None:
    gateway = Gateway("read-only")
    state = gateway.state()
    assert [state.takes_writes() for _ in range(3)] == [False] * 3
    assert gateway.asked_count == 1

    gateway.seconds, gateway.states = KEPT_SECONDS, None
    assert state.takes_writes() is False
    gateway.seconds, gateway.states = 2 * KEPT_SECONDS, ("serving",)
    assert state.takes_writes() is True
    assert gateway.asked_count == 3
