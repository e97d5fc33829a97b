"""Counts by topic and group: sums and rates of the last minute, hour and day, compared with a list of all that was counted."""

import random
from datetime import datetime

import pytest

from consumer_svc.figures import APPENDED, DELIVERED, SENT_BACK, Figures
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.errors import InvalidArgumentError

DAY_SECONDS = 86_400.0


class Clock:
    def __init__(self):
        self.seconds = 0.0
        self.began = datetime(2026, 3, 3, 12).timestamp()

    def rising(self):
        return self.seconds

    def wall(self):
        return self.began + self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def figures(clock):
    return Figures(clock.rising, clock.wall)


def ask(figures, kind, topic="", group="", *, without_system_topics=False):
    key = pb.FigureKey(kind=kind, topic=topic, consumer_group=group, without_system_topics=without_system_topics)
    return figures.answer(pb.GetFiguresRequest(keys=[key])).figures[0]


def test_a_new_row_was_nothing_for_ten_seconds_so_its_first_messages_are_no_endless_rate(figures):
    figures.add(APPENDED, "t", "", 5, 500)
    minute = ask(figures, APPENDED, "t").minute
    assert (minute.message_count, minute.size_bytes, minute.call_count, minute.duration_millis) == (5, 500, 1, 10_000)


def test_what_was_not_counted_is_not_known(figures):
    figures.add(APPENDED, "t", "", 0, 0)
    assert not ask(figures, APPENDED, "t").is_known
    assert not ask(figures, DELIVERED, "t", "g").is_known


def test_a_topic_a_group_and_the_shard_are_counted_apart(figures):
    figures.add(APPENDED, "t", "", 2, 20)
    figures.add(APPENDED, "SCHEDULE_TOPIC_XXXX", "", 3, 30)
    figures.add(DELIVERED, "t", "g", 4, 40)
    figures.add(DELIVERED, "t", "", 1, 10)  # a pull without a group
    figures.add(SENT_BACK, "t", "g", 1, 0)
    assert ask(figures, APPENDED, "t").total.message_count == 2
    assert ask(figures, APPENDED).total.message_count == 5
    assert ask(figures, APPENDED, without_system_topics=True).total.message_count == 2
    assert ask(figures, DELIVERED, "t", "g").total.message_count == 4
    assert not ask(figures, DELIVERED, "t").is_known
    assert ask(figures, DELIVERED).total.size_bytes == 50
    assert ask(figures, SENT_BACK, "t", "g").total.message_count == 1


def test_the_records_of_reputs_own_state_are_not_counted(figures):
    figures.add(APPENDED, "rmq_sys_REPUT_CONSUMER_STATE", "", 1, 100)
    assert not ask(figures, APPENDED).is_known


@pytest.mark.parametrize("seed", range(20))
def test_spans_are_what_a_list_of_all_that_was_counted_gives(figures, clock, seed):
    draw = random.Random(seed)
    counted = [(0.0, 0)]
    pause_max = draw.choice([3, 30, 300, 3_000, 30_000])
    for _ in range(200):
        count = draw.randint(1, 9)
        counted.append((clock.seconds, count))
        figures.add(APPENDED, "t", "", count, count * 7)
        clock.seconds += draw.choice([0.0, draw.uniform(0, pause_max)])
    figure = ask(figures, APPENDED, "t")
    for span, least, most in (
        (figure.ten_seconds, 10, 20),
        (figure.minute, 50, 60),
        (figure.ten_minutes, 600, 1_200),
        (figure.hour, 3_000, 3_600),
        (figure.day, 23 * 3_600, 24 * 3_600),
    ):
        seconds = span.duration_millis / 1_000
        assert 10 <= seconds <= most
        if clock.seconds >= most:
            assert seconds >= least
        # What came in the millisecond of the begin may be on either side of it.
        begin = clock.seconds - seconds
        sums = [sum(count for at, count in counted if at > begin + slack) for slack in (-0.002, 0.002)]
        assert sums[1] <= span.message_count <= sums[0]
        assert span.size_bytes == span.message_count * 7
    assert figure.total.message_count == sum(count for _, count in counted)


def test_counts_at_the_begins_of_days_are_kept(figures, clock):
    figures.add(APPENDED, "t", "", 5, 1)
    clock.seconds += DAY_SECONDS / 2 + 1  # the next morning
    figures.add(APPENDED, "t", "", 2, 1)
    shard = ask(figures, APPENDED, without_system_topics=True)
    assert (shard.total.message_count, shard.message_count_today, shard.message_count_yesterday) == (7, 5, 0)
    clock.seconds += DAY_SECONDS
    shard = ask(figures, APPENDED, without_system_topics=True)
    assert (shard.total.message_count, shard.message_count_today, shard.message_count_yesterday) == (7, 7, 5)
    clock.seconds += 3 * DAY_SECONDS  # nothing came for days
    shard = ask(figures, APPENDED, without_system_topics=True)
    assert (shard.message_count_today, shard.message_count_yesterday) == (7, 7)


def test_beyond_the_limit_the_row_that_changed_longest_ago_is_forgotten(clock):
    figures = Figures(clock.rising, clock.wall, row_count_max=4)
    for topic in ("a", "b", "a", "c"):  # two rows are the shard's
        figures.add(APPENDED, topic, "", 1, 1)
    assert ask(figures, APPENDED, "a").is_known
    assert not ask(figures, APPENDED, "b").is_known
    assert ask(figures, APPENDED).total.message_count == 4


def test_records_of_the_log_are_counted_by_topic(figures):
    sizes = (("a", 100), ("b", 200), ("a", 300))
    records = [DispatchRequest(topic, 0, 0, 0, size, 0, 0, (), "", 0, 0) for topic, size in sizes]
    figures.add_records(DispatchColumns.of(records))
    of_a = ask(figures, APPENDED, "a").total
    assert (of_a.message_count, of_a.size_bytes, of_a.call_count) == (2, 400, 1)
    assert ask(figures, APPENDED).total.size_bytes == 600


def test_records_counted_together_are_the_figures_of_each_topic_counted_alone(clock):
    sizes = (("a", 100), ("SCHEDULE_TOPIC_XXXX", 50), ("b", 200), ("rmq_sys_REPUT_CONSUMER_STATE", 70), ("a", 300))
    records = [DispatchRequest(topic, 0, 0, 0, size, 0, 0, (), "", 0, 0) for topic, size in sizes]
    together, alone = (Figures(clock.rising, clock.wall) for _ in range(2))
    together.add_records(DispatchColumns.of(records))
    for topic in dict(sizes):
        of_topic = [size for name, size in sizes if name == topic]
        alone.add(APPENDED, topic, "", len(of_topic), sum(of_topic))

    for topic in ("", *dict(sizes)):
        assert ask(together, APPENDED, topic) == ask(alone, APPENDED, topic)
    assert ask(together, APPENDED, without_system_topics=True) == ask(alone, APPENDED, without_system_topics=True)


@pytest.mark.parametrize("count", [0, 16_385])
def test_a_question_names_some_figures_and_not_too_many(figures, count):
    request = pb.GetFiguresRequest(keys=[pb.FigureKey(kind=APPENDED)] * count)
    with pytest.raises(InvalidArgumentError, match=f"{count} keys"):
        figures.answer(request)
