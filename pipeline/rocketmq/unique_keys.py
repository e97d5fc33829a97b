"""Unique keys of a sink's rows: the same row of the same task gets the same key each time the task runs.

    16 B  BLAKE2b of the row, keyed by query, batch, partition and the write's id
     6 B  how many equal rows came before it in the task
     4 B  0                                                              56 upper-case hex digits
     2 B  0

The store keeps one message for each unique key (docs/adr/0015), so a task that runs again adds no message. The key depends
on the content of the row, not on its number: Spark promises that a repeated task has the same rows, but after a shuffle
perhaps in another order. With numbers, a row that changed places could get the key of another row, and be lost.

So that equal rows get keys of their own, a task keeps the digest of each row until its end: about 100 bytes for each different
row. Only all of them give exact counts: a row that is counted wrong would be lost or stored twice.

The layout is that of RocketMQ's ids with an IPv6 address: the last 6 bytes are a time (4 B, milliseconds of the month) and a
counter. RocketMQ's tools search from that time on: 0 is the begin of the current month.
"""

import hashlib
from collections.abc import Sequence

DIGEST_BYTES = 16
REPEAT_BYTES = 6
_TIME_AND_COUNTER = "000000000000"


class TaskKeys:
    """Makes the keys of one task's rows.

    Args:
        writer_id: the query or the job.
        batch_id: the micro-batch; -1 outside streams.
        partition_id: the task's partition.
        write_id: tells several writes of one micro-batch apart; empty: there is one.
    """

    def __init__(self, writer_id: str, batch_id: int, partition_id: int, write_id: str = "") -> None:
        identity = f"{writer_id}\n{batch_id}\n{partition_id}"
        if write_id:  # without it the keys of earlier versions, which a stored micro-batch may have
            identity += f"\n{write_id}"
        self._key = hashlib.blake2b(identity.encode(), digest_size=32).digest()
        self._seen: dict[bytes, int] = {}

    def key(self, fields: Sequence[bytes]) -> str:
        """The key of the next row, which has these fields."""
        digest = hashlib.blake2b(key=self._key, digest_size=DIGEST_BYTES)
        for field in fields:
            # With the length first, ("a", "bc") and ("ab", "c") have different keys.
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
        name = digest.digest()
        repeat = self._seen.get(name, 0)
        self._seen[name] = repeat + 1
        return (name + repeat.to_bytes(REPEAT_BYTES, "big")).hex().upper() + _TIME_AND_COUNTER
