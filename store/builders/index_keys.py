"""Which keys of a record the index holds, and in which order.

The unique key comes first, then each of KEYS, repeats included. Rolled-back transaction records are not indexed;
prepared and committed ones are. Source: `IndexService.buildIndex` of RocketMQ 5.3.3.
"""

from store.dispatch import DispatchRequest
from store.format.index_layout import index_key
from store.format.sys_flag import TRANSACTION_MASK, TransactionType


def index_keys(request: DispatchRequest) -> list[str]:
    """The `topic#key` strings of a record, in entry order; empty when it has no keys or is skipped."""
    if request.sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
        return []
    keys = [index_key(request.topic, request.unique_key)] if request.unique_key else []
    keys.extend(index_key(request.topic, key) for key in request.keys if key)
    return keys
