"""`reput serve --mirror` behind another `reput serve` that speaks RocketMQ's HA protocol: killed, restarted, on its own."""

import os
import pathlib
import shutil

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.commitlog_svc.rocketmq_ha.scripted_master import ScriptedMaster
from tests.commitlog_svc.support import append as log_append
from tests.commitlog_svc.support import new_message as log_message
from tests.commitlog_svc.support import open_log
from tests.support.fixture_stores import walk_frames
from tests.support.log_queries import check_queries, wait_until_shown
from tests.support.ports import free_port
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.life

TOPIC = "Orders"


def append(stack: Stack, first: int, count: int) -> list[message_pb2.AppendResult]:
    """Append messages with the keys `order-FIRST` and so on."""
    messages = [new_message(TOPIC, b"%d " % i * 300, keys=[f"order-{i}"]) for i in range(first, first + count)]
    return list(
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX).results
    )


def commitlog_of(stack: Stack) -> pb.GetStatusResponse.ServiceStatus:
    """The status of its commit log."""
    services = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
    (row,) = (row for row in services if row.service == "commitlog")
    return row


def wait_for_all(mirror: Stack, leader: Stack) -> None:
    """Until the mirror has the leader's log and has built from it."""
    end_offset = commitlog_of(leader).log_end_offset
    wait_until(lambda: commitlog_of(mirror).log_end_offset == end_offset, mirror.log)
    mirror.wait_until_built()


def offsets_of(stack: Stack, number: int) -> list[int]:
    """Where a query by key finds a message."""
    request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=f"order-{number}")
    return [
        message.commit_log_offset
        for message in stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX).messages
    ]


def test_a_mirror_answers_as_its_leader_refuses_appends_and_can_go_on_alone(tmp_path: pathlib.Path) -> None:
    ha_port = free_port()
    ours, flags = tmp_path / "mirror", ("--mirror", f"rocketmq://127.0.0.1:{ha_port}")
    settings = {"REPUT_COMMITLOG_ROCKETMQ_HA_ADDRESS": f"127.0.0.1:{ha_port}"}
    with running_stack(tmp_path / "leader", settings=settings) as leader:
        receipts = append(leader, 0, 400)
        with running_stack(ours, *flags) as mirror:
            wait_for_all(mirror, leader)
            mirror.kill()
        receipts += append(leader, 400, 100)
        with running_stack(ours, *flags) as mirror:
            wait_for_all(mirror, leader)
            receipts += append(leader, 500, 100)
            wait_for_all(mirror, leader)
            for number in range(0, 600, 60):
                assert offsets_of(mirror, number) == offsets_of(leader, number)
                assert offsets_of(mirror, number) == [receipts[number].commit_log_offset]
            with pytest.raises(grpc.RpcError, match="this store mirrors rocketmq:"):
                append(mirror, 600, 1)
            leader.stop()
            wait_until(lambda: "cannot be copied now" in commitlog_of(mirror).problem, mirror.log)
            assert (commitlog_of(mirror).state, len(offsets_of(mirror, 599))) == ("mirroring", 1)
            assert mirror.stop() == 0
    with running_stack(ours) as alone:
        (receipt,) = append(alone, 600, 1)
        assert receipt.commit_log_offset > receipts[-1].commit_log_offset
        alone.wait_until_built()
        assert offsets_of(alone, 600) == [receipt.commit_log_offset]


def test_all_processes_of_a_mirror_have_the_lowest_priority(tmp_path: pathlib.Path) -> None:
    """A broker on the same machine keeps its throughput."""
    with running_stack(tmp_path / "mirror", "--mirror", f"rocketmq://127.0.0.1:{free_port()}") as mirror:
        pids = [mirror.process.pid, *mirror.children().values()]
        assert len(pids) > 5
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids} == {19}


def test_a_mirror_that_does_not_ask_its_broker_says_what_it_does_not_know(tmp_path: pathlib.Path) -> None:
    """Neither that no group has consumed a message, nor that it is 0 bytes behind."""
    ha_port = free_port()
    settings = {"REPUT_COMMITLOG_ROCKETMQ_HA_ADDRESS": f"127.0.0.1:{ha_port}"}
    flags = ("--mirror", f"rocketmq://127.0.0.1:{ha_port}")
    with running_stack(tmp_path / "leader", settings=settings) as leader:
        (receipt,) = append(leader, 0, 1)
        with running_stack(tmp_path / "mirror", *flags) as mirror:
            wait_for_all(mirror, leader)
            request = pb.TrackMessageRequest(offset_msg_id=receipt.offset_msg_id)
            (track,) = mirror.gateway.TrackMessage(request, timeout=WAIT_SECONDS_MAX).tracks
            assert (track.consumer_group, track.state) == ("", pb.TRACK_STATE_UNKNOWN)
            assert "--mirror-broker" in track.reason
            wait_until(lambda: commitlog_of(mirror).HasField("followed_lag_bytes"), mirror.log)
            row = commitlog_of(mirror)
            assert (row.followed_lag_bytes, row.followed_lag_age.ToMilliseconds()) == (0, 0)
            leader.stop()
            wait_until(lambda: not commitlog_of(mirror).HasField("followed_lag_bytes"), mirror.log)
            assert commitlog_of(mirror).followed_lag_age.ToMilliseconds() > 0


def test_a_mirror_whose_broker_lost_its_end_and_went_on_starts_again_there(tmp_path: pathlib.Path) -> None:
    ours, theirs = tmp_path / "mirror", tmp_path / "broker"
    with open_log(theirs) as log:
        log_append(log, *(log_message(b"%d" % number * 300, TOPIC) for number in range(20)))
    shutil.copytree(theirs, ours)
    with open_log(ours) as log:
        log_append(log, *(log_message(b"lost %d" % number * 90, TOPIC) for number in range(20)))
        file_size_bytes = log.status.file_size_bytes
    with open_log(theirs) as log:
        log_append(log, *(log_message(b"later %d" % number * 90, TOPIC) for number in range(40)))
        data = log.read_bytes(0, log.status.end_offset)
    with (
        ScriptedMaster(data, file_size_bytes) as master,
        running_stack(ours, "--mirror", f"rocketmq://{master.address}") as mirror,
    ):
        wait_until_shown(mirror, len(data))
        check_queries(mirror, list(walk_frames(theirs)))
        assert "log.changed_by_owner" in mirror.log()
        assert mirror.process.poll() is None
