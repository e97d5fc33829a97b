"""Unique keys of a sink's rows: the same row of the same task gets the same key, however often the task is done.

    16 B  who and what: BLAKE2b of the row, keyed by query, batch and partition
     6 B  how many rows equal to it came before it in the task
     4 B  0                                                              56 upper-case hex digits
     2 B  0

The store keeps a message once for each unique key (docs/adr/0015), so a task that is done again adds nothing. The key goes
by what is in the row and not by its number: Spark promises that a task done again has the same rows, not that they come
in the same order behind a shuffle. By number, a row that changed places would be taken for another and be lost.

The layout is that of RocketMQ's ids with an IPv6 address; its tools read a time out of the ten bytes behind the address
(4 B, milliseconds of the month), and look from there on: 0 is the beginning of this month.
"""

import hashlib
from collections.abc import Sequence

DIGEST_BYTES = 16
REPEAT_BYTES = 6
_TIME_AND_COUNTER = "000000000000"


class TaskKeys:
    """Makes the keys of one task's rows.

    Args:
        writer_id: of the query, or of the job.
        batch_id: of the micro-batch; -1 for a job of its own.
        partition_id: of the task.
    """

    def __init__(self, writer_id: str, batch_id: int, partition_id: int) -> None:
        identity = f"{writer_id}\n{batch_id}\n{partition_id}"
        self._key = hashlib.blake2b(identity.encode(), digest_size=32).digest()
        self._seen: dict[bytes, int] = {}

    def key(self, fields: Sequence[bytes]) -> str:
        """The key of the next row that is made of these."""
        digest = hashlib.blake2b(key=self._key, digest_size=DIGEST_BYTES)
        for field in fields:
            # The length first, or ("a", "bc") and ("ab", "c") would be one row.
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
        name = digest.digest()
        repeat = self._seen.get(name, 0)
        self._seen[name] = repeat + 1
        return (name + repeat.to_bytes(REPEAT_BYTES, "big")).hex().upper() + _TIME_AND_COUNTER
