"""Appends give records their positions in light queues: what is stored, what is refused, and what survives a stop."""

import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.append.topics.light_offsets import TABLE_COUNT, LightJournal, LightOffsets
from commitlog_svc.append.topics.topics import TopicChange
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.replication import log_copy
from commitlog_svc.replication.log_copy import CopiedFile
from reput.message.v1.message_pb2 import NewMessage
from store.derive.queue_placement import light_position_max
from store.errors import InvalidMessageError, LightQueueLimitError
from store.files.file_system import RealFileSystem
from store.files.mapped_files import MappedFile
from store.format.record import Record
from store.format.topic import lite_queue_name
from store.walk.cursor import OneFile, RecordCursor
from store.walk.record_runs import light_places_of
from tests.commitlog_svc.internal import all_records, append_internal, internal_record
from tests.commitlog_svc.support import append, new_message, open_log
from tests.commitlog_svc.twins import Twins, open_twins, request_of
from tests.support.crashing import copy_open_store

DISPATCH, POSITIONS, LITE = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "__LITE_TOPIC"


def wire(**properties: str) -> bytes:
    """A property string of a client."""
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in {"UNIQ_KEY": "u", **properties}.items())


def to_queues(*queues: str, **properties: str) -> NewMessage:
    """A message of a client that names light queues."""
    return new_message(wire_properties=wire(**{DISPATCH: ",".join(queues)}, **properties), queue_id=0)


def stored(log: CommitLog, *messages: NewMessage) -> list[Record]:
    """The records of appended messages."""
    return [log.opened.reads.get(receipt.commit_log_offset) for receipt in append(log, *messages)]


def texts(records: list[Record]) -> list[tuple[str | None, str | None]]:
    """The names and the positions of light queues that records have."""
    return [(record.properties.get(DISPATCH), record.properties.get(POSITIONS)) for record in records]


@pytest.mark.parametrize("properties_crc", [False, True])
def test_records_get_the_next_position_of_each_light_queue_that_they_name(tmp_path: Path, properties_crc: bool) -> None:
    with open_log(tmp_path, enable_lmq=True, properties_crc=properties_crc) as log:
        records = stored(log, to_queues("%LMQ%a", "%LMQ%b"), new_message(), to_queues("%LMQ%b"))
        records += stored(log, to_queues("%LMQ%b", "%LMQ%c", colour="red"))
    assert texts(records) == [
        ("%LMQ%a,%LMQ%b", "0,0"),
        (None, None),
        ("%LMQ%b", "1"),
        ("%LMQ%b,%LMQ%c", "2,0"),
    ]
    assert [record.queue_offset for record in records if record.queue_id == 0][-1] >= 2
    assert records[-1].properties["colour"] == "red"
    assert [record.is_guarded for record in records] == [properties_crc] * 4


def test_a_forged_position_of_a_sender_is_replaced(tmp_path: Path) -> None:
    with open_log(tmp_path, enable_lmq=True) as log:
        (record,) = stored(log, to_queues("%LMQ%a", **{POSITIONS: "4000"}))
        (alone,) = stored(log, new_message(wire_properties=wire(**{POSITIONS: "4000"}), queue_id=0))
    assert texts([record, alone]) == [("%LMQ%a", "0"), (None, None)]


def test_without_the_setting_names_of_light_queues_are_left_out_or_refused(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        assert texts(stored(log, to_queues("%LMQ%a"))) == [(None, None)]
        with pytest.raises(InvalidMessageError, match=DISPATCH):
            append(log, new_message(properties={DISPATCH: "%LMQ%a"}))


def test_the_door_of_our_own_names_light_queues_too_when_the_setting_is_on(tmp_path: Path) -> None:
    with open_log(tmp_path, enable_lmq=True) as log:
        assert texts(stored(log, new_message(properties={DISPATCH: "%LMQ%a,", "x": "y"}))) == [("%LMQ%a", "0")]


@pytest.mark.parametrize(
    "names", ["orders", "%LMQ%a,orders", "%LMQ%a,%LMQ%a", "%LMQ%a/b", "%LMQ%" + "x" * 251, "%LMQ%$other$lite", "a,,b"]
)
def test_a_name_at_which_a_broker_stops_is_refused_by_name(tmp_path: Path, names: str) -> None:
    with open_log(tmp_path, enable_lmq=True) as log:
        for message in (to_queues(*names.split(",")), new_message(properties={DISPATCH: names})):
            with pytest.raises(InvalidMessageError, match="light queue") as caught:
                append(log, message)
            assert caught.value.metadata["property"] == DISPATCH
        assert log.status.end_offset == log.status.first_offset


def test_a_lite_topic_of_a_lite_parent_needs_no_setting_and_no_name_of_the_queue(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.topics.create("orders", TopicChange(message_type="LITE"))
        name = lite_queue_name("orders", "chat-1")
        records = stored(
            log,
            new_message(properties={LITE: "chat-1"}),
            new_message(wire_properties=wire(**{LITE: "chat-1", DISPATCH: "%LMQ%$orders$chat-2", POSITIONS: "7"})),
            new_message(topic="plain", properties={LITE: "chat-1"}),
        )
        assert texts(records) == [(name, "0"), (name, "1"), (None, None)]
        for message in (new_message(properties={LITE: "a b"}), new_message(wire_properties=wire(**{LITE: "x" * 65}))):
            with pytest.raises(InvalidMessageError, match="lite topic"):
                append(log, message)


def test_our_own_door_took_a_message_that_no_group_of_lite_topics_would_get(tmp_path: Path) -> None:
    """Over remoting a broker takes it; RocketMQ's proxy refuses it. A topic may become LITE after its first messages."""
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message()))
        for log in (twins.fast, twins.plain):
            log.opened.topic_commands.update("orders", TopicChange(message_type="LITE"))
        for properties in ({}, {"colour": "red"}):
            error, message, metadata = twins.append(request_of(new_message(properties=properties)))
            assert (error, metadata["property"], metadata["index"]) == (InvalidMessageError, LITE, "0"), message
        for taken in (new_message(properties={LITE: "chat-1"}), new_message(wire_properties=wire())):
            assert twins.append(request_of(taken)).results
        error, _, _ = twins.append(request_of(new_message()))  # other messages of the topic came meanwhile
        assert error is InvalidMessageError


def test_a_message_with_more_light_queues_than_its_properties_have_room_for_is_refused(tmp_path: Path) -> None:
    with open_log(tmp_path, enable_lmq=True, file_size_bytes=1 << 20) as log:
        with pytest.raises(InvalidMessageError, match="light queues"):
            append(log, to_queues(*(f"%LMQ%{number}" for number in range(3000))))
        assert append(log, to_queues(*(f"%LMQ%{number}" for number in range(800))))


def test_a_delayed_or_half_message_keeps_the_names_and_gets_no_position_yet(tmp_path: Path) -> None:
    with open_log(tmp_path, enable_lmq=True) as log:
        records = stored(log, to_queues("%LMQ%a", DELAY="3"), to_queues("%LMQ%a", TRAN_MSG="true"))
        assert texts(records) == [("%LMQ%a", None)] * 2
        assert {record.topic for record in records} == {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"}


def test_a_moved_message_gets_its_positions_when_it_comes_to_its_topic(tmp_path: Path) -> None:
    places = {DISPATCH: "%LMQ%a,orders,%LMQ%a", POSITIONS: "7,7,7"}
    with open_log(tmp_path) as log:
        append_internal(log, internal_record(properties=places))
        append_internal(log, internal_record(properties=places), internal_record(topic="rmq_sys_X"))
        append_internal(log, internal_record(properties={DISPATCH: "orders"}))
        append_internal(log, internal_record(topic="%RETRY%g", properties=places), internal_record())
        records = all_records(log)
    with open_log(tmp_path) as log:
        assert all_records(log) == records  # the marks of the requests are right
        append_internal(log, internal_record(properties=places), internal_record())
        records = all_records(log)
    names = [texts([record])[0] for record in records]
    assert names[0:3] == [("%LMQ%a", "0"), ("%LMQ%a", "1"), (None, None)]
    assert names[3:] == [(None, None), (places[DISPATCH], "7,7,7"), (None, None), ("%LMQ%a", "2"), (None, None)]


def test_more_light_queues_than_allowed_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with open_log(tmp_path, enable_lmq=True, light_queue_count_max=2) as log:
        append(log, to_queues("%LMQ%a"), to_queues("%LMQ%b"))
        end_offset = log.status.end_offset
        with pytest.raises(LightQueueLimitError, match="REPUT_COMMITLOG_LIGHT_QUEUE_COUNT_MAX"):
            append(log, to_queues("%LMQ%a"), to_queues("%LMQ%c"))
        assert log.status.end_offset == end_offset
        assert texts(stored(log, to_queues("%LMQ%b", "%LMQ%a"))) == [("%LMQ%b,%LMQ%a", "1,1")]


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[Twins]:
    """Two logs, one with the fast way."""
    with open_twins(tmp_path, enable_lmq=True) as twins:
        twins.append(request_of(new_message()))
        yield twins


def test_the_fast_way_takes_no_message_that_may_name_a_light_queue(twins: Twins) -> None:
    assert twins.is_taken(request_of(new_message(properties={"a": "b"})))
    for properties in ({DISPATCH: "%LMQ%a"}, {LITE: "a"}):
        assert not twins.is_taken(request_of(new_message(properties=properties)))
        assert not twins.is_taken(request_of(new_message(wire_properties=wire(**properties))))


QUEUES = [f"%LMQ%{number}" for number in range(7)]


def check_positions(log: CommitLog) -> dict[str, int]:
    """The positions of each light queue are 0, 1, 2 ... in log order; the next ones."""
    ends: dict[str, int] = defaultdict(int)
    for record in all_records(log):
        for place in light_places_of(record):
            assert place.queue_offset == ends[place.queue], place
            ends[place.queue] += 1
    return ends


@pytest.mark.parametrize("seed", range(6))
def test_positions_go_on_after_stops_kills_and_lost_state_without_a_gap(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = tmp_path / "0"
    for life in range(8):
        with open_log(root, enable_lmq=True) as log:
            check_positions(log)
            for _ in range(chance.randrange(12)):
                picked = [
                    to_queues(*chance.sample(QUEUES, chance.randrange(1, 4)))
                    if chance.random() < 0.7
                    else new_message()
                    for _ in range(chance.randrange(1, 5))
                ]
                append(log, *picked)
                if chance.random() < 0.3:
                    log._safe_points.write()
            check_positions(log)
            killed = tmp_path / str(life + 1)
            copy_open_store(root, killed)
        root = chance.choice([root, killed])
        own = root / "reput" / "commitlog"
        lost = chance.choice(["", "snapshot.json", "light-positions.*", "durable"])
        for path in own.glob(lost) if lost else ():
            path.unlink()
        for path in own.glob("light-positions.*") if chance.random() < 0.2 else ():
            path.write_bytes(path.read_bytes()[: chance.randrange(1 + path.stat().st_size)])
    with open_log(root, enable_lmq=True) as log:
        ends = check_positions(log)
        records = stored(log, *[to_queues(queue) for queue in QUEUES])
        assert [record.properties[POSITIONS] for record in records] == [str(ends[queue]) for queue in QUEUES]


def test_a_request_that_a_kill_cut_apart_gives_its_positions_back(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        append_internal(log, internal_record(properties={DISPATCH: "%LMQ%a"}))
        log._safe_points.write()
        first, second = append_internal(
            log, *[internal_record(properties={DISPATCH: "%LMQ%a,%LMQ%b"}) for _ in range(2)], sync=False
        )
        copy_open_store(tmp_path / "log", tmp_path / "killed")
    path = tmp_path / "killed" / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[second.commit_log_offset :] = bytes(len(data) - second.commit_log_offset)
    path.write_bytes(data)
    (tmp_path / "killed" / "reput" / "commitlog" / "durable").unlink()
    with open_log(tmp_path / "killed") as log:
        assert log.status.end_offset == first.commit_log_offset
        append_internal(log, internal_record(properties={DISPATCH: "%LMQ%a,%LMQ%b"}))
        assert check_positions(log) == {"%LMQ%a": 2, "%LMQ%b": 1}


def test_a_store_of_an_older_version_with_light_queues_is_walked_once(tmp_path: Path) -> None:
    with open_log(tmp_path, enable_lmq=True) as log:
        append(log, to_queues("%LMQ%a"), to_queues("%LMQ%a"))
    own = tmp_path / "reput" / "commitlog"
    snapshot = (own / "snapshot.json").read_text()
    assert '"light"' in snapshot
    (own / "snapshot.json").write_text(snapshot.replace('"light"', '"unknown"'))
    for path in own.glob("light-positions.*"):
        path.unlink()
    with open_log(tmp_path, enable_lmq=True) as log:  # no sign of a light queue
        assert log.opened.found.walked_from_offset > 0
    shutil.rmtree(own)
    (tmp_path / "consumequeue" / "%LMQ%a").mkdir(parents=True)
    with open_log(tmp_path, enable_lmq=True) as log:
        assert texts(stored(log, to_queues("%LMQ%a"))) == [("%LMQ%a", "2")]


@pytest.mark.parametrize("has_queues", [False, True])
def test_an_older_log_whose_queues_lie_elsewhere_began_light_queues_at_0_again(
    tmp_path: Path, has_queues: bool
) -> None:
    with open_log(tmp_path, enable_lmq=True) as log:
        append(log, new_message())
        end = log.status.end_offset
    own = tmp_path / "reput" / "commitlog"
    (own / "snapshot.json").write_text((own / "snapshot.json").read_text().replace('"light"', '"unknown"'))
    if has_queues:
        (tmp_path / "consumequeue" / "ordinary").mkdir(parents=True)
    with open_log(tmp_path, enable_lmq=True) as log:
        position = 0 if has_queues else light_position_max(end)
        assert texts(stored(log, to_queues("%LMQ%new"))) == [("%LMQ%new", str(position))]


def test_a_forgotten_queue_goes_on_behind_its_old_end(tmp_path: Path) -> None:
    with open_log(tmp_path, enable_lmq=True) as log:
        append(log, *[to_queues("%LMQ%a")] * 5)
        append(log, to_queues("%LMQ%b"))
        begin = log.status.end_offset
        append(log, to_queues("%LMQ%c"))
        log.opened.appender.forget_light_queues(begin)
    with open_log(tmp_path, enable_lmq=True) as log:
        records = stored(log, to_queues("%LMQ%a"), to_queues("%LMQ%b"), to_queues("%LMQ%c"), to_queues("%LMQ%d"))
    assert [text for _, text in texts(records)] == ["5", "5", "1", "5"]


@pytest.mark.parametrize(("piece_bytes", "kept_count_max"), [(100, 100), (1 << 20, 100), (1 << 20, 5), (1 << 20, 0)])
def test_a_replica_that_leads_goes_on_behind_the_positions_of_its_leader(
    tmp_path: Path, piece_bytes: int, kept_count_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_copy, "LIGHT_QUEUE_COUNT_MAX", kept_count_max)
    with open_log(tmp_path / "leader", enable_lmq=True) as log:
        for number in range(60):
            append(log, to_queues("%LMQ%a", f"%LMQ%{number % 5}"), new_message())
        data = log.read_bytes(0, log.status.end_offset)
    with open_log(tmp_path / "replica", enable_lmq=True) as log:
        copy = log.begin_copy()
        for at in range(0, len(data), piece_bytes):
            copy.receive(at, data[at : at + piece_bytes])
            copy.settle_records()
        copy.close()
        assert texts(stored(log, to_queues("%LMQ%a", "%LMQ%3"))) == [("%LMQ%a,%LMQ%3", "60,12")]
    with open_log(tmp_path / "replica", enable_lmq=True) as log:
        assert texts(stored(log, to_queues("%LMQ%a", "%LMQ%4"))) == [("%LMQ%a,%LMQ%4", "61,12")]
        check_positions(log)


def test_retention_forgets_queues_whose_messages_it_removed(tmp_path: Path) -> None:
    with open_log(tmp_path, enable_lmq=True, light_queue_count_max=2) as log:
        append(log, to_queues("%LMQ%a"), to_queues("%LMQ%b"))
        log._forget_before(log.status.end_offset)
        append(log, to_queues("%LMQ%c"), to_queues("%LMQ%d"))


def forge(root: Path, *forged: tuple[str, str]) -> Path:
    """A log of a broker that kept the positions that senders stated, without our state; its only file."""
    hidden = {name: name[:-1] + "x" for name in (DISPATCH, POSITIONS)}
    with open_log(root, enable_lmq=True) as log:
        append(log, *[to_queues("%LMQ%a")] * 5)
        for queue, position in forged:
            text = wire(**{hidden[DISPATCH]: queue, hidden[POSITIONS]: position})
            append(log, new_message(wire_properties=text, queue_id=0))
        size_bytes = log.status.end_offset
    shutil.rmtree(root / "reput")
    path = root / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    for name, other in hidden.items():
        data = data.replace(other.encode() + b"\x01", name.encode() + b"\x01")
    path.write_bytes(data)
    assert size_bytes <= len(data)
    return path


@pytest.mark.parametrize("position", ["2", "9" * 18])
def test_a_position_that_a_sender_made_up_hid_all_that_came_to_its_light_queue_later(
    tmp_path: Path, position: str
) -> None:
    """Seen in a walk and in a copy: the next message was stored at the position behind it, which is taken or has no unit."""
    path = forge(tmp_path, ("%LMQ%a", position))
    copied = CopiedFile(RealFileSystem(), path, 0, path.stat().st_size).walk.light
    assert {queue: next_offset for queue, (next_offset, _) in copied.items()} == {"%LMQ%a": 5}
    with open_log(tmp_path, enable_lmq=True) as log:
        log.opened.appender._light.update({"%LMQ%a": (3, log.status.end_offset)})
        assert texts(stored(log, to_queues("%LMQ%a"))) == [("%LMQ%a", "5")]


def test_a_copied_file_kept_the_names_of_all_its_light_queues_before_it_was_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile one of 1 GiB may name a hundred million."""
    with open_log(tmp_path, enable_lmq=True, file_size_bytes=1 << 20) as log:
        for number in range(300):
            names = f"%LMQ%a,%LMQ%{number}"
            append(log, new_message(bytes(1000), wire_properties=wire(**{DISPATCH: names}), queue_id=0))
    path = tmp_path / "commitlog" / f"{0:020d}"
    size_bytes = path.stat().st_size
    whole = CopiedFile(RealFileSystem(), path, 0, size_bytes).walk.light
    assert whole is not None
    assert len(whole) == 301
    monkeypatch.setattr(log_copy, "LIGHT_QUEUE_COUNT_MAX", 100)
    monkeypatch.setattr(log_copy, "RecordCursor", partial(RecordCursor, piece_bytes=1 << 16))
    walk = CopiedFile(RealFileSystem(), path, 0, size_bytes).walk
    assert walk.light is None
    file = MappedFile(RealFileSystem(), path, 0, size_bytes, writable=False)
    parts = list(walk.light_parts(OneFile(file)))
    file.close()
    assert max(map(len, parts)) < 200, "the limit, and the names of a piece"
    merged: dict[str, tuple[int, int]] = {}
    for part in parts:
        merged |= part
    assert merged == whole


def test_light_queues_began_at_0_again_in_a_log_that_came_without_its_first_records(tmp_path: Path) -> None:
    """A replica that joins late, and a store without its journal: groups have positions that were given before."""
    with open_log(tmp_path / "source", enable_lmq=True, file_size_bytes=1 << 16) as log:
        while log.status.end_offset < 3 << 15:
            append(log, new_message(body=bytes(1000)))
        last_record = log.opened.appender.last_record
        first, end = 1 << 16, log.status.end_offset
    (tmp_path / "source" / "commitlog" / f"{0:020d}").unlink()
    data = (tmp_path / "source" / "commitlog" / f"{first:020d}").read_bytes()[: end - first]
    shutil.rmtree(tmp_path / "source" / "reput")
    floor = str(light_position_max(first))

    for root in ("source", "replica"):
        with open_log(tmp_path / root, enable_lmq=True, file_size_bytes=1 << 16) as log:
            if root == "replica":
                log.opened.appender.write_copy(first, data)
                log.opened.appender.take_copied(end, last_record, 1, {}, {}, ())
            append(log, new_message())
            log._safe_points.write()
            copy_open_store(tmp_path / root, tmp_path / f"killed-{root}")
            assert texts(stored(log, to_queues("%LMQ%a"))) == [("%LMQ%a", floor)]
        with open_log(tmp_path / f"killed-{root}", enable_lmq=True, file_size_bytes=1 << 16) as log:
            assert log.opened.found.walked_from_offset > end, "the floor is that of the journal"
            assert texts(stored(log, to_queues("%LMQ%b"))) == [("%LMQ%b", floor)]


def test_appends_waited_while_retention_looked_at_all_light_queues(tmp_path: Path) -> None:
    with open_log(tmp_path, enable_lmq=True) as log:
        append(log, to_queues("%LMQ%a"))
        appender = log.opened.appender
        light: Any = appender._light
        looked = []
        forget = light.forget_before

        def forget_one(log_first_offset: int, number: int) -> None:
            assert appender._lock.locked()
            looked.append(number)
            forget(log_first_offset, number)

        light.forget_before = forget_one
        appender.forget_light_queues(log.status.end_offset)
    assert looked == list(range(TABLE_COUNT)), "the lock is free between two tables"
    assert light.count == 0


def test_a_journal_that_was_cut_in_its_first_block_hid_the_one_before_it(tmp_path: Path) -> None:
    journal, light = LightJournal(RealFileSystem(), tmp_path), LightOffsets()
    light.note("%LMQ%a", 500, 10)
    for log_end_offset in (100, 200):
        light.write_all()
        journal.write(light.take_changes(), log_end_offset)
    newest = tmp_path / "light-positions.2"
    newest.write_bytes(newest.read_bytes()[:20])
    found = LightOffsets()
    LightJournal(RealFileSystem(), tmp_path).load_newest(found)
    assert found.next_of("%LMQ%a") == 500
