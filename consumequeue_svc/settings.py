"""Settings of the consumequeue service; services/settings/setting_names.py has names, defaults and meanings."""

import pydantic

from services.following.file_check import VERIFY_BYTES_PER_SECOND, VERIFY_BYTES_PER_SECOND_MIN
from services.settings.service_settings import StoreSettings
from store.format.derived.queue_ext import FILE_SIZE_BYTES as EXT_FILE_SIZE_BYTES
from store.format.derived.queue_unit import UNIT_SIZE_BYTES

EXT_FILE_SIZE_BYTES_MIN = 64  # two units


class ConsumeQueueSettings(StoreSettings):
    """The settings.

    Attributes:
        address: at which the service listens.
        commitlog_target: address of the commitlog service.
        file_size_bytes: size of a queue file, rounded up to whole units; the files of an existing store decide it.
        ext: write RocketMQ's ConsumeQueueExt (ADR 0066).
        ext_file_size_bytes: size of its files.
        verify_bytes_per_second_max: limit for reading files to check them.
    """

    address: str = "127.0.0.1:8083"
    commitlog_target: str = "127.0.0.1:8082"
    file_size_bytes: int = pydantic.Field(6_000_000, ge=UNIT_SIZE_BYTES, le=1 << 30)
    ext: bool = False
    ext_file_size_bytes: int = pydantic.Field(EXT_FILE_SIZE_BYTES, ge=EXT_FILE_SIZE_BYTES_MIN, le=1 << 30)
    verify_bytes_per_second_max: int = pydantic.Field(VERIFY_BYTES_PER_SECOND, ge=VERIFY_BYTES_PER_SECOND_MIN)

    @pydantic.field_validator("file_size_bytes")
    @classmethod
    def _whole_units(cls, value: int) -> int:
        # RocketMQ rounds up to whole units in the same way.
        return -(-value // UNIT_SIZE_BYTES) * UNIT_SIZE_BYTES
