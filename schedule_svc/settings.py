"""Settings of the schedule service."""

from services.settings.service_settings import TARGETS, StoreSettings, listens_at, setting, target


class ScheduleSettings(StoreSettings):
    """See the top of services/settings/setting_names.py."""

    address: str = listens_at(TARGETS["schedule"])
    commitlog_target: str = target("commitlog")
    consumequeue_target: str = target("consumequeue")
    # schedule_svc/timers/roller.py.
    roll_after_seconds: int = setting(
        129_600,
        "Timers stored longer ago are stored again; at most half of file_reserved_seconds.",
        unit="seconds",
        ge=60,
    )
    transaction_timeout_seconds: float = setting(
        6.0,
        "No producer is asked for the verdict of a half message for so long, unless the message says otherwise.",
        unit="seconds",
        gt=0,
        le=86_400,
    )
    transaction_check_interval_seconds: float = setting(
        30.0, "Between two checks of a half message.", unit="seconds", gt=0, le=86_400
    )
    transaction_check_count_max: int = setting(
        15, "Of a half message, before it is given up.", unit="checks", ge=1, le=10_000
    )
