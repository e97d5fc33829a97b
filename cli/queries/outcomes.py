"""How shards took part in an answer, for people and for programs: which one is missing, and what the others have built."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cli.exits import warn
from cli.printing.times import iso_text

if TYPE_CHECKING:
    from reput_client import ShardOutcome


class Outcomes:
    """The shards of all pages of an answer, each once: its first failure, otherwise its last outcome."""

    def __init__(self) -> None:
        self._by_name: dict[str, ShardOutcome] = {}

    def see(self, shards: "Iterable[ShardOutcome]") -> None:
        """Add the outcomes of a page."""
        for shard in shards:
            known = self._by_name.get(shard.broker_name)
            if known is None or known.error is None:
                self._by_name[shard.broker_name] = shard

    def rows(self) -> list[dict[str, object]]:
        """A row for each shard, by the names of the contract's fields; absent fields are left out."""
        return [_row(shard) for _, shard in sorted(self._by_name.items())]

    def warn_partial(self) -> None:
        """Warn of what is missing, shard by shard."""
        missing = [text for _, shard in sorted(self._by_name.items()) if (text := _missing(shard))]
        if not missing:
            warn("partial: part of the store could not be asked or is not built yet; `reput status` shows which")
        for text in missing:
            warn(f"partial: {text}")


def _missing(shard: "ShardOutcome") -> str:
    if shard.error is not None:
        return f"shard {shard.broker_name}: {shard.error.message}{_staleness(shard)}"
    if shard.catching_up or shard.indexed_up_to_offset < shard.log_end_offset:
        time = shard.indexed_up_to_time
        up_to = f" (stored up to {iso_text(time)})" if time is not None else ""
        return (
            f"shard {shard.broker_name} is built up to byte {shard.indexed_up_to_offset} of {shard.log_end_offset} "
            f"of its log{up_to}"
        )
    return ""


def _staleness(shard: "ShardOutcome") -> str:
    if not shard.replicas:
        return ""
    if shard.staleness is None:
        how = "how much is missing is not known"
    else:
        how = f"what was confirmed more than {shard.staleness.total_seconds():.1f} s before the query is there"
    lag = f", {shard.known_lag_bytes} bytes are known to be missing" if shard.known_lag_bytes else ""
    return f" Answered by {', '.join(shard.replicas)}: {how}{lag}."


def _row(shard: "ShardOutcome") -> dict[str, object]:
    row: dict[str, object] = {
        "broker_name": shard.broker_name,
        "indexed_up_to_offset": shard.indexed_up_to_offset,
        "log_end_offset": shard.log_end_offset,
        "catching_up": shard.catching_up,
    }
    if shard.indexed_up_to_time is not None:
        row["indexed_up_to_time"] = iso_text(shard.indexed_up_to_time)
    if shard.error is not None:
        row["error"] = shard.error.message
    if shard.replicas:
        row["replicas"] = list(shard.replicas)
        row["known_lag_bytes"] = shard.known_lag_bytes
    if shard.staleness is not None:
        row["staleness_seconds"] = shard.staleness.total_seconds()
    return row
