"""Settings of the consumequeue service; names, defaults and meanings stand in services/setting_names.py."""

import pydantic

from services.settings import StoreSettings
from store.format.queue_unit import UNIT_SIZE_BYTES


class ConsumeQueueSettings(StoreSettings):
    """What the consumequeue service can be told.

    Attributes:
        commitlog_target: where the commitlog service is.
        file_size_bytes: size of a queue file, whole units; existing queues decide themselves.
    """

    address: str = "127.0.0.1:8083"
    commitlog_target: str = "127.0.0.1:8082"
    file_size_bytes: int = pydantic.Field(6_000_000, ge=UNIT_SIZE_BYTES, le=1 << 30)

    @pydantic.field_validator("file_size_bytes")
    @classmethod
    def _whole_units(cls, value: int) -> int:
        # RocketMQ rounds up to whole units in the same way.
        return -(-value // UNIT_SIZE_BYTES) * UNIT_SIZE_BYTES
