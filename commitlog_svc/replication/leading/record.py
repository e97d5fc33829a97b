"""The record of a shard: who leads it, in which epoch, and who may lead next; a JSON document at the coordinator.

    {"epoch": 7, "leader": "r1", "in_sync": ["r1", "r2"], "renewal": 912, "lease_millis": 4000, "hand_over_to": "",
     "addresses": {"r1": {"commitlog": "10.0.0.1:8082"}, "r2": {"commitlog": "10.0.0.2:8082"}},
     "store_ids": {"r1": "5f0c...", "r2": "a91e..."}}

Fields that are not known are kept out: a record is written by the leader, whose release knows what it writes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from store.errors import StoreCorruptedError

Addresses = Mapping[str, Mapping[str, str]]
NO_STORE_IDS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """The record of a shard.

    Attributes:
        epoch: grows with each leader, from 1.
        leader: name of the replica that leads; empty: it gave up, or an operator took it away.
        in_sync: names of the replicas that have everything that was acknowledged; only they may lead.
        renewal: grows with each write of one epoch, so that no two contents are equal.
        lease_millis: how long the leader may go on without the coordinator, by its own clock. Others wait at least so long,
            whatever their own settings say.
        hand_over_to: with a leader: an operator wants this replica to lead; without: it may lead at once, and any member of
            the set may where it is empty.
        addresses: of each replica: service -> HOST:PORT.
        store_ids: of each member of the set: the store (epochs.py) that had everything when the member came in. Absent where
            a release that knew no such ids took it in.
    """

    epoch: int
    leader: str
    in_sync: frozenset[str]
    renewal: int = 0
    lease_millis: int = 0
    hand_over_to: str = ""
    addresses: Addresses = field(default_factory=dict)
    store_ids: Mapping[str, str] = field(default_factory=dict)

    def is_forced(self) -> bool:
        """Whether an operator made one replica the whole shard, and it has not taken over yet."""
        return not self.leader and bool(self.hand_over_to) and self.in_sync == {self.hand_over_to}

    def to_bytes(self) -> bytes:
        """The document; equal records give equal bytes."""
        document = {
            "epoch": self.epoch,
            "leader": self.leader,
            "in_sync": sorted(self.in_sync),
            "renewal": self.renewal,
            "lease_millis": self.lease_millis,
            "hand_over_to": self.hand_over_to,
            "addresses": {name: dict(sorted(of.items())) for name, of in sorted(self.addresses.items())},
            "store_ids": dict(sorted(self.store_ids.items())),
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "ShardRecord":
        """The record in a document.

        Raises:
            StoreCorruptedError: it is none.
        """
        try:
            document: Any = json.loads(data)
            return cls(
                _number(document["epoch"]),
                _text(document["leader"]),
                frozenset(_text(name) for name in document["in_sync"]),
                _number(document["renewal"]),
                _number(document["lease_millis"]),
                _text(document["hand_over_to"]),
                {
                    _text(name): {_text(service): _text(address) for service, address in of.items()}
                    for name, of in document["addresses"].items()
                },
                {_text(name): _text(store_id) for name, store_id in document.get("store_ids", {}).items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreCorruptedError(
                f"the coordinator's record of the shard is damaged ({error!r}): remove it, then `reput lead --force`",
                record=data[:200],
            ) from error


def forced(record: ShardRecord | None, name: str) -> ShardRecord:
    """The record by which an operator makes one replica lead, whatever others have that it has not.

    Its epoch may be lower than what replicas have seen, where the record was lost: the replica takes the next one of all.
    """
    if record is None:
        return ShardRecord(1, "", frozenset({name}), hand_over_to=name)
    return replace(record, epoch=record.epoch + 1, leader="", in_sync=frozenset({name}), renewal=0, hand_over_to=name)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    value.encode()  # half of a surrogate pair, which JSON can say, could not be written again
    return value
