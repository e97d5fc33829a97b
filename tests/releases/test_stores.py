"""A store goes from a release to today's and back, with everything under way: all as before, nothing lost, nothing twice."""

import contextlib
import pathlib
import shutil
from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc
import pytest

from cli.earlier_release import unknown_to
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from reput_client import AppendClient, NewMessage
from store.errors import StoreError
from store.files.file_system import RealFileSystem
from tests.e2e.test_light_queues import COMPLETE, as_row, broker_row, by_offset, rows_of
from tests.releases.left_work import CALL, LONG, SETTINGS, Clients, answered
from tests.support.fixture_stores import unpack_store
from tests.support.releases import COMMITS, ReleaseStack
from tests.support.stack import hosted_stack
from tests.support.waiting import wait_until
from tests.torture.lasting_clients import GrpcPops

pytestmark = [pytest.mark.life, pytest.mark.timeout(300)]


@pytest.mark.parametrize("version", COMMITS)
def test_a_store_with_everything_under_way_goes_from_a_release_to_today_s_and_back(
    version: str, tmp_path: pathlib.Path
) -> None:
    store = tmp_path / "store"
    old = ReleaseStack(version, store, settings=SETTINGS)
    try:
        with Clients(old.addresses["gateway"]) as clients:
            left = clients.leave("old")
    finally:
        assert old.stop() == 0
    with hosted_stack(store, settings=SETTINGS) as today, Clients(today.addresses["gateway"]) as clients:
        clients.check(left)
        left = clients.leave("today")
    assert unknown_to(RealFileSystem(), store, version).counts == {}
    old = ReleaseStack(version, store, settings=SETTINGS)
    try:
        with Clients(old.addresses["gateway"]) as clients:
            clients.check(left)
    finally:
        assert old.stop() == 0


PARENT, LITE_GROUP, LITE_TOPICS = "sessions", "shared", ("one", "two")
# 0.2.0 writes a full state when it stops, once so many changes are behind the last one.
CHANGE_COUNT = 1_000
QUEUE_COUNT = 4


@pytest.mark.parametrize("version", ["0.2.0"])
def test_groups_of_lite_topics_are_as_before_behind_a_release_that_knows_none(
    version: str, tmp_path: pathlib.Path
) -> None:
    """That release writes the state of all groups anew, without what it does not know, and goes on with the queues."""
    store = tmp_path / "store"
    with hosted_stack(store, settings=SETTINGS) as today:
        gateway = today.addresses["gateway"]
        begin_lite(today.gateway)
        acked = lite_messages(gateway, 0)
        with contextlib.closing(GrpcPops(gateway, PARENT, "client-1")) as pops:
            answered(partial(pops.name_lite_topics, LITE_GROUP, LITE_TOPICS, is_all=True))
            assert drained(pops, len(acked)) == acked
        left = lite_messages(gateway, 10)
    assert unknown_to(RealFileSystem(), store, version).counts.keys() >= {"RELEASE_LITE_GROUPS", "RELEASE_TOPIC_TYPES"}
    old = ReleaseStack(version, store, settings=SETTINGS)
    try:
        for number in range(CHANGE_COUNT // QUEUE_COUNT + 1):
            positions = [
                pb.QueuePosition(topic=PARENT, queue_id=queue_id, broker_name="broker-a", consumer_offset=1)
                for queue_id in range(QUEUE_COUNT)
            ]
            old.gateway.CommitOffsets(pb.CommitOffsetsRequest(consumer_group=f"g{number}", positions=positions), **CALL)
    finally:
        assert old.stop() == 0
    with (
        hosted_stack(store, settings=SETTINGS) as today,
        contextlib.closing(GrpcPops(today.addresses["gateway"], PARENT, "client-1")) as pops,
    ):
        group = today.gateway.GetConsumerGroup(pb.GetConsumerGroupRequest(consumer_group=LITE_GROUP), **CALL)
        assert group.settings.lite.bind_topic == PARENT, group
        assert drained(pops, len(left)) == left
        left = lite_messages(today.addresses["gateway"], 20)
        assert drained(pops, len(left)) == left


@pytest.mark.parametrize("version", ["0.2.0"])
def test_groups_of_lite_topics_were_refused_behind_a_first_upgrade_until_the_part_before_had_expired(
    version: str, tmp_path: pathlib.Path
) -> None:
    store = tmp_path / "store"
    old = ReleaseStack(version, store, settings=SETTINGS)
    try:
        with Clients(old.addresses["gateway"]) as clients:
            clients.leave("old")
    finally:
        assert old.stop() == 0
    with (
        hosted_stack(store, settings=SETTINGS) as today,
        contextlib.closing(GrpcPops(today.addresses["gateway"], PARENT, "client-1")) as pops,
    ):
        begin_lite(today.gateway)
        left = lite_messages(today.addresses["gateway"], 0)
        answered(partial(pops.name_lite_topics, LITE_GROUP, LITE_TOPICS, is_all=True))
        assert drained(pops, len(left)) == left
        group = today.gateway.GetConsumerGroup(pb.GetConsumerGroupRequest(consumer_group=LITE_GROUP), **CALL)
        assert group.settings.lite.bind_topic == PARENT, group


@pytest.mark.parametrize("has_files", [True, False], ids=["with the broker's folders", "without them"])
@pytest.mark.parametrize("version", ["0.2.0"])
def test_light_queues_of_a_broker_are_found_behind_a_release_that_knows_none(
    version: str, has_files: bool, tmp_path: pathlib.Path
) -> None:
    """A replica and a mirror have no such files, and 0.2.0 leaves only their folders."""
    store = unpack_store("light", tmp_path / "store")
    for path in store.glob("consumequeue/%LMQ%*") if not has_files else ():
        shutil.rmtree(path)
    old = ReleaseStack(version, store)
    try:
        old.wait_until_built()
    finally:
        assert old.stop() == 0
    by_queue: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of("offset"):
        by_queue.setdefault(row["topic"], []).append(row)
    with hosted_stack(store) as today:
        for topic, rows in by_queue.items():

            def is_found(topic: str = topic, rows: Sequence[dict[str, Any]] = rows) -> bool:
                try:
                    answer = by_offset(today, topic, rows[0]["offset"], len(rows))
                except grpc.RpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                    return False  # they are being built
                if answer.completeness != COMPLETE:
                    return False
                assert [as_row(message) for message in answer.messages] == list(map(broker_row, rows)), topic
                return True

            wait_until(is_found, topic)


def begin_lite(gateway: gateway_grpc.GatewayServiceStub) -> None:
    gateway.CreateTopic(
        pb.CreateTopicRequest(topic=PARENT, queue_count=QUEUE_COUNT, message_type=message_pb2.MESSAGE_TYPE_LITE), **CALL
    )
    gateway.UpdateConsumerGroup(
        pb.UpdateConsumerGroupRequest(consumer_group=LITE_GROUP, lite_attributes={"lite.bind.topic": PARENT}), **CALL
    )


def lite_messages(gateway: str, first: int) -> list[str]:
    """Send some to each lite topic; their names."""
    names = []
    with AppendClient(gateway) as client:
        for topic in LITE_TOPICS:
            for number in range(first, first + 3):
                names.append(f"{topic}-{number}")
                client.append([NewMessage(PARENT, names[-1].encode(), unique_key=names[-1], lite_topic=topic)])
    return sorted(names)


def drained(pops: GrpcPops, count: int) -> list[str]:
    """Get and acknowledge so many messages, and whatever else comes at once."""
    got: list[str] = []

    def is_over() -> bool:
        try:
            popped = pops.pop(LITE_GROUP, 8, LONG, 8)
        except StoreError:
            return False  # the queues are being built
        for one in popped:
            got.append(one.name)
            assert answered(partial(pops.ack, LITE_GROUP, one.handle)), one.name
        return not popped and len(got) >= count

    wait_until(is_over, lambda: f"{count} messages, not {got}")
    return sorted(got)
