"""Which store time a new record gets: the clock's, and where the clock was set back a little, that of the record before it.

See docs/adr/0103-store-times-follow-the-clock.md.
"""

# How far the newest record may be ahead of the clock and still count. Steps of NTP, and clocks of machines that follow one
# another as leaders, differ by less; a record that is further ahead was stored with a wrong clock, and time goes on without it.
AHEAD_MILLIS_MAX = 60_000


def next_store_time(clock_millis: int, newest_millis: int) -> int:
    """The store time of a record that is stored now.

    Args:
        clock_millis: now by the clock, since 1970.
        newest_millis: store time of the newest record.
    """
    return newest_millis if clock_millis <= newest_millis <= clock_millis + AHEAD_MILLIS_MAX else clock_millis
