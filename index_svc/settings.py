"""Settings of the index service; services/settings/setting_names.py has names, defaults and meanings."""

import pydantic

from services.following.file_check import VERIFY_BYTES_PER_SECOND, VERIFY_BYTES_PER_SECOND_MIN
from services.settings.service_settings import StoreSettings


class IndexSettings(StoreSettings):
    """The settings.

    Attributes:
        address: at which the service listens.
        commitlog_target: address of the commitlog service.
        hash_slot_count: slots of an index file; the files of an existing store decide it.
        entry_count_max: RocketMQ's maxIndexNum, one more than the entries that fit; the files of an existing store decide it.
        enabled: build index files; if False, only existing files are served.
        verify_bytes_per_second_max: limit for reading files to check them.
    """

    address: str = "127.0.0.1:8084"
    commitlog_target: str = "127.0.0.1:8082"
    hash_slot_count: int = pydantic.Field(5_000_000, ge=1, le=1 << 29)
    entry_count_max: int = pydantic.Field(20_000_000, ge=2, le=1 << 30)
    enabled: bool = True
    verify_bytes_per_second_max: int = pydantic.Field(VERIFY_BYTES_PER_SECOND, ge=VERIFY_BYTES_PER_SECOND_MIN)
