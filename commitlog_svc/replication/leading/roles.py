"""What the replication of a log needs of the leadership of its shard."""

from collections.abc import Callable, Mapping
from typing import Protocol

from commitlog_svc.replication.leading.record import NO_STORE_IDS
from commitlog_svc.replication.leading.view import LeadershipView


class Leadership(Protocol):
    """Who leads, decided at the coordinator; thread-safe. See leadership.py.

    Attributes:
        now: the clock of all times here: seconds, rising, of this machine.
    """

    now: Callable[[], float]

    @property
    def view(self) -> LeadershipView:
        """What is known now."""
        ...

    def may_acknowledge(self) -> bool:
        """Whether this replica leads and no other can lead yet."""
        ...

    def note_leader_heard(self, epoch: int) -> bool:
        """The leader of an epoch spoke on its stream; whether to answer it: an answer is a promise not to stand for a lease."""
        ...

    def note_promise(self, replica: str, sent_at: float) -> None:
        """A replica has answered what this leader sent at that time: it has not stood before."""
        ...

    def note_epoch(self, epoch: int) -> None:
        """A replica knows of an epoch: the leader of an earlier one resigns."""
        ...

    def change_in_sync(self, names: frozenset[str], store_ids: Mapping[str, str] = NO_STORE_IDS) -> bool:
        """Stores another in-sync set, and the stores of some of its members; False when that did not happen, or is not known.

        Blocks.
        """
        ...

    def hand_over(self, to: str) -> None:
        """Gives the lead up in favour of a replica that has everything. Blocks."""
        ...

    def refuse_hand_over(self, to: str) -> None:
        """Takes an operator's wish to hand over to that replica out of the record, soon."""
        ...

    def wait_change(self, view: LeadershipView, timeout_seconds: float) -> LeadershipView:
        """The view, as soon as it is another than that one, at the latest after the timeout."""
        ...
