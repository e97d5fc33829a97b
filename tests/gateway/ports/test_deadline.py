"""Deadlines: what is at hand has no time."""

import pytest

from gateway.ports.deadline import Deadline
from gateway.reput.wire import deadline_of
from services.serving.calls.at_once import AttemptContext
from store.errors import DeadlineExceededError


def test_what_is_at_hand_has_no_seconds_and_never_waits():
    deadline = Deadline.at_hand(lambda: 7.0)
    assert (deadline.remaining_seconds(), deadline.waits, deadline.is_near()) == (0.0, False, False)
    assert deadline.for_one_of(3) is deadline
    assert Deadline.after(1.0).waits
    with pytest.raises(DeadlineExceededError):
        Deadline.after(0.0, lambda: 7.0).remaining_seconds()


def test_only_an_attempt_asks_for_what_is_at_hand():
    class Context:
        def time_remaining(self):
            return 10.0

    assert deadline_of(Context()).waits
    assert not deadline_of(AttemptContext(Context())).waits
