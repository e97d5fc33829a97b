"""Settings of the consumequeue service."""

import pydantic

from services.following.file_check import VERIFY_BYTES_PER_SECOND, VERIFY_BYTES_PER_SECOND_MIN
from services.settings.service_settings import TARGETS, StoreSettings, listens_at, setting, target
from store.format.derived.queue_ext import FILE_SIZE_BYTES as EXT_FILE_SIZE_BYTES
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from store.format.topic import LIGHT_QUEUE_COUNT_MAX

EXT_FILE_SIZE_BYTES_MIN = 64  # two units


class ConsumeQueueSettings(StoreSettings):
    """See the top of services/settings/setting_names.py."""

    address: str = listens_at(TARGETS["consumequeue"])
    commitlog_target: str = target("commitlog")
    # Rounded up to whole units.
    file_size_bytes: int = setting(
        6_000_000,
        "Size of a queue file; existing queues decide themselves.",
        unit="bytes",
        ge=UNIT_SIZE_BYTES,
        le=1 << 30,
    )
    # ADR 0066.
    ext: bool = setting(False, "Keep tags codes in consumequeue_ext/; RocketMQ's enableConsumeQueueExt.")
    ext_file_size_bytes: int = setting(
        EXT_FILE_SIZE_BYTES,
        "Size of a file there; RocketMQ's mappedFileSizeConsumeQueueExt, which must be the same.",
        unit="bytes",
        ge=EXT_FILE_SIZE_BYTES_MIN,
        le=1 << 30,
    )
    light_queue_count_max: int = setting(
        LIGHT_QUEUE_COUNT_MAX,
        "Light queues (LMQ) and lite topics that are served; messages of further ones are left out of them.",
        unit="queues",
        ge=1,
        le=1 << 26,
    )
    verify_bytes_per_second_max: int = setting(
        VERIFY_BYTES_PER_SECOND,
        "Limit for reading files to find damage (docs/durability.md).",
        unit="bytes",
        ge=VERIFY_BYTES_PER_SECOND_MIN,
    )

    @pydantic.field_validator("file_size_bytes")
    @classmethod
    def _whole_units(cls, value: int) -> int:
        # RocketMQ rounds up to whole units in the same way.
        return -(-value // UNIT_SIZE_BYTES) * UNIT_SIZE_BYTES
