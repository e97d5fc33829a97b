"""How shards took part in an answer, for people and for programs: which one is missing, and how far the others are."""

from collections.abc import Iterable
from typing import Any

from cli.exits import warn


class Outcomes:
    """The shards of all pages of an answer, each once: its first failure, otherwise what it said last."""

    def __init__(self) -> None:
        self._by_name: dict[str, Any] = {}

    def see(self, shards: Iterable[Any]) -> None:
        """Note a page's."""
        for shard in shards:
            known = self._by_name.get(shard.broker_name)
            if known is None or not known.HasField("error"):
                self._by_name[shard.broker_name] = shard

    def rows(self) -> list[dict[str, object]]:
        """One for each shard, by the fields' names in the contract; what a shard did not say is left out."""
        return [_row(shard) for _, shard in sorted(self._by_name.items())]

    def warn_partial(self) -> None:
        """Say what is missing, shard by shard."""
        missing = [text for _, shard in sorted(self._by_name.items()) if (text := _missing(shard))]
        if not missing:
            warn("partial: part of the store could not be asked or is not built yet; `reput status` shows which")
        for text in missing:
            warn(f"partial: {text}")


def _missing(shard: Any) -> str:
    if shard.HasField("error"):
        return f"shard {shard.broker_name}: {shard.error.message}"
    if shard.catching_up or shard.indexed_up_to_offset < shard.log_end_offset:
        return (
            f"shard {shard.broker_name} is built up to byte {shard.indexed_up_to_offset} of {shard.log_end_offset} "
            f"of its log{_up_to_time(shard)}"
        )
    return ""


def _up_to_time(shard: Any) -> str:
    from cli.rows import time_text  # brings protobuf: help does without

    return f" (stored up to {time_text(shard.indexed_up_to_time)})" if shard.HasField("indexed_up_to_time") else ""


def _row(shard: Any) -> dict[str, object]:
    from cli.rows import time_text

    row: dict[str, object] = {
        "broker_name": shard.broker_name,
        "indexed_up_to_offset": shard.indexed_up_to_offset,
        "log_end_offset": shard.log_end_offset,
        "catching_up": shard.catching_up,
    }
    if shard.HasField("indexed_up_to_time"):
        row["indexed_up_to_time"] = time_text(shard.indexed_up_to_time)
    if shard.HasField("error"):
        row["error"] = shard.error.message
    return row
