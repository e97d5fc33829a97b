"""Which store times the store holds: what somebody who found nothing wants to know next."""

from dataclasses import dataclass
from typing import Any

from console.calls import Calls
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import StoreError
from store.format.host import Host
from store.format.message_id import encode_offset_msg_id

# An optional line of a page: it may cost this much of the page's time.
CALL_SECONDS_MAX = 0.2
SHARD_COUNT_MAX = 8
# The gateway reads the offset of an id and never dials its address.
_ANY_HOST = Host("127.0.0.1", 10911)


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """The store times of the messages in the log.

    Attributes:
        oldest_millis: of the first one.
        newest_millis: of the last one.
        has_removed: whether older messages were there and retention removed them.
    """

    oldest_millis: int
    newest_millis: int
    has_removed: bool


def held_span(calls: Calls) -> HeldSpan | None:
    """The span of all shards; None when it is not known, or the caller may not know it."""
    if not calls.sees_store:
        return None
    try:
        services = calls.ask(calls.gateway.GetStatus, pb.GetStatusRequest(), CALL_SECONDS_MAX).services
        logs = [row for row in services if row.service == "commitlog"]
        if not logs or len(logs) > SHARD_COUNT_MAX:
            return None
        filled = [row for row in logs if row.log_end_offset > row.log_first_offset]
        if not filled or any(row.HasField("error") or not row.HasField("newest_store_time") for row in filled):
            return None
        oldest = min(_first_store_millis(calls, row) for row in filled)
    except StoreError:
        return None
    newest = max(row.newest_store_time.ToMilliseconds() for row in filled)
    return HeldSpan(oldest, newest, any(row.log_first_offset > 0 for row in filled))


def _first_store_millis(calls: Calls, log: Any) -> int:
    """The store time of the first record in a log."""
    request = pb.QueryMessageByIdRequest(
        offset_msg_id=encode_offset_msg_id(_ANY_HOST, log.log_first_offset), broker_name=log.broker_name
    )
    message = calls.ask(calls.gateway.QueryMessageById, request, CALL_SECONDS_MAX).message
    return int(message.store_time.ToMilliseconds())
