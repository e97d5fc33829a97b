"""Which producers are asked for verdicts, and what the schedule services are told of them."""

import itertools
import string
import threading

import pytest

from gateway.waiting.keeping import ProducerKeeping
from gateway.waiting.producers import NAME_COUNT_MAX, NAMES_BYTES_MAX, UNASKED_COUNT_MAX, Producers
from gateway.waiting.shards import SchedulingShards
from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1.schedule_service_pb2 import WatchChecksResponse
from schedule_svc.transactions.checker import CheckGateways
from tests.gateway.waiting.memory_waiting import MemoryScheduling
from tests.support.waiting import WAIT_SECONDS_MAX


class MemorySession:
    """A way to a producer that remembers what it was asked."""

    def __init__(self, *, is_reachable: bool = True) -> None:
        self.is_reachable = is_reachable
        self.asked: list[str] = []
        self.was_asked = threading.Event()

    def ask(self, check: WatchChecksResponse.Check) -> bool:
        if self.is_reachable:
            self.asked.append(check.transaction_id)
            self.was_asked.set()
        return self.is_reachable


def check(transaction_id: str, topic: str = "Orders") -> WatchChecksResponse.Check:
    return WatchChecksResponse.Check(message=StoredMessage(topic=topic), transaction_id=transaction_id)


def test_a_check_goes_to_one_producer_of_its_topic_and_to_another_when_that_cannot_be_asked() -> None:
    producers = Producers(choose=lambda sessions: sessions[0])
    gone, here, other = MemorySession(is_reachable=False), MemorySession(), MemorySession()
    for client_id, session, topics in (("1", gone, ["Orders"]), ("2", here, ["Orders", "T"]), ("3", other, ["T"])):
        producers.settle(client_id, session, topics)
    assert producers.ask(check("a"))
    assert (here.asked, other.asked) == (["a"], [])
    assert not producers.ask(check("b", "Unheard"))


def test_a_check_that_asked_nobody_is_told_to_its_shard_once() -> None:
    producers = Producers()
    producers.settle("1", MemorySession(is_reachable=False), ["Orders"])
    shard = MemoryScheduling("broker-a")
    source = SchedulingShards(producers, "gateway-1")
    source.keep([shard])
    keeping = ProducerKeeping(producers, source, "gateway-1")
    producers.ask_all("broker-a", [check("a"), check("b")])
    producers.ask_all("broker-b", [check("c")])
    for _ in range(2):
        keeping.keep()
    source.close()
    assert shard.unasked == ["a", "b"]


def test_checks_that_asked_nobody_are_remembered_up_to_a_limit() -> None:
    producers = Producers()
    producers.ask_all("broker-a", [check(str(number)) for number in range(UNASKED_COUNT_MAX + 1)])
    producers.ask_all("broker-a", [check("last")])
    assert len(producers.take_unasked("broker-a")) == UNASKED_COUNT_MAX


def test_a_check_goes_to_a_producer_of_its_group_whatever_the_topic() -> None:
    producers = Producers(choose=lambda sessions: sessions[0])
    of_group, of_topic = MemorySession(), MemorySession()
    producers.settle("1", of_group, (), {"tx", "other"})
    producers.settle("2", of_topic, ["Bills"])
    asked = check("a")
    asked.message.properties["PGROUP"] = "tx"
    assert producers.ask(asked)
    assert (of_group.asked, of_topic.asked) == (["a"], [])
    assert sorted(producers.groups()) == ["other", "tx"]
    producers.settle("1", of_group, (), {"other"})
    assert not producers.ask(asked)
    producers.end("1")
    assert producers.groups() == []


def test_a_call_names_no_more_groups_than_it_has_room_for() -> None:
    producers = Producers()
    producers.settle("1", MemorySession(), (), {f"{number:0255}" for number in range(8_192)})
    assert len(producers.groups()) == NAMES_BYTES_MAX // 255


def test_one_client_with_many_names_switched_off_the_checks_of_a_gateway() -> None:
    """66,560 groups of four letters were more than the service takes, so it took no name of any client."""
    producers = Producers()
    letters = itertools.product(string.ascii_letters, repeat=4)
    groups = [{"".join(next(letters)) for _ in range(1_024)} for _ in range(65)]
    sessions = [MemorySession() for _ in groups]
    for session, names in zip(sessions, groups, strict=True):
        producers.settle("many", session, sorted(names), names, owner=(f"ipv4:10.0.0.9:{id(session)}", "ipv4:10.0.0.9"))
    producers.settle("late", MemorySession(), ["bills"], {"bank"}, owner=("ipv4:10.0.0.7:1", "ipv4:10.0.0.7"))
    for told, name in ((producers.topics(), "bills"), (producers.groups(), "bank")):
        assert len(told) == len(set(told)) == NAME_COUNT_MAX
        assert name in told
    CheckGateways().keep("gateway-1", producers.topics(), producers.groups())
    for session in sessions:
        producers.drop(session)
    assert (producers.topics(), producers.groups()) == (["bills"], ["bank"])


def test_long_names_of_one_address_left_out_the_groups_of_others() -> None:
    producers = Producers()
    for number in range(5):
        names = {f"{number}-{count:0253}" for count in range(1_024)}
        producers.settle("many", MemorySession(), (), names, owner=(f"ipv4:10.0.0.9:{number}", "ipv4:10.0.0.9"))
    for number in range(50):
        producers.settle(
            "late", MemorySession(), (), {f"bank-{number}"}, owner=(f"ipv4:10.0.0.7:{number}", "ipv4:10.0.0.7")
        )
    assert {f"bank-{number}" for number in range(50)} <= set(producers.groups())


def test_a_heartbeat_that_said_nothing_new_told_every_shard(kept) -> None:
    """Clients send one each 30 s, so many of them had the shards told ten times a second."""
    producers, _, _ = kept
    session, other = MemorySession(), MemorySession()
    producers.settle("1", session, (), {"tx"})
    assert producers.wait_for_change(0)
    producers.settle("1", session, (), {"tx"})
    producers.settle("2", other, (), {"tx"})
    producers.drop(other)
    assert not producers.wait_for_change(0)
    producers.settle("1", session, (), {"tx", "other"})
    assert producers.wait_for_change(0)
    producers.end("1")
    assert producers.wait_for_change(0)


def test_new_settings_replace_the_topics_and_the_end_of_a_client_or_stream_forgets_them() -> None:
    producers = Producers()
    first, second, third = MemorySession(), MemorySession(), MemorySession()
    producers.settle("1", first, ["A", "B"])
    producers.settle("1", first, ["B", "C"])
    producers.settle("2", second, ["C"])
    producers.settle("1", third, ["D"])
    assert sorted(producers.topics()) == ["B", "C", "D"]
    producers.end("1")
    assert sorted(producers.topics()) == ["C"]
    producers.drop(second)
    assert producers.topics() == []
    assert not producers.ask(check("a", "C"))


@pytest.fixture
def kept():
    """Two shards that are told of producers, and the producers."""
    producers = Producers()
    shards = MemoryScheduling("broker-a"), MemoryScheduling("broker-b")
    source = SchedulingShards(producers, "gateway-1")
    source.keep(shards)
    keeping = ProducerKeeping(producers, source, "gateway-1")
    yield producers, shards, keeping
    keeping.close()
    source.close()


def test_every_shard_is_told_of_a_change_soon_and_of_the_end(kept) -> None:
    producers, shards, keeping = kept
    keeping.start()
    session = MemorySession()
    producers.settle("1", session, ["Orders", "Bills"])
    for shard in shards:
        assert shard.told.get(timeout=WAIT_SECONDS_MAX) == ("gateway-1", ["Bills", "Orders"])
    producers.settle("1", session, (), {"tx"})
    for shard in shards:
        assert shard.told.get(timeout=WAIT_SECONDS_MAX) == ("gateway-1", ["tx"])
    producers.drop(session)
    for shard in shards:
        assert shard.told.get(timeout=WAIT_SECONDS_MAX) == ("gateway-1", [])


def test_a_shard_that_is_down_does_not_keep_the_others_from_being_told(kept) -> None:
    producers, shards, keeping = kept
    shards[0].is_down = True
    producers.settle("1", MemorySession(), ["Orders"])
    keeping.keep()
    assert shards[1].told.get(timeout=WAIT_SECONDS_MAX) == ("gateway-1", ["Orders"])
    assert shards[0].told.empty()


def test_a_gateway_without_producers_tells_nothing(kept) -> None:
    _, shards, keeping = kept
    keeping.keep()
    assert all(shard.told.empty() for shard in shards)


def test_the_checks_of_each_shard_reach_the_producers(kept) -> None:
    producers, shards, _ = kept
    session = MemorySession()
    producers.settle("1", session, ["Orders"])
    shards[0].stream.feed(check("a"), check("b"))
    assert session.was_asked.wait(WAIT_SECONDS_MAX)
    session.was_asked.clear()
    shards[1].stream.feed(check("c"))
    while "c" not in session.asked:
        assert session.was_asked.wait(WAIT_SECONDS_MAX)
        session.was_asked.clear()
    assert sorted(session.asked) == ["a", "b", "c"]


def test_the_end_waits_for_no_interval_and_leaves_no_thread(kept) -> None:
    _, _, keeping = kept
    before = set(threading.enumerate())
    keeping.start()
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "keep-producers")
    keeping.close()
    assert not thread.is_alive()
