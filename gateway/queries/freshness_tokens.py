"""What the freshness tokens of a request name: the newest record of each shard.

A token with an offset behind the end of the shard's log is not of this log: it is of another store, or a power cut took the
record before it was flushed. The log's end is asked once, after a first wait without success.
"""

from collections.abc import Iterable

from gateway.ports.deadline import Deadline
from gateway.ports.shard import STATUSES, Shard
from gateway.ports.shards import Shards
from gateway.queries.arrival import Part
from store.errors import InvalidFreshnessTokenError
from store.format.freshness_token import decode_freshness_token

# As many as a request can have appended.
TOKEN_COUNT_MAX = 1_024
# The state of a builder that is switched off (services/following/follower_process.py).
BUILDER_OFF = "off"


def wanted_offsets(shards: Shards, tokens: Iterable[str]) -> dict[str, int]:
    """Where the newest record of the tokens starts (bytes of the log), by shard.

    Raises:
        InvalidFreshnessTokenError: a token is none, or of no shard here; or they are too many.
    """
    names = {shard.broker_name for shard in shards}
    wanted: dict[str, int] = {}
    for count, text in enumerate(tokens, 1):
        if count > TOKEN_COUNT_MAX:
            raise InvalidFreshnessTokenError(
                f"freshness_tokens has more than {TOKEN_COUNT_MAX} tokens: the newest of each shard is enough.",
                field="freshness_tokens",
                countMax=TOKEN_COUNT_MAX,
            )
        token = decode_freshness_token(text)
        if token.broker_name not in names:
            raise InvalidFreshnessTokenError(
                f"A freshness token is of shard {token.broker_name!r}, which this gateway does not serve; it serves "
                f"{', '.join(sorted(names))}.",
                field="freshness_tokens",
                brokerName=token.broker_name,
            )
        wanted[token.broker_name] = max(wanted.get(token.broker_name, 0), token.commit_log_offset)
    return wanted


def is_coming(shard: Shard, part: Part, offset: int, until: Deadline) -> bool:
    """Whether a wait can succeed: not for a builder that is switched off.

    InvalidFreshnessTokenError when the shard's log ends before the offset.
    """
    is_off = False
    for row in shard.call(STATUSES, None, until):
        status = row.status
        is_off = is_off or (status.service == part.value and status.state == BUILDER_OFF)
        is_known = row.error is None and not status.catching_up
        if status.service == "commitlog" and is_known and status.log_end_offset <= offset:
            raise InvalidFreshnessTokenError(
                f"A freshness token names byte {offset} of the log of shard {shard.broker_name}, which ends at byte "
                f"{status.log_end_offset}: the token is of another store, or a crash took the message before it was on "
                "the disk.",
                field="freshness_tokens",
                brokerName=shard.broker_name,
                commitLogOffset=offset,
                logEndOffset=status.log_end_offset,
            )
    return not is_off
