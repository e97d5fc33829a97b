"""Reput beside a real broker under load and as its slave, at once: all answers equal brute force over the broker's log.

The broker sends, delays, commits, rolls back, retries, gives up, removes old files, restarts, and loses the end of its log.
REPUT_MIRROR_SECONDS sets the seconds of load; a release runs ten minutes.
"""

import json
import os
import pathlib
import random
import re
import shutil
import statistics
import time
from functools import partial

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.format.record import Record, decode_record
from tests.rocketmq import broker_calls, real_broker
from tests.rocketmq.broker_load import GROUP, TOPIC, Broker, BrokerLoad
from tests.support.fixture_stores import walk_frames
from tests.support.log_queries import check_queries, wait_until_shown
from tests.support.stack import Stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

RETRIES, DEAD_LETTERS, WAITING = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}", "SCHEDULE_TOPIC_XXXX"
FILE_BYTES, LOG_BYTES_MIN = 262_144, 5 * 262_144
SETTINGS = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 4_000,
    "transactionCheckInterval": 600_000,  # nothing is appended while answers are compared
    "fileReservedTime": 0,  # hours: retention may remove each file but the last
    "deleteFileBatchMax": 1,
    "cleanResourceInterval": 2_000,
    "enableScheduleAsyncDeliver": "false",
}
# RocketMQ looks for expired files from the sixtieth second of a broker on.
CHANGE_SECONDS, RELEASE_SECONDS = 72.0, 600.0
AFTER_RESTART_SECONDS = 8.0
LAG_BYTES_MAX = 4 << 20
LAG_SHARE_MAX = 0.25  # of the time of the load
TRACK_COUNT = 60
LOST_COUNT = 40
Frames = list[tuple[int, bytes]]


def commitlog_of(stack: Stack) -> pb.GetStatusResponse.ServiceStatus:
    """The status of its commit log."""
    services = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
    (row,) = (row for row in services if row.service == "commitlog")
    return row


def positions(store: pathlib.Path) -> dict[tuple[str, int], int]:
    """The group's positions in the broker's own file, by topic and queue."""
    try:
        text = (store / "config" / "consumerOffset.json").read_text()
        table = json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', text))["offsetTable"]  # its keys are numbers
    except (FileNotFoundError, ValueError):  # it is being written
        return {}
    return {
        (name.rpartition("@")[0], int(queue_id)): offset
        for name, queues in table.items()
        if name.rpartition("@")[2] == GROUP
        for queue_id, offset in queues.items()
    }


def tracks_of(stack: Stack, unique_key: str) -> list[pb.TrackMessageResponse.Track]:
    """What became of a message, by group; asked again while the state of the groups is read."""
    request = pb.TrackMessageRequest(topic=TOPIC, unique_key=unique_key)
    found: list[pb.TrackMessageResponse] = []

    def is_answered() -> bool:
        try:
            found.append(stack.gateway.TrackMessage(request, timeout=WAIT_SECONDS_MAX))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        return bool(found)

    wait_until(is_answered, "the state of the groups is read")
    return list(found[0].tracks)


def known_positions(stack: Stack) -> dict[tuple[str, int], int]:
    """The group's positions as Reput has them; none while the state of the groups is read, which says to ask again."""
    try:
        answer = stack.gateway.GetConsumerGroup(
            pb.GetConsumerGroupRequest(consumer_group=GROUP), timeout=WAIT_SECONDS_MAX
        )
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return {}
    return {(queue.topic, queue.queue_id): queue.consumer_offset for queue in answer.queues}


def copies_of(records: list[Record]) -> dict[str, list[Record]]:
    """What the broker made of messages that the group could not consume, by unique key, oldest first."""
    copies: dict[str, list[Record]] = {}
    for one in records:
        if one.topic in (RETRIES, DEAD_LETTERS) or one.properties.get("REAL_TOPIC") == RETRIES:
            copies.setdefault(one.properties["UNIQ_KEY"], []).append(one)
    return copies


def expected_state(message: Record, copies: list[Record], where: dict[tuple[str, int], int]) -> str:
    """What became of a message for the group, by the broker's log and the positions that it has."""
    if message.queue_offset >= where.get((TOPIC, message.queue_id), 0):
        return "NOT_CONSUMED"
    if not copies:
        return "CONSUMED"
    newest = copies[-1]
    if newest.topic == DEAD_LETTERS:
        return "DEAD_LETTER"
    is_consumed = newest.topic == RETRIES and newest.queue_offset < where.get((RETRIES, newest.queue_id), 0)
    return "CONSUMED" if is_consumed else "RETRYING"


def check_tracks(stack: Stack, frames: Frames, where: dict[tuple[str, int], int]) -> None:
    """Compare what became of messages with the broker's log and its positions."""
    wait_until(lambda: known_positions(stack).items() >= where.items(), lambda: (known_positions(stack), where))
    records = [decode_record(frame, commit_log_offset=offset) for offset, frame in frames]
    sent = [one for one in records if one.topic == TOPIC and not one.sys_flag & broker_calls.ROLLBACK]
    made_of = copies_of(records)
    states: set[str] = set()
    # Some of each kind: few messages are retried.
    copies = {key: len(made) for key, made in made_of.items()}
    wanted = {
        one.commit_log_offset: expected_state(one, made_of.get(one.properties["UNIQ_KEY"], []), where) for one in sent
    }
    chosen = random.Random(18).sample(sent, min(len(sent), TRACK_COUNT))
    for state in ("NOT_CONSUMED", "RETRYING", "DEAD_LETTER"):
        chosen += [one for one in sent if wanted[one.commit_log_offset] == state][-5:]
    for one in chosen:
        tracks = tracks_of(stack, one.properties["UNIQ_KEY"])
        (track,) = (row for row in tracks if row.consumer_group == GROUP)
        state = wanted[one.commit_log_offset]
        found = (pb.TrackState.Name(track.state), len(track.copy_offset_msg_ids))
        assert found == (f"TRACK_STATE_{state}", copies.get(one.properties["UNIQ_KEY"], 0)), (one, track)
        states.add(state)
    assert states == {"CONSUMED", "NOT_CONSUMED", "RETRYING", "DEAD_LETTER"}


def check_everything(stack: Stack, frames: Frames, where: dict[tuple[str, int], int]) -> None:
    """The four queries and the tracks, once all is shown."""
    wait_until_shown(stack, frames[-1][0] + len(frames[-1][1]))
    check_queries(stack, frames)
    check_tracks(stack, frames, where)


def has_no_lag(stack: Stack) -> bool:
    """Whether it says that it shows everything."""
    row = commitlog_of(stack)
    return row.HasField("followed_lag_bytes") and row.followed_lag_bytes == 0


def note_lag(stack: Stack, noted: list[tuple[int, float]]) -> None:
    """Note how far it is behind the broker, in bytes and in seconds."""
    row = commitlog_of(stack)
    if row.HasField("followed_lag_bytes"):
        noted.append((row.followed_lag_bytes, row.followed_lag_age.ToMilliseconds() / 1000))


def lose_the_end(store: pathlib.Path, count: int) -> int:
    """Take the last records of a stopped broker's log, as a power cut does with asynchronous flush; where it ends then."""
    frames = list(walk_frames(store))
    end, _ = frames[-count]
    for file in sorted((store / "commitlog").iterdir()):
        begin, size = int(file.name), file.stat().st_size
        if begin + size > end:
            with open(file, "r+b") as log:
                log.seek(max(0, end - begin))
                log.write(bytes(size - max(0, end - begin)))
    for derived in ("consumequeue", "index"):
        shutil.rmtree(store / derived)
    (store / "checkpoint").unlink()
    (store / "abort").write_text("")
    return end


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(float(os.environ.get("REPUT_MIRROR_SECONDS", CHANGE_SECONDS)), id="change"),
        pytest.param(RELEASE_SECONDS, id="release", marks=pytest.mark.release),
    ],
)
def test_a_broker_under_load_and_both_mirrors_of_it_answer_alike(tmp_path: pathlib.Path, seconds: float) -> None:
    store, kept = tmp_path / "theirs", tmp_path / "kept"
    broker = Broker(store, tmp_path / "rocketmq", **SETTINGS)
    # The stack beside the broker has processes; a start of all of them again for each mirror shows nothing more.
    flags = (
        "--single-process",
        *("--mirror", f"rocketmq://127.0.0.1:{broker.broker_port + 1}"),
        *("--mirror-broker", f"127.0.0.1:{broker.broker_port}"),
    )
    try:
        broker.start()
        load = BrokerLoad(broker, kept)
        with (
            running_stack(store, "--follow", "--derived", str(tmp_path / "derived")) as beside,
            running_stack(tmp_path / "mirror", *flags) as mirror,
        ):
            lags: dict[str, list[tuple[int, float]]] = {"beside": [], "mirror": []}
            with load:
                begun, is_asked = time.monotonic(), False
                while not has_removed(store):
                    # A slow machine takes longer until there is enough to remove.
                    if not is_asked and time.monotonic() - begun > seconds and broker.log_end() > LOG_BYTES_MIN:
                        broker_calls.delete_expired_files(broker.broker_port)
                        is_asked = True
                    load.wait_for(1.0)
                    note_lag(beside, lags["beside"])
                    note_lag(mirror, lags["mirror"])
                broker.stop()  # it removes no more
                broker.start()  # a clean restart under load
                load.wait_for(AFTER_RESTART_SECONDS)
            end = load.wait_until_quiet()
            retries = len(broker_calls.stored(store, RETRIES))
            broker_calls.update_consumer_offset(broker.broker_port, GROUP, RETRIES, 0, retries // 2)
            where = {(TOPIC, queue_id): queue.offset for queue_id, queue in load.queues.items()}
            where[RETRIES, 0] = retries // 2
            wait_until(lambda: positions(store).items() >= where.items(), lambda: (positions(store), where))
            of_broker, of_all_times = list(walk_frames(store)), list(walk_frames(kept))
            assert len(of_all_times) - len(of_broker) > 100, "the test wants files that retention removed"
            assert of_broker[-1][0] + len(of_broker[-1][1]) == end
            check_everything(beside, of_broker, where)
            wait_until_shown(mirror, end)
            of_mirror = list(walk_frames(tmp_path / "mirror"))
            assert [at for at, _ in of_mirror] == [at for at, _ in of_all_times]
            assert of_mirror == of_all_times
            check_everything(mirror, of_all_times, where)
            assert broker.log_end() == end, "the broker wrote while answers were compared"
            for stack, noted in ((beside, lags["beside"]), (mirror, lags["mirror"])):
                # Medians: how long a busy machine lets one of them wait once proves nothing.
                assert statistics.median(lag for lag, _ in noted) <= LAG_BYTES_MAX
                assert statistics.median(age for _, age in noted) <= LAG_SHARE_MAX * seconds
                wait_until(partial(has_no_lag, stack), stack.log)
                assert "log.damaged" not in stack.log()
            broker.stop()
            cut = lose_the_end(store, LOST_COUNT)
            broker.start()
            for number in range(LOST_COUNT // 2):
                broker_calls.send(broker.broker_port, TOPIC, f"after {number}", KEYS=f"after-{number}")
            load.wait_until_quiet()
            of_broker = list(walk_frames(store))
            assert of_broker[-1][0] > cut
            wait_until(lambda: "log.changed_by_owner" in beside.log(), beside.log)
            wait_until_shown(beside, of_broker[-1][0] + len(of_broker[-1][1]))
            wait_until(partial(is_complete, beside, of_broker), beside.log)
            check_queries(beside, of_broker)
            wait_until(
                lambda: any(words in commitlog_of(mirror).problem for words in ("ends before", "other bytes")),
                lambda: commitlog_of(mirror),
            )
            check_queries(mirror, of_all_times)  # what the broker lost is still there
        with running_stack(tmp_path / "new mirror", *flags) as mirror:
            wait_until_shown(mirror, of_broker[-1][0] + len(of_broker[-1][1]))
            check_queries(mirror, of_broker)
        with running_stack(tmp_path / "alone", *flags[:3], settings=FILE_SIZE) as mirror:
            wait_until_shown(mirror, of_broker[-1][0] + len(of_broker[-1][1]))
            (track,) = tracks_of(mirror, unique_key_of(of_broker))
            assert (track.consumer_group, track.state) == ("", pb.TRACK_STATE_UNKNOWN)
            assert "--mirror-broker" in track.reason
    finally:
        broker.stop()


FILE_SIZE = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_BYTES)}


def has_removed(store: pathlib.Path) -> bool:
    """Whether a broker has removed the first file of its log, which has more than a hundred messages."""
    return min((int(file.name) for file in (store / "commitlog").iterdir()), default=0) > 0


def is_complete(stack: Stack, frames: Frames) -> bool:
    """Whether answers are complete: they are PARTIAL while queues and index are compared with a log that was cut."""
    request = pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key=unique_key_of(frames))
    answer = stack.gateway.QueryMessageByUniqueKey(request, timeout=WAIT_SECONDS_MAX)
    return answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def unique_key_of(frames: Frames) -> str:
    """The unique key of the last message."""
    records = (decode_record(frame, commit_log_offset=offset) for offset, frame in reversed(frames))
    return next(one.properties["UNIQ_KEY"] for one in records if one.topic == TOPIC)
