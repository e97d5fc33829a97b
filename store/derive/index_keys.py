"""Which keys of a record the index holds, in which order, and with which hash.

The unique key comes first, then each of KEYS, repeats included. A rolled-back transaction record has no entries; a
prepared and a committed one have. Source: `IndexService.buildIndex` of RocketMQ 5.3.3.

RocketMQ 5.5.0 adds one entry behind these for the whole TAGS of a record. Whether an index has them is a fact of the store
(`store/readers/tag_entries.py`), so their hashes stand beside the others.

`dispatch_kernel.py` is the compiled twin, `index_state.py` makes entries from the hashes.
"""

from store.derive.dispatch import DispatchRequest
from store.format.derived.index_layout import index_key, key_hash, tag_key
from store.format.sys_flag import TRANSACTION_MASK, TransactionType

NO_TAGS = -1  # no hash is negative


def index_keys(request: DispatchRequest) -> list[str]:
    """The `topic#key` strings of a record, in entry order; empty if it has no entries."""
    if request.sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
        return []
    keys = [index_key(request.topic, request.unique_key)] if request.unique_key else []
    keys.extend(index_key(request.topic, key) for key in request.keys if key)
    return keys


def index_hashes(request: DispatchRequest) -> list[int]:
    """The hashes of a record's entries, in entry order."""
    return [key_hash(key) for key in index_keys(request)]


def tags_hash(request: DispatchRequest) -> int:
    """The hash of the entry that RocketMQ 5.5.0 writes last, for the whole TAGS of a record; NO_TAGS if it has none."""
    if not request.tags or request.sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
        return NO_TAGS
    return key_hash(index_key(request.topic, tag_key(request.tags)))
