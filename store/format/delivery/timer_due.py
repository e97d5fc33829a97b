"""When a message of the timer topic is due, by its properties.

RocketMQ rounds the time of a delivery down: TIMER_OUT_MS is a whole second before it, at most one (its timerPrecisionMs), and
the message goes in the second that follows (`HookUtils.transformTimerMessage`). So the time itself counts where the record says
it and it fits TIMER_OUT_MS; otherwise the end of that second does.
"""

from collections.abc import Mapping

from store.format.properties import TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TIMER_OUT_MS

# RocketMQ's largest timerPrecisionMs.
PRECISION_MILLIS = 1_000
# Digits of a time in milliseconds, up to the year 5138.
MILLIS_DIGITS_MAX = 14


def slot_millis(properties: Mapping[str, str]) -> int | None:
    """TIMER_OUT_MS (ms since 1970); None when a record does not say it."""
    return natural(properties.get(TIMER_OUT_MS))


def timer_due_millis(properties: Mapping[str, str], store_time_millis: int) -> int | None:
    """When the message is due (ms since 1970); None when its record does not say.

    RocketMQ looks at TIMER_DELAY_SEC first, then at TIMER_DELAY_MS; the delay counts from before the store time.

    Args:
        properties: of the record.
        store_time_millis: of the record.
    """
    slot = slot_millis(properties)
    if slot is None:
        return None
    end_millis = slot + PRECISION_MILLIS
    for name, unit_millis in ((TIMER_DELAY_SEC, 1_000), (TIMER_DELAY_MS, 1)):
        if name in properties:
            delay = natural(properties[name])
            if delay is None:
                return end_millis
            return min(max(store_time_millis + delay * unit_millis, slot + 1), end_millis)
    deliver_millis = natural(properties.get(TIMER_DELIVER_MS))
    if deliver_millis is not None and slot < deliver_millis <= end_millis:
        return deliver_millis
    return end_millis


def natural(text: str | None) -> int | None:
    """A number of at most MILLIS_DIGITS_MAX digits; None for anything else."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= MILLIS_DIGITS_MAX):
        return None
    return int(text)
