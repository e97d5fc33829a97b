"""Settings of the index service."""

from typing import Literal

from services.following.file_check import VERIFY_BYTES_PER_SECOND, VERIFY_BYTES_PER_SECOND_MIN
from services.settings.service_settings import TARGETS, StoreSettings, listens_at, setting, target


class IndexSettings(StoreSettings):
    """See the top of services/settings/setting_names.py."""

    address: str = listens_at(TARGETS["index"])
    commitlog_target: str = target("commitlog")
    hash_slot_count: int = setting(
        5_000_000, "Hash slots of an index file; existing files decide themselves.", unit="slots", ge=1, le=1 << 29
    )
    # RocketMQ's maxIndexNum, one more than the entries that fit.
    entry_count_max: int = setting(
        20_000_000, "Entries of an index file; existing files decide themselves.", unit="entries", ge=2, le=1 << 30
    )
    tags: Literal["auto", "on", "off"] = setting(
        "auto",
        "Whether the index has an entry for the tags of each message, as RocketMQ 5.5 writes it; auto: as its files have it.",
    )
    enabled: bool = setting(True, "Build index files.")
    verify_bytes_per_second_max: int = setting(
        VERIFY_BYTES_PER_SECOND,
        "Limit for reading files to find damage (docs/durability.md).",
        unit="bytes",
        ge=VERIFY_BYTES_PER_SECOND_MIN,
    )
