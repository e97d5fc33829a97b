"""Pages of groups and tracks of one shard, and what has a page although it is not kept."""

from collections.abc import Callable

from consumer_svc.delivering.groups import GroupNames
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.reading.queue_reader import read_message
from tests.consumer_svc.memory_log import LogLife, MemoryLog


def names_of(ask: Callable[[GroupNames], tuple[list[str], bool]], size: int, contains: str = "") -> list[str]:
    found: list[str] = []
    has_more = True
    while has_more:
        page, has_more = ask(GroupNames(size, found[-1] if found else "", contains))
        assert len(page) <= size
        found += page
    return found


def test_pages_of_groups_and_of_tracks_hold_each_group_once(log: MemoryLog, life: LogLife) -> None:
    log.send("t")
    reader = life.life.reader
    message = read_message(reader, "t", 0, 0)
    assert message is not None
    wanted = sorted(f"g{number}" for number in range(23))
    for name in wanted:
        life.pulls.commit(name, [("t", 0, 0)])
    life.pulls.commit("elsewhere", [("other", 0, 0)])

    def groups(names: GroupNames) -> tuple[list[str], bool]:
        page, has_more = life.groups.page("t", names)
        return [each.consumer_group for each in page], has_more

    def tracks(names: GroupNames) -> tuple[list[str], bool]:
        page = life.tracks.page(message, names)
        return [each.consumer_group for each in page.tracks], page.has_more

    for ask in (groups, tracks):
        assert names_of(ask, 5) == wanted
        assert names_of(ask, 23) == wanted
        assert names_of(ask, 1, "G1") == [name for name in wanted if "g1" in name]
        assert ask(GroupNames())[0] == wanted, "an older gateway asks for all"
        assert ask(GroupNames(only="g7")) == (["g7"], False)


def test_a_group_that_has_only_members_is_listed_while_they_live(log: MemoryLog, life: LogLife) -> None:
    life.pulls.commit("kept", [("t", 0, 0)])
    life.life.clients.keep(pb.Client(client_id="c", consumer_group="asks"))
    life.life.clients.keep(pb.Client(client_id="c", consumer_group="kept"))
    page, has_more = life.groups.page("", GroupNames(10))
    assert [each.consumer_group for each in page] == ["asks", "kept"]
    assert not has_more
    life.life.clients.end("asks", "c")
    assert [each.consumer_group for each in life.groups.page("")[0]] == ["kept"]


def test_retries_of_a_group_without_a_position_in_its_retry_topics_are_counted(log: MemoryLog, life: LogLife) -> None:
    """GetConsumerGroup said 0 retries until a member had read the retry topic for the first time."""
    log.send("t", b"m")
    life.pulls.commit("g", [("t", 0, 1)])
    for topic in ("%RETRY%g", "%RETRY%g_t", "%RETRY%g+t", "%RETRY%g_other", "%RETRY%other"):
        log.send(topic, b"again")
    life.pulls.commit("g", [("%RETRY%g+t", 0, 1)])

    rows = {row.topic: (row.consumer_offset, row.max_offset) for row in life.groups.describe("g").queues}

    assert rows == {"t": (1, 1), "%RETRY%g": (0, 1), "%RETRY%g_t": (0, 1), "%RETRY%g+t": (1, 1)}
    assert dict(life.groups.lag_counts()) == {
        ("g", "t"): 0,
        ("g", "%RETRY%g"): 1,
        ("g", "%RETRY%g_t"): 1,
        ("g", "%RETRY%g+t"): 0,
    }
