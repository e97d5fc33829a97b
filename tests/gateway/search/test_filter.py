"""What a filter decides, and in which order it looks."""

import zlib

import pytest

from gateway.ports.shard import TAGS_CODE_UNKNOWN
from gateway.search.filter import CEL_BATCH_COUNT_MAX, Conditions, MessageFilter
from gateway.search.message_view import INFLATED_BYTES_MAX, MessageView
from store.errors import RecordCorruptedError, UnsupportedStoreError
from store.format.java_text import java_string_hash
from tests.support.compressed_bodies import STORED

ZLIB, ZLIB_UNMARKED, LZ4, UNKNOWN = 0x301, 0x001, 0x101, 0x501


def view(body: bytes = b"", sys_flag: int = 0, queue_offset: int = 0) -> MessageView:
    return MessageView("t", 0, queue_offset, 7, 100, 0, sys_flag, 0, "h", 0, "h", 0, "a", (), "", {"p": "1"}, body)


def never() -> bool:
    return False


class Recorder:
    """An evaluator that notes what it is asked and says yes to even positions, for as many as it is allowed."""

    def __init__(self, needs_body: bool = True, allowed: int = 1 << 30) -> None:
        self.needs_body = needs_body
        self.allowed = allowed
        self.batches: list[list[bytes]] = []

    def evaluate(self, messages):
        self.batches.append([body for _, body in messages])
        values = [view.queue_offset % 2 == 0 for view, _ in messages][: self.allowed]
        self.allowed -= len(values)
        return values


@pytest.mark.parametrize("sys_flag", [ZLIB, ZLIB_UNMARKED])
def test_a_needle_is_looked_for_in_what_was_sent(sys_flag):
    packed = view(zlib.compress(b"hay" * 100 + b"needle"), sys_flag)
    (found,) = MessageFilter(Conditions(needle=b"needle"), None).decide([packed], never)
    assert found.matches
    (missed,) = MessageFilter(Conditions(needle=packed.body[:8]), None).decide([packed], never)
    assert not missed.matches
    assert missed.error is None


@pytest.mark.parametrize(
    ("body", "sys_flag", "error"),
    [
        (b"no zlib", ZLIB, RecordCorruptedError),
        (zlib.compress(b"x" * 1000)[:-6], ZLIB, RecordCorruptedError),
        (b"no LZ4", LZ4, RecordCorruptedError),
        (b"anything", UNKNOWN, UnsupportedStoreError),
        (zlib.compress(bytes(INFLATED_BYTES_MAX + 1)), ZLIB, UnsupportedStoreError),
    ],
)
def test_a_body_that_cannot_be_looked_into_is_no_answer(body, sys_flag, error):
    for needle, evaluator in ((b"x", None), (b"", Recorder())):
        (verdict,) = MessageFilter(Conditions(needle=needle), evaluator).decide([view(body, sys_flag)], never)
        assert isinstance(verdict.error, error)
        assert verdict.error.metadata["commitLogOffset"] == "7"
    assert [verdict.matches for verdict in MessageFilter(Conditions(), None).decide([view(body, sys_flag)], never)] == [
        True
    ]


@pytest.mark.parametrize("sys_flag", STORED)
def test_what_rocketmq_compressed_is_looked_into(sys_flag):
    views = [view(STORED[sys_flag], sys_flag)] * 2
    found = [
        [verdict.matches for verdict in MessageFilter(Conditions(needle=needle), None).decide(views, never)]
        for needle in ("again, 订单".encode(), b"nowhere")
    ]
    assert found == [[True, True], [False, False]]


def test_a_body_of_just_the_limit_is_searched():
    packed = view(zlib.compress(bytes(INFLATED_BYTES_MAX - 1) + b"!"), ZLIB)
    (verdict,) = MessageFilter(Conditions(needle=b"!"), None).decide([packed], never)
    assert (verdict.matches, verdict.error) == (True, None)


def test_an_expression_sees_only_what_the_other_conditions_let_through():
    evaluator = Recorder()
    views = [view(b"needle" if number % 3 == 0 else b"hay", queue_offset=number) for number in range(12)]
    verdicts = list(MessageFilter(Conditions(needle=b"needle"), evaluator).decide(views, never))

    assert evaluator.batches == [[b"needle"] * 4]
    assert [number for number, verdict in enumerate(verdicts) if verdict.matches] == [0, 6]


def test_an_expression_that_looks_at_no_body_gets_none():
    evaluator = Recorder(needs_body=False)
    list(MessageFilter(Conditions(), evaluator).decide([view(b"no zlib", ZLIB)], never))
    assert evaluator.batches == [[b""]]


def test_an_expression_is_asked_in_batches_of_bounded_size():
    evaluator = Recorder()
    bomb = zlib.compress(bytes(600_000))
    list(MessageFilter(Conditions(), evaluator).decide([view(bomb, ZLIB) for _ in range(7)], never))
    assert [len(batch) for batch in evaluator.batches] == [2, 2, 2, 1]
    evaluator = Recorder()
    list(MessageFilter(Conditions(), evaluator).decide([view(b"x")] * (CEL_BATCH_COUNT_MAX + 1), never))
    assert [len(batch) for batch in evaluator.batches] == [CEL_BATCH_COUNT_MAX, 1]


def test_when_time_is_over_there_are_verdicts_only_for_the_first():
    views = [view(b"a", queue_offset=number) for number in range(10)]
    verdicts = list(MessageFilter(Conditions(), Recorder(allowed=4)).decide(views, never))
    assert [verdict.matches for verdict in verdicts] == [True, False, True, False]


@pytest.mark.parametrize(
    ("code", "ruled_out"),
    [
        (java_string_hash("TagA"), False),
        (java_string_hash("TagB"), True),
        (0, True),
        (TAGS_CODE_UNKNOWN, False),
        (1_795_256_954_035, False),  # a deliver time
        (-(1 << 31) - 1, False),  # an address in ConsumeQueueExt
        (1 << 31, False),
    ],
)
def test_only_a_code_that_is_a_hash_rules_out(code, ruled_out):
    assert MessageFilter(Conditions(tags=frozenset(["TagA"])), None).rules_out(code) is ruled_out
    assert not MessageFilter(Conditions(), None).rules_out(code)


def test_an_expression_is_asked_for_what_there_is_when_looking_into_bodies_takes_too_long():
    answers = iter([False, False, True])
    evaluator = Recorder()
    views = [view(b"a", queue_offset=number) for number in range(10)]
    verdicts = list(MessageFilter(Conditions(), evaluator).decide(views, lambda: next(answers)))
    assert [verdict.matches for verdict in verdicts] == [True, False, True]
    assert evaluator.batches == [[b"a"] * 3]


def test_however_little_time_there_is_one_message_is_decided():
    for evaluator in (Recorder(), None):
        (verdict,) = MessageFilter(Conditions(), evaluator).decide([view(b"a")] * 2, lambda: True)
        assert verdict.matches
