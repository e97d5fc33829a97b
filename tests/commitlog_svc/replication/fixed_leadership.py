"""A leadership in the hands of a test."""

import dataclasses
import threading
import time
from collections.abc import Mapping

from commitlog_svc.replication.leading.record import NO_STORE_IDS
from commitlog_svc.replication.leading.view import LeadershipView, Role


class FixedLeadership:
    """Says what it was told; changes of the in-sync set happen when `may_change` is set.

    Attributes:
        acknowledges: what `may_acknowledge` says.
        asked: in-sync sets that were to be stored.
        promises: replicas whose promises came.
        known_epoch: the greatest epoch that a replica told of.
    """

    def __init__(self, role: Role = Role.LEADER, epoch: int = 1, leader: str = "r1", *in_sync: str) -> None:
        self._changed = threading.Condition()
        self._view = LeadershipView(role, epoch, leader, in_sync=frozenset(in_sync or (leader,)))
        self.now = time.monotonic
        self.acknowledges = True
        self.may_change = threading.Event()
        self.may_change.set()
        self.asked: list[frozenset[str]] = []
        self.promises: list[str] = []
        self.heard: list[int] = []
        self.known_epoch = 0

    @property
    def view(self) -> LeadershipView:
        return self._view

    def set(self, **fields: object) -> None:
        with self._changed:
            self._view = dataclasses.replace(self._view, **fields)
            self._changed.notify_all()

    def may_acknowledge(self) -> bool:
        return self.acknowledges

    def note_leader_heard(self, epoch: int) -> bool:
        self.heard.append(epoch)
        return True

    def note_promise(self, replica: str, sent_at: float) -> None:
        self.promises.append(replica)

    def note_epoch(self, epoch: int) -> None:
        self.known_epoch = max(self.known_epoch, epoch)

    def change_in_sync(self, names: frozenset[str], store_ids: Mapping[str, str] = NO_STORE_IDS) -> bool:
        self.asked.append(names)
        if not self.may_change.wait(0.2):
            return False
        self.set(in_sync=names, store_ids={**self._view.store_ids, **store_ids})
        return True

    def hand_over(self, to: str) -> None:
        self.set(role=Role.FOLLOWER, leader="", hand_over_to=to, resigned=True)

    def refuse_hand_over(self, to: str) -> None:
        self.set(hand_over_to="")

    def wait_change(self, view: LeadershipView, timeout_seconds: float) -> LeadershipView:
        with self._changed:
            self._changed.wait_for(lambda: self._view != view, timeout_seconds)
            return self._view
