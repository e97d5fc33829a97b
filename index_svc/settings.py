"""Settings of the index service; names, defaults and meanings stand in services/setting_names.py."""

import pydantic

from services.settings import StoreSettings


class IndexSettings(StoreSettings):
    """What the index service can be told.

    Attributes:
        commitlog_target: where the commitlog service is.
        hash_slot_count: slots of an index file; existing files decide themselves.
        entry_count_max: RocketMQ's maxIndexNum, one more than the entries that fit; likewise.
        enabled: build index files; without, those that exist are served.
    """

    address: str = "127.0.0.1:8084"
    commitlog_target: str = "127.0.0.1:8082"
    hash_slot_count: int = pydantic.Field(5_000_000, ge=1, le=1 << 29)
    entry_count_max: int = pydantic.Field(20_000_000, ge=2, le=1 << 30)
    enabled: bool = True
