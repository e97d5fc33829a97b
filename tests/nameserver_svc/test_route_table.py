"""Routes over time: where the table differs from RocketMQ's on purpose, what expires, and what it may grow to."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nameserver_svc import route_table
from nameserver_svc.route_table import MasterAddress, RouteTable
from services.rocketmq.registration import QueueData, Registration
from store.errors import ResourceBusyError
from store.format.topic import DataVersion

EIGHT, FOUR = QueueData(8, 8, 6, 0), QueueData(4, 4, 6, 0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def registration(
    name: str = "a",
    address: str = "10.0.0.1:10911",
    topics: Mapping[str, QueueData] | None = None,
    *,
    broker_id: int = 0,
    counter: int = 1,
    state: int = 0,
    timeout_millis: int = 120_000,
    acts_for_master: bool | None = None,
) -> Registration:
    topics = {"t": EIGHT, "u": EIGHT} if topics is None else topics
    version = DataVersion(state, 1000, counter)
    return Registration("c", name, broker_id, address, "", timeout_millis, acts_for_master, version, topics, ())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> RouteTable:
    return RouteTable(clock)


def addresses_of(table: RouteTable, name: str) -> dict[int, str]:
    broker = table.broker(name)
    return {} if broker is None else broker.addresses


def queues(table: RouteTable, topic: str) -> dict[str, QueueData]:
    route = table.route(topic)
    return {} if route is None else dict(route.queues)


def test_a_change_that_comes_with_the_version_of_another_one_is_taken(table: RouteTable) -> None:
    table.register(registration(), "c1")
    table.register(registration(topics={"t": FOUR, "u": EIGHT}), "c1")
    assert queues(table, "t") == {"a": FOUR}


def test_a_broker_that_registers_one_topic_first_is_known_and_asked_for_all(table: RouteTable) -> None:
    table.register(registration(topics={"t": EIGHT}), "c1")
    assert queues(table, "t") == {"a": EIGHT}
    assert table.check_version("10.0.0.1:10911") is None
    table.register(registration(), "c1")
    assert table.check_version("10.0.0.1:10911") == DataVersion(0, 1000, 1)
    assert all(broker.addresses for broker in table.brokers())


def test_a_broker_whose_clock_was_set_back_still_changes_its_routes(table: RouteTable, clock: Clock) -> None:
    """Versions have the times of brokers: only whether they differ counts. A broker lives by the clock of the name server."""
    table.register(registration(), "c1")
    before = registration(topics={"t": FOUR, "u": EIGHT}, counter=2)
    table.register(replace(before, version=DataVersion(0, 1, 1)), "c1")
    assert queues(table, "t") == {"a": FOUR}
    assert table.check_version("10.0.0.1:10911") == DataVersion(0, 1, 1)
    clock.now += 119
    assert table.expire() == []


def test_a_topic_that_is_registered_alone_later_changes_only_itself(table: RouteTable) -> None:
    table.register(registration(), "c1")
    table.register(registration(topics={"u": FOUR}, counter=2), "c1")
    assert (queues(table, "t"), queues(table, "u")) == ({"a": EIGHT}, {"a": FOUR})
    assert table.check_version("10.0.0.1:10911") == DataVersion(0, 1000, 2)


def test_a_broker_is_gone_when_it_has_not_registered_in_its_time(table: RouteTable, clock: Clock) -> None:
    table.register(registration("a", "1"), "c1")
    table.register(registration("b", "2", timeout_millis=3_000), "c2")
    clock.now += 3.1
    assert table.expire() == [("2", "c2")]
    assert queues(table, "t") == {"a": EIGHT}
    clock.now += 100
    table.note_heartbeat("1")
    table.note_heartbeat("unknown")
    clock.now += 100
    assert table.expire() == []
    assert table.check_version("1") == DataVersion(0, 1000, 1)  # this, too, says that it lives
    clock.now += 119
    assert table.expire() == []
    clock.now += 2
    assert table.expire() == [("1", "c1")]
    assert (table.brokers(), table.topics(), table.clusters()) == ([], [], {})


def test_a_broker_whose_other_connection_registered_it_stays_when_the_first_ends(table: RouteTable) -> None:
    table.register(registration(), "old")
    table.register(registration(), "new")
    assert table.end_owner("old") == []
    assert table.end_owner("new") == ["10.0.0.1:10911"]
    assert table.route("t") is None


def test_of_two_brokers_of_one_name_that_of_the_later_epoch_stays(table: RouteTable) -> None:
    table.register(registration(address="1", state=2), "c1")
    assert table.register(registration(address="2", state=1), "c2") == MasterAddress()
    assert addresses_of(table, "a") == {0: "1"}
    table.register(registration(address="3", broker_id=1, state=1), "c3")
    table.register(registration(address="3", broker_id=0, state=1), "c3")  # a slave that wants to be the master
    assert addresses_of(table, "a") == {0: "1"}
    table.end_owner("c2")
    table.end_owner("c3")
    assert queues(table, "t") == {"a": EIGHT}


def test_a_slave_stands_in_for_a_master_that_is_gone_where_it_may(table: RouteTable) -> None:
    table.register(registration(address="1", acts_for_master=True), "c1")
    table.register(registration(address="2", broker_id=2, acts_for_master=True), "c2")
    table.register(registration(address="3", broker_id=1, acts_for_master=True), "c3")
    table.end_owner("c1")

    route = table.route("t")
    assert route is not None
    assert route.brokers[0].addresses == {1: "3", 2: "2"}
    assert route.queues["a"].perm == 4


def test_an_address_that_comes_under_another_name_is_that_broker_only(table: RouteTable) -> None:
    table.register(registration("old", "1"), "c1")
    table.register(registration("new", "1", {"v": EIGHT, "w": EIGHT}), "c1")
    assert [broker.name for broker in table.brokers()] == ["new"]
    assert table.route("t") is None
    table.unregister("another", "1")
    assert table.end_owner("c1") == ["1"]
    assert (table.brokers(), table.topics()) == ([], [])


def test_the_first_slave_tells_the_topics_while_no_master_is_there(table: RouteTable) -> None:
    table.register(registration(address="2", broker_id=2, acts_for_master=False), "c2")
    assert queues(table, "t") == {"a": EIGHT}
    table.register(registration(address="3", broker_id=3, topics={"t": FOUR, "u": FOUR}, acts_for_master=False), "c3")
    assert queues(table, "t") == {"a": EIGHT}
    old = RouteTable(lambda: 0.0)
    old.register(registration(address="2", broker_id=2), "c2")  # of before 5.0
    assert old.route("t") is None


def test_a_registration_that_cannot_be_taken_changes_nothing(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_table, "CLUSTER_COUNT_MAX", 1)
    table.register(registration("a", "1"), "c1")
    other = replace(registration("a", "1"), cluster="d")
    with pytest.raises(ResourceBusyError, match="1 clusters"):
        table.register(other, "c1")
    assert table.clusters() == {"c": ["a"]}


def test_the_table_does_not_grow_without_end(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "BROKER_COUNT_MAX", 2)
    monkeypatch.setattr(route_table, "QUEUE_DATA_COUNT_MAX", 5)
    table.register(registration("a", "1"), "c")
    table.register(registration("b", "2"), "c")
    with pytest.raises(ResourceBusyError, match="2 brokers"):
        table.register(registration("d", "3"), "c")
    with pytest.raises(ResourceBusyError, match="at most 5"):
        table.register(registration("a", "1", {"t": EIGHT, "v": EIGHT, "w": EIGHT}), "c")
    table.register(registration("a", "1", {"t": FOUR, "v": EIGHT}), "c")
    assert (table.broker("d"), queues(table, "v"), queues(table, "w")) == (None, {"a": EIGHT}, {})
    table.unregister("b", "2")
    table.register(registration("b", "2"), "c")


names, addresses = st.sampled_from("ab"), st.sampled_from("123")
topics = st.dictionaries(st.sampled_from("tuv"), st.sampled_from([EIGHT, FOUR]), max_size=3)
steps = st.one_of(
    st.tuples(st.just("register"), names, addresses, topics, st.integers(0, 1), st.integers(1, 2)),
    st.tuples(st.just("unregister"), names, addresses),
    st.tuples(st.just("end"), addresses),
    st.tuples(st.just("wipe"), names, st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from("tuv"), st.sampled_from(["", "c", "none"])),
)


@given(st.lists(steps, max_size=20))
def test_routes_only_name_brokers_that_are_there_and_all_counts_agree(several: list[tuple[object, ...]]) -> None:
    table = RouteTable(lambda: 0.0)
    for step in several:
        match step:
            case ("register", str() as name, str() as address, dict() as its, int() as broker_id, int() as counter):
                one = registration(name, address, its, broker_id=broker_id, counter=counter)
                table.register(one, address)
                if broker_id == 0:
                    assert all(
                        queues(table, topic)[name].read_queue_count == each.read_queue_count
                        for topic, each in its.items()
                    )
            case ("unregister", str() as name, str() as address):
                table.unregister(name, address)
            case ("end", str() as address):
                table.end_owner(address)
            case ("wipe", str() as name, bool() as writable):
                table.set_write_perm(name, writable=writable)
            case ("delete", str() as topic, str() as cluster):
                table.delete_topic(topic, cluster)
        by_name = {broker.name: broker for broker in table.brokers()}
        assert all(broker.addresses for broker in by_name.values())
        assert {(broker.name, address) for broker in by_name.values() for address in broker.addresses.values()} == {
            (live.name, address) for address, live in table.live().items()
        }
        routes = {topic: table.route(topic) for topic in table.topics()}
        assert all(route is not None and set(route.queues) <= set(by_name) for route in routes.values())
        count = sum(len(route.queues) for route in routes.values() if route is not None)
        assert table._queue_data_count == count
        assert sorted({name for named in table.clusters().values() for name in named}) == sorted(by_name)
