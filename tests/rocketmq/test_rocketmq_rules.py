"""The judge of differences is no rubber stamp: what none of RocketMQ's bugs explains stays unexplained."""

from store.format.host import Host
from store.format.record import Record
from tests.rocketmq.rocketmq_rules import Answer, Question, explanation, java_string_hash, rocketmqs_rules

HOST = Host("127.0.0.1", 10911)


def record(number: int, topic: str, keys: str, store_time_millis: int) -> Record:
    """At commit-log offset `number`, with a unique key of its own."""
    properties = f"KEYS\x01{keys}\x02UNIQ_KEY\x01unique-{number}\x02".encode()
    return Record(topic, 0, 0, number, 100, 0, 0, 0, HOST, store_time_millis, HOST, 0, 0, 0, b"", properties)


LOG = [
    record(0, "t", "Aa", 1_000_000),
    record(1, "t", "BB", 1_000_400),
    record(2, "t", "Aa Aa", 1_000_900),
    record(3, "t", "BB", 1_001_500),
]


def test_the_hash_is_javas() -> None:
    """Values of String.hashCode from Java's own documentation and folklore."""
    assert java_string_hash("") == 0
    assert java_string_hash("Aa") == java_string_hash("BB") == 2112
    assert java_string_hash("polygenelubricants") == 1 << 31, "the smallest int"


def test_each_bug_alone_has_its_own_effect() -> None:
    everything = Question("key", "t", "Aa", count=2)
    window = Question("key", "t", "Aa", begin=1_000_500, end=1_000_950)
    assert rocketmqs_rules(everything, LOG, frozenset()) == [2, 0]
    assert rocketmqs_rules(everything, LOG, frozenset({"budget"})) == [2]
    assert rocketmqs_rules(everything, LOG, frozenset({"twice"})) == [2, 2]
    assert rocketmqs_rules(window, LOG, frozenset()) == [2]
    assert rocketmqs_rules(window, LOG, frozenset({"seconds"})) == []


def test_a_difference_is_named_by_the_fewest_bugs_and_any_other_is_not_named() -> None:
    question = Question("key", "t", "Aa", count=2)
    assert explanation(question, LOG, Answer((2,)), [2, 0]) == {"budget"}
    assert explanation(question, LOG, Answer((2, 2)), [2, 0]) == {"twice"}
    for wrong in ((0,), (), (0, 1, 2), (3,)):
        assert explanation(question, LOG, Answer(wrong), [2, 0]) is None
    assert explanation(Question("unique_key", "t", "u"), LOG, Answer((0,)), [2, 0]) == {"one copy"}
    assert explanation(Question("unique_key", "t", "u"), LOG, Answer((3,)), [2, 0]) is None
    assert explanation(Question("time", "t"), LOG, Answer(queue_offset=3), [2]) is None
