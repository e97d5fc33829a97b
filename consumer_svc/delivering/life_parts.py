"""LifeParts: the parts of one life that answer calls."""

from dataclasses import dataclass
from typing import Protocol

from consumer_svc.delivering.acks import Acks
from consumer_svc.delivering.deletions import Deletions
from consumer_svc.delivering.groups import Groups
from consumer_svc.delivering.life import Life
from consumer_svc.delivering.lite_topics import LiteTopics
from consumer_svc.delivering.pop import Pops
from consumer_svc.delivering.pulls import Pulls
from consumer_svc.delivering.send_back import SendBacks
from consumer_svc.delivering.tracks import Tracks


@dataclass(frozen=True, slots=True)
class LifeParts:
    """See the top of this file; one for each life."""

    life: Life
    pops: Pops
    acks: Acks
    pulls: Pulls
    send_backs: SendBacks
    groups: Groups
    tracks: Tracks
    deletions: Deletions
    lite: LiteTopics

    @classmethod
    def of(cls, life: Life) -> "LifeParts":
        """All parts of a life."""
        return cls(
            life,
            Pops(life),
            Acks(life),
            Pulls(life),
            SendBacks(life),
            Groups(life),
            Tracks(life),
            Deletions(life),
            LiteTopics(life),
        )


class Answering(Protocol):
    """A servicer, which answers calls from a life."""

    def open(self, delivery: LifeParts) -> None:
        """Serve this life from now on."""

    def shut(self) -> None:
        """Serve nothing until the next `open`."""
