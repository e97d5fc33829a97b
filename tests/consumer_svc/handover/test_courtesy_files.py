"""The number in the file and the checkpoints together say exactly what is open.

A broker's files are taken over once, and ours say where its consumers go on.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumer_svc.handover.courtesy_files import (
    DELAY_OFFSETS,
    GROUPS,
    LIGHT_OFFSETS,
    MODES,
    OFFSETS,
    CourtesyFiles,
    check_points,
    plan_of,
)
from consumer_svc.state.group_states import GroupSet, GroupSettings, GroupStates, RequestMode
from consumer_svc.state.queue_state import Ended, HandedOut, Lease, Postponed, QueueRef, Released, Returned
from reput.message.v1.message_pb2 import FLUSH_MODE_UNSPECIFIED
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreCorruptedError
from store.format.config_json import is_own, load_document
from store.format.delivery.consumer_files import LiteConfig, decode_groups, decode_offsets
from store.format.delivery.delay_offset_file import TRANSACTION_GROUP, TransactionOffsets, encode_delay_offsets
from store.format.delivery.pop_records import CHECK_POINT_COUNT_MAX, CHECK_POINT_TAG, decode_check_point
from store.format.properties import TAGS
from store.format.topic import HALF_TOPIC, OP_HALF_TOPIC
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import START_MILLIS, LogLife, MemoryLog, contents

REF = QueueRef("g", "t", 2)
NOW = 1_700_000_000_000


def states_with(next_offset: int, leased: list[int], waiting: list[int], *, ordered: bool = False) -> GroupStates:
    states = GroupStates()
    states.apply(GroupSet(GroupSettings("g", ordered=ordered)))
    every = sorted([*leased, *waiting])
    states.apply(HandedOut(REF, next_offset, [Lease(at, 1, 0, NOW) for at in every]))
    states.apply(Returned(REF, [Postponed(at, 1, 1) for at in waiting]))
    return states


def come_again(states: GroupStates, end: int) -> list[int]:
    """What a broker delivers: what its checkpoints name, and what lies behind the number of the file."""
    plan = plan_of(states)
    offset = plan.offsets["g", "t"][2]
    points = [decode_check_point(record.body) for record in check_points(plan, "rmq_sys_REVIVE_LOG_c", "b", NOW)]
    named = [at for point in points if point is not None for at in point.queue_offsets]
    return sorted([*named, *range(offset, end)])


def test_a_broker_delivers_what_is_open_and_nothing_else() -> None:
    for seed in range(200):
        chosen = random.Random(seed)
        next_offset = chosen.randrange(0, 200)
        opened = chosen.sample(range(next_offset), chosen.randrange(0, next_offset + 1))
        cut = chosen.randrange(0, len(opened) + 1)
        states = states_with(next_offset, opened[:cut], opened[cut:])
        assert come_again(states, 210) == [*sorted(opened), *range(next_offset, 210)], seed


def test_messages_that_the_number_brings_again_need_no_checkpoint() -> None:
    plan = plan_of(states_with(10, [8, 9], [7]))
    assert (plan.offsets["g", "t"], plan.open) == ({2: 7}, {})


def test_an_ordered_group_goes_on_at_its_first_open_message() -> None:
    plan = plan_of(states_with(10, [3], [5], ordered=True))
    assert (plan.offsets["g", "t"], plan.open) == ({2: 3}, {})


def test_a_checkpoint_is_over_when_it_is_written_and_has_no_more_than_its_bits() -> None:
    states = states_with(101, list(range(0, 100, 2)), [])
    states.apply(Ended(REF, [0]))
    records = check_points(plan_of(states), "rmq_sys_REVIVE_LOG_c", "b", NOW)
    points = [decode_check_point(record.body) for record in records]
    assert [len(point.queue_offsets) for point in points if point is not None] == [CHECK_POINT_COUNT_MAX, 17]
    for record, point in zip(records, points, strict=True):
        assert point is not None
        assert point.pop_millis + point.invisible_millis == NOW
        assert record.properties[TAGS] == CHECK_POINT_TAG
        # PopReviveService compares it with the end of the invisible time; without it nothing is delivered again.
        assert int(record.properties["TIMER_DELIVER_MS"]) == NOW - 1_000


def test_a_broker_counted_deliveries_that_no_program_got() -> None:
    states = states_with(10, [0, 2, 4], [3])
    states.apply(Released(REF, [2]))
    states.apply(HandedOut(REF, 10, [Lease(6, 2, 1, NOW)]))  # given back once, and with a program now
    records = check_points(plan_of(states), "rmq_sys_REVIVE_LOG_c", "b", NOW)
    points = [decode_check_point(record.body) for record in records]
    named = {(at, point.is_suspended) for point in points if point is not None for at in point.queue_offsets}
    assert named == {(0, False), (2, True), (3, True), (4, False), (6, False)}
    assert len({point.key for point in points if point is not None}) == len(points), "a broker tells them by these"


ASK = pop_of("b_cg", "b_log", invisible_millis=10_000)


@pytest.fixture
def courtesy(log: MemoryLog) -> CourtesyFiles:
    """The files in memory."""
    client: Any = log
    return CourtesyFiles(
        client, lambda records: log.append(log.epoch, records, FLUSH_MODE_UNSPECIFIED), "DefaultCluster", "broker-a"
    )


def put_brokers_files(log: MemoryLog, store: Path) -> None:
    """The log had a broker with a consumer group."""
    for name in (OFFSETS, GROUPS):
        log.config[name] = (store / "config" / name).read_bytes()


def test_a_broker_s_positions_count(log: MemoryLog, life: LogLife, courtesy: CourtesyFiles, broker_store: Path) -> None:
    for _ in range(242):
        log.send("b_log", b"m", 3)
    put_brokers_files(log, broker_store)
    courtesy.take_over(life.life, START_MILLIS)
    assert life.pulls.offsets("b_cg", "b_log") == [
        (QueueRef("b_cg", "b_log", queue_id), at) for queue_id, at in enumerate((230, 230, 240, 241))
    ]
    assert [one.message.queue_offset for one in life.pop(ASK)] == [241]
    assert life.groups.named("b_cg").settings.delivery_attempts_max == 17


def test_what_was_taken_over_is_not_taken_again_after_a_kill(
    log: MemoryLog, begin: Callable[..., LogLife], courtesy: CourtesyFiles, broker_store: Path
) -> None:
    for _ in range(242):
        log.send("b_log", b"m", 3)
    put_brokers_files(log, broker_store)
    life = begin()
    courtesy.take_over(life.life, START_MILLIS)
    (one,) = life.pop(ASK)
    life.acks.ack("b_cg", [one.receipt_handle])
    after = begin()  # before the files would be written by time
    courtesy.take_over(after.life, START_MILLIS)
    assert contents(after.states) == contents(life.states)
    assert after.pop(ASK) == []


def test_files_that_cannot_be_written_begin_no_life(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles, broker_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_brokers_files(log, broker_store)

    def refuse(*_: object, **__: object) -> None:
        raise ServiceUnavailableError("no")

    monkeypatch.setattr(log, "write_config_file", refuse)
    with pytest.raises(ServiceUnavailableError):
        courtesy.take_over(life.life, START_MILLIS)


def test_damaged_files_begin_no_life_and_change_nothing(log: MemoryLog, life: LogLife, courtesy: CourtesyFiles) -> None:
    log.config[OFFSETS] = b"{"
    with pytest.raises(StoreCorruptedError):
        courtesy.take_over(life.life, START_MILLIS)
    assert life.states.groups == {}
    assert log.config == {OFFSETS: b"{"}


def test_a_broker_goes_on_at_what_was_in_flight(log: MemoryLog, life: LogLife, courtesy: CourtesyFiles) -> None:
    for number in range(5):
        log.send("t", f"m{number}".encode())
    delivered = life.pop(pop_of("g", "t", max_messages=4, invisible_millis=10_000))
    life.acks.ack("g", [delivered[0].receipt_handle, delivered[2].receipt_handle])
    courtesy.write(life.life)
    assert decode_offsets(log.config[OFFSETS]) == {("g", "t"): {0: 3}}  # 1 is in a checkpoint
    assert decode_groups(log.config[GROUPS])["g"].retry_count_max == 2  # three attempts
    assert is_own(log.config[OFFSETS])
    assert json.loads(log.config[OFFSETS])["offsetTable"] == {"t@g": {"0": 3}}


def test_files_are_written_again_only_when_something_changed(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    log.send("t")
    life.pulls.commit("g", [("t", 0, 1)])
    courtesy.write(life.life)
    before = dict(log.config)
    courtesy.write(life.life)
    assert log.config == before
    life.pulls.commit("g", [("t", 0, 0)])
    courtesy.write(life.life)
    assert log.config[OFFSETS] != before[OFFSETS]


def half_positions(log: MemoryLog) -> tuple[object, object]:
    """The positions of a broker's group among the half messages."""
    offsets = decode_offsets(log.config[OFFSETS])
    return offsets.get((TRANSACTION_GROUP, HALF_TOPIC)), offsets.get((TRANSACTION_GROUP, OP_HALF_TOPIC))


def say(log: MemoryLog, half: int, operation: int) -> None:
    """The schedule service writes its file."""
    said = TransactionOffsets(half, operation)
    log.config["delayOffset.json"] = encode_delay_offsets({}, said, None, time_millis=START_MILLIS)


def test_positions_of_transactions_are_those_of_the_schedule_service(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    log.send("t")
    life.pop(pop_of("g", "t", invisible_millis=10_000))
    courtesy.write(life.life)
    assert half_positions(log) == (None, None)
    say(log, 7, 0)
    courtesy.write(life.life)  # nothing else has changed
    assert half_positions(log) == ({0: 7}, None)
    say(log, 9, 4)
    courtesy.write(life.life)
    assert half_positions(log) == ({0: 9}, {0: 4})


def test_positions_of_transactions_never_go_back(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles, broker_store: Path
) -> None:
    for _ in range(242):
        log.send("b_log", b"m", 3)
    put_brokers_files(log, broker_store)  # 24 and 1
    courtesy.take_over(life.life, START_MILLIS)
    assert half_positions(log) == ({0: 24}, {0: 1})
    assert not life.states.groups[TRANSACTION_GROUP].topics
    say(log, 11, 5)  # the schedule service has not read the broker's yet
    courtesy.write(life.life)
    assert half_positions(log) == ({0: 24}, {0: 5})


def test_positions_of_a_bak_only_go_forward_and_the_damaged_file_is_written_again(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles, broker_store: Path
) -> None:
    """The log may know positions that are newer than the `.bak`, and the `.bak` some that the log lacks."""
    for _ in range(242):
        log.send("b_log", b"m", 3)
    put_brokers_files(log, broker_store)
    courtesy.take_over(life.life, START_MILLIS)
    life.pulls.commit("b_cg", [("b_log", 3, 242)])
    log.config[OFFSETS] = (broker_store / "config" / OFFSETS).read_bytes()
    log.problems[OFFSETS] = "config/consumerOffset.json cannot be read; consumerOffset.json.bak is used"

    courtesy.take_over(life.life, START_MILLIS)

    assert [at for _, at in life.pulls.offsets("b_cg", "b_log")] == [230, 230, 240, 242]
    assert decode_offsets(log.config[OFFSETS])["b_cg", "b_log"] == {0: 230, 1: 230, 2: 240, 3: 242}


def test_without_a_readable_file_the_positions_of_the_log_count_and_are_written(
    log: MemoryLog, begin: Callable[..., LogLife], courtesy: CourtesyFiles, broker_store: Path
) -> None:
    for _ in range(242):
        log.send("b_log", b"m", 3)
    put_brokers_files(log, broker_store)
    courtesy.take_over(begin().life, START_MILLIS)
    for name in (OFFSETS, GROUPS):
        del log.config[name]
        log.problems[name] = f"config/{name} cannot be read; nothing of it is used"

    life = begin()
    courtesy.take_over(life.life, START_MILLIS)
    courtesy.write(life.life)

    assert [at for _, at in life.pulls.offsets("b_cg", "b_log")] == [230, 230, 240, 241]
    assert decode_offsets(log.config[OFFSETS])["b_cg", "b_log"] == {0: 230, 1: 230, 2: 240, 3: 241}
    assert "b_cg" in decode_groups(log.config[GROUPS])


def test_a_queue_that_came_after_its_group_began_had_no_position_for_a_broker(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    """RocketMQ 5.3.3 lets a group of CONSUME_FROM_LAST_OFFSET begin at the end of a queue without one."""
    for queue_id in range(2):
        log.send("t", b"m", queue_id)
    life.pulls.commit("g", [("t", 0, 1)])

    courtesy.write(life.life)

    assert json.loads(log.config[OFFSETS])["offsetTable"] == {"t@g": {"0": 1, "1": 0}}


# As RocketMQ 5.5.0 with `enableLmq` writes it: keys that are numbers have no quotes.
LIGHT_FILE = b"""{
\t"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1795890526852},
\t"groupTopicMap":{"g":["%LMQ%a","first"]},
\t"lmqOffsetTable":{"%LMQ%b@h":7},
\t"offsetTable":{"%LMQ%a@g":{0:3},"first@g":{0:2}},
\t"pullOffsetTable":{"first@p":{0:5}}
}"""
GROUP_G = b'{"subscriptionGroupTable":{"g":{"groupName":"g"}}}'


def test_a_group_of_a_broker_with_light_queues_goes_on_where_it_was(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    for _ in range(5):
        log.send("first")
    log.config |= {GROUPS: GROUP_G, LIGHT_OFFSETS: LIGHT_FILE}
    courtesy.take_over(life.life, START_MILLIS)
    found = life.pop(pop_of("g", "first", invisible_millis=10_000, max_messages=5))
    assert [one.message.queue_offset for one in found] == [2, 3, 4]
    assert life.pulls.offsets("g", "%LMQ%a") == [(QueueRef("g", "%LMQ%a", 0), 3)]
    assert life.pulls.offsets("h", "%LMQ%b") == [(QueueRef("h", "%LMQ%b", 0), 7)]


def test_positions_in_light_queues_are_written_when_the_life_ends_and_a_broker_reads_them(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    log.send("first")
    log.config |= {GROUPS: GROUP_G, LIGHT_OFFSETS: LIGHT_FILE}
    courtesy.take_over(life.life, START_MILLIS)
    for group, queue, position in (("g", "%LMQ%a", 4), ("h", "%LMQ%b", 8), ("g", "%LMQ%new", 2)):
        life.pulls.commit(group, [(queue, 0, position)])
    courtesy.write(life.life)
    written = load_document(log.config[LIGHT_OFFSETS])
    assert (written["offsetTable"]["%LMQ%a@g"], written["lmqOffsetTable"]) == ({"0": 3}, {"%LMQ%b@h": 7})
    assert "%LMQ%new@g" not in written["offsetTable"]
    courtesy.write(life.life, is_last=True)
    written = load_document(log.config[LIGHT_OFFSETS])
    light = {key: row for key, row in written["offsetTable"].items() if key.startswith("%LMQ%")}
    assert light == {"%LMQ%a@g": {"0": 4}, "%LMQ%new@g": {"0": 2}}
    assert written["lmqOffsetTable"] == {"%LMQ%b@h": 8}
    assert "%LMQ%a@g" not in load_document(log.config[OFFSETS])["offsetTable"]


def test_the_file_of_light_queues_is_made_for_a_broker_that_has_not_been_there(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    log.send("first")
    life.pulls.commit("g", [("%LMQ%a", 0, 3), ("first", 0, 1)])
    courtesy.write(life.life)
    assert LIGHT_OFFSETS not in log.config
    courtesy.write(life.life, is_last=True)
    assert load_document(log.config[LIGHT_OFFSETS])["offsetTable"] == {"%LMQ%a@g": {"0": 3}, "first@g": {"0": 1}}


def test_the_positions_of_light_queues_stay_in_the_file_that_a_broker_reads_again(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    log.send("first")
    log.config |= {GROUPS: GROUP_G, LIGHT_OFFSETS: LIGHT_FILE}
    courtesy.take_over(life.life, START_MILLIS)
    courtesy.write(life.life, is_last=True)
    written = load_document(log.config[LIGHT_OFFSETS])
    assert is_own(log.config[LIGHT_OFFSETS])
    assert written["offsetTable"]["%LMQ%a@g"] == {"0": 3}
    assert written["offsetTable"]["first@g"] == {"0": 2}
    before = load_document(LIGHT_FILE)
    assert {name: written[name] for name in ("groupTopicMap", "lmqOffsetTable", "pullOffsetTable")} == {
        name: before[name] for name in ("groupTopicMap", "lmqOffsetTable", "pullOffsetTable")
    }
    assert decode_offsets(log.config[OFFSETS])["g", "first"] == {0: 2}


@pytest.mark.parametrize(("plain", "position"), [(1, 2), (4, 4)])
def test_of_two_files_of_a_broker_the_higher_position_counts(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles, plain: int, position: int
) -> None:
    for _ in range(5):
        log.send("first")
    log.config |= {GROUPS: GROUP_G, LIGHT_OFFSETS: LIGHT_FILE}
    log.config[OFFSETS] = b'{"offsetTable":{"first@g":{0:%d}}}' % plain
    courtesy.take_over(life.life, START_MILLIS)
    assert life.pulls.offsets("g", "first") == [(QueueRef("g", "first", 0), position)]


def test_only_the_file_that_a_broker_wrote_since_counts(
    log: MemoryLog, begin: Callable[..., LogLife], courtesy: CourtesyFiles
) -> None:
    for _ in range(5):
        log.send("first")
    log.config |= {GROUPS: GROUP_G, LIGHT_OFFSETS: LIGHT_FILE}
    courtesy.take_over(begin().life, START_MILLIS)
    log.config[LIGHT_OFFSETS] = LIGHT_FILE.replace(b'"first@g":{0:2}', b'"first@g":{0:1}')  # it was reset there
    life = begin()
    courtesy.take_over(life.life, START_MILLIS)
    assert life.pulls.offsets("g", "first") == [(QueueRef("g", "first", 0), 1)]


def test_a_store_without_light_queues_gets_no_file_for_them(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    log.send("first")
    log.config |= {GROUPS: GROUP_G, OFFSETS: b'{"offsetTable":{"first@g":{0:1}}}'}
    courtesy.take_over(life.life, START_MILLIS)
    assert LIGHT_OFFSETS not in log.config


BROKERS_MODES = (
    b'{"messageRequestModeMap":{"t":{"g":{"consumerGroup":"g","mode":"POP","popShareQueueNum":3,"topic":"t"}},'
    b'"bad":{"g":{"mode":"PUSH"}},"worse":7}}'
)


def test_request_modes_of_a_broker_are_taken_over_and_what_cannot_be_read_is_kept(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    life.groups.set_mode("gone", RequestMode("t", is_pop=True), "")
    log.config[MODES] = BROKERS_MODES
    courtesy.take_over(life.life, START_MILLIS)
    assert life.life.settings("g").request_modes == (RequestMode("t", is_pop=True, pop_share_queue_count=3),)
    assert life.life.settings("gone").request_modes == ()
    life.groups.set_mode("h", RequestMode("t", is_pop=False), "")
    courtesy.write(life.life)
    written = json.loads(log.config[MODES])["messageRequestModeMap"]
    assert written == {
        "t": {
            "g": {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3, "topic": "t"},
            "h": {"consumerGroup": "h", "mode": "PULL", "popShareQueueNum": 0, "topic": "t"},
        },
        "bad": {"g": {"mode": "PUSH"}},
        "worse": 7,
    }


def test_a_commit_log_of_an_earlier_release_that_knows_fewer_files_ended_the_service(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a rolling update: 0.2.0 refuses names that it does not know, and that ended each start."""
    read, write = log.read_config, log.write_config_file

    def known(name: str) -> str:
        if name not in (GROUPS, OFFSETS, DELAY_OFFSETS):
            raise InvalidArgumentError(f"{name!r} is not a file that services write", field="name")
        return name

    monkeypatch.setattr(log, "read_config", lambda name, **options: read(known(name), **options))
    monkeypatch.setattr(
        log, "write_config_file", lambda name, content, **options: write(known(name), content, **options)
    )
    life.groups.set_mode("g", RequestMode("t", is_pop=True), "")
    courtesy.take_over(life.life, START_MILLIS)
    life.life.dirty = True
    courtesy.write(life.life, is_last=True)
    assert log.config.keys() == {GROUPS, OFFSETS}
    assert not life.life.dirty


def test_no_file_of_request_modes_is_written_while_no_group_has_one(
    log: MemoryLog, life: LogLife, courtesy: CourtesyFiles
) -> None:
    log.send("b_log")
    life.pop(ASK)
    courtesy.write(life.life)
    assert GROUPS in log.config
    assert MODES not in log.config


def test_what_binds_a_group_to_lite_topics_goes_to_a_broker_and_comes_from_one(
    log: MemoryLog, begin: Callable[..., LogLife], courtesy: CourtesyFiles
) -> None:
    """The attributes `lite.*` of RocketMQ 5.5."""
    exclusive = LiteConfig("parent", is_exclusive=True, client_quota=7)
    life = begin()
    life.groups.update(GroupSettings("ours", lite=exclusive))
    courtesy.write(life.life)
    document = json.loads(log.config[GROUPS])
    row = document["subscriptionGroupTable"]["ours"]
    assert row["attributes"] == {
        "lite.bind.topic": "parent",
        "lite.sub.model": "Exclusive",
        "lite.sub.client.quota": "7",
    }
    theirs = {**row, "groupName": "theirs", "attributes": {"lite.bind.topic": "other", "lite.sub.wildcard": "true"}}
    broker = {"dataVersion": {"counter": 9}, "subscriptionGroupTable": {"ours": row, "theirs": theirs}}
    log.config[GROUPS] = json.dumps(broker).encode()
    life = begin()
    courtesy.take_over(life.life, START_MILLIS)
    bound = {name: group.settings.lite for name, group in life.states.groups.items()}
    assert bound == {"ours": exclusive, "theirs": LiteConfig("other", is_wildcard=True)}
    assert life.states.bound == {"parent": {"ours"}, "other": {"theirs"}}
