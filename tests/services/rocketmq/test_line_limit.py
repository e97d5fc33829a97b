"""How many lines are written about clients."""

from services.rocketmq.line_limit import LineLimit


def test_lines_beyond_the_limit_are_counted_in_the_next_one() -> None:
    now = [5.0]
    limit = LineLimit(lambda: now[0], 2)
    assert [limit.take() for _ in range(5)] == [{}, {}, None, None, None]
    now[0] += 0.9
    assert limit.take() is None
    now[0] += 0.1
    assert [limit.take() for _ in range(3)] == [{"suppressed_count": 4}, {}, None]
