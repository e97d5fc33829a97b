"""Settings of the schedule service; services/settings/setting_names.py has names, defaults and meanings."""

import pydantic

from services.settings.service_settings import StoreSettings


class ScheduleSettings(StoreSettings):
    """The settings.

    Attributes:
        address: at which the service listens.
        commitlog_target: address of the commitlog service.
        consumequeue_target: address of the consumequeue service.
        roll_after_seconds: timers that were stored longer ago are stored again (`timers/roller.py`).
        transaction_timeout_seconds: nobody is asked for the verdict of a half message for so long.
        transaction_check_interval_seconds: between two checks of a half message.
        transaction_check_count_max: checks before it is given up.
    """

    address: str = "127.0.0.1:8086"
    commitlog_target: str = "127.0.0.1:8082"
    consumequeue_target: str = "127.0.0.1:8083"
    roll_after_seconds: int = pydantic.Field(129_600, ge=60)
    transaction_timeout_seconds: float = pydantic.Field(6.0, gt=0, le=86_400)
    transaction_check_interval_seconds: float = pydantic.Field(30.0, gt=0, le=86_400)
    transaction_check_count_max: int = pydantic.Field(15, ge=1, le=10_000)
