"""Ports of tests that run side by side."""

import os

from tests.support import ports
from tests.support.ports import free_port


def keeps_in_another_process(wanted: list[int]) -> bool:
    """Whether a fork of this process, which has none of its locks, could keep these ports."""
    child = os.fork()
    if not child:
        os._exit(int(ports._kept.keep(wanted)))
    _, status = os.waitpid(child, 0)
    return bool(os.waitstatus_to_exitcode(status))


def test_a_port_is_kept_for_its_test_while_nobody_listens_there() -> None:
    """A replica that was killed could not start again: a test beside it had got its port meanwhile."""
    port = free_port(1)

    assert not ports._kept.keep([port])
    assert not keeps_in_another_process([port])
    assert not keeps_in_another_process([port + 2, port + 1]), "a neighbour"
    assert keeps_in_another_process([port + 2]), "it was let go of"
    assert len({port, *(free_port() for _ in range(50))}) == 51
