"""Store times of a broker's log: its clock is set back now and then, and single records are of the future or of the past."""

import random

DAY_MILLIS = 86_400_000


def falling_times(begin_millis: int, count: int, seed: int, *, fall_share: float = 0.02) -> list[int]:
    """Store times in log order, in milliseconds since 1970 UTC; the clock is set back before this share of the records."""
    random_ = random.Random(seed)
    times: list[int] = []
    now = begin_millis
    for _ in range(count):
        chance = random_.random()
        now += random_.choice((0, 0, 1, 3)) if chance > fall_share else -random_.randrange(1, 200)
        wild = {0.97: 30 * DAY_MILLIS, 0.98: -30 * DAY_MILLIS}
        times.append(now + next((step for from_, step in wild.items() if from_ <= chance < from_ + 0.003), 0))
    return times


def moments_of(times: list[int], count: int, seed: int) -> list[int]:
    """Times to ask for: the ends, and those at and beside some of the records."""
    chosen = random.Random(seed).sample(times, min(count, len(times)))
    return sorted({min(times) - 1, max(times) + 1} | {time + step for time in chosen for step in (-1, 0, 1)})
