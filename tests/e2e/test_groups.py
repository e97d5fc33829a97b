"""Consumer groups, pulls, tracks and dead letters over a real stack: what reput.gateway.v1 answers."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import MessageState, QueryClient
from services.calling.client import ServiceClient
from services.rpcs import consumer as rpc
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

INVISIBLE_SECONDS = 1


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("groups") / "store") as running:
        yield running


@pytest.fixture(scope="module")
def consumer(stack: HostedStack) -> Iterator[ServiceClient]:
    client = ServiceClient("consumer", stack.addresses["consumer"])
    yield client
    client.close()


def send(stack: HostedStack, topic: str, count: int, **fields: object) -> list[str]:
    """Ids of new messages in queue 0."""
    messages = [new_message(topic, b"%d" % number, queue_id=0, **fields) for number in range(count)]
    return [
        result.offset_msg_id
        for result in stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages)).results
    ]


def pull(stack: HostedStack, topic: str, **fields: object) -> list[pb.PullMessagesResponse]:
    return list(stack.gateway.PullMessages(pb.PullMessagesRequest(topic=topic, **fields), timeout=WAIT_SECONDS_MAX))


def refused(call: object, request: object) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        answer = call(request, timeout=WAIT_SECONDS_MAX)
        list(answer) if hasattr(answer, "__next__") else answer
    return caught.value.code()


def test_a_pull_streams_batches_to_the_end_of_the_queue_and_says_where_it_is(stack: HostedStack) -> None:
    send(stack, "Batches", 5, tags="a")
    stack.wait_until_built()

    batches = pull(stack, "Batches", max_messages=2)

    assert [[bytes(each.body) for each in batch.messages] for batch in batches] == [
        [b"0", b"1"],
        [b"2", b"3"],
        [b"4"],
        [],
    ]
    assert [batch.next_offset for batch in batches] == [2, 4, 5, 5]
    assert batches[-1].status == pb.PULL_STATUS_NO_NEW_MSG
    assert {batch.max_offset for batch in batches} == {5}
    assert {each.broker_name for batch in batches for each in batch.messages} == {"broker-a"}


def test_a_filter_that_takes_nothing_still_moves_the_position(stack: HostedStack) -> None:
    send(stack, "Filtered", 3, tags="a")
    stack.wait_until_built()

    batches = pull(stack, "Filtered", filter=pb.MessageFilter(tags="b"))

    assert [(batch.status, batch.next_offset) for batch in batches] == [
        (pb.PULL_STATUS_NO_MATCHED_MSG, 3),
        (pb.PULL_STATUS_NO_NEW_MSG, 3),
    ]


def test_a_pull_that_waits_is_woken_by_the_arrival_and_not_by_its_end(stack: HostedStack) -> None:
    send(stack, "Waited", 1)
    request = pb.PullMessagesRequest(topic="Waited", queue_offset=1, wait=Duration(seconds=60))
    stream = stack.gateway.PullMessages(request, timeout=60)
    timer = threading.Timer(0.3, send, (stack, "Waited", 1))
    timer.start()
    began = time.monotonic()

    batch = next(stream)
    stream.cancel()

    assert [each.queue_offset for each in batch.messages] == [1]
    assert time.monotonic() - began < 20
    timer.join()


def test_a_pull_outside_the_queue_ends_and_names_a_position_inside(stack: HostedStack) -> None:
    send(stack, "Outside", 2)
    stack.wait_until_built()

    (batch,) = pull(stack, "Outside", queue_offset=9)

    assert (batch.status, batch.next_offset) == (pb.PULL_STATUS_OFFSET_ILLEGAL, 2)


def test_bad_requests_get_the_codes_that_the_contract_names_and_change_nothing(stack: HostedStack) -> None:
    send(stack, "Known", 1)
    gateway = stack.gateway
    huge = "x" * 300
    bad, absent = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    position = pb.QueuePosition(topic="Known", queue_id=0, consumer_offset=1)

    def back(**fields: Any) -> pb.SendBackMessagesRequest:
        good: dict[str, Any] = {"consumer_group": "bad-commit", "topic": "Known", "queue_offsets": [0]}
        return pb.SendBackMessagesRequest(**{**good, **fields})

    def lock(**fields: Any) -> pb.LockQueuesRequest:
        good = {"consumer_group": "bad-commit", "client_id": "a", "queues": [pb.TopicQueue(topic="Known")]}
        return pb.LockQueuesRequest(**{**good, **fields})

    gateway.UpdateConsumerGroup(pb.UpdateConsumerGroupRequest(consumer_group="quiet"), timeout=WAIT_SECONDS_MAX)
    cases = [
        (gateway.PullMessages, pb.PullMessagesRequest(topic=""), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic=huge), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", queue_id=-1), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", queue_offset=-1), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", max_messages=-1), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", max_bytes=-1), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", wait=Duration(seconds=-1)), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", filter=pb.MessageFilter(sql="a >")), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", filter=pb.MessageFilter(tags=huge * 60)), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", consumer_group=huge), bad),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="NoSuch"), absent),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", queue_id=4_000), absent),
        (gateway.PullMessages, pb.PullMessagesRequest(topic="Known", broker_name="no-such"), absent),
        (gateway.CommitOffsets, pb.CommitOffsetsRequest(positions=[position]), bad),
        (gateway.CommitOffsets, pb.CommitOffsetsRequest(consumer_group="bad-commit"), bad),
        (
            gateway.CommitOffsets,
            pb.CommitOffsetsRequest(consumer_group="bad-commit", positions=[position] * 1_025),
            bad,
        ),
        (
            gateway.CommitOffsets,
            pb.CommitOffsetsRequest(
                consumer_group="bad-commit", positions=[position, pb.QueuePosition(topic="Known", consumer_offset=-1)]
            ),
            bad,
        ),
        (
            gateway.CommitOffsets,
            pb.CommitOffsetsRequest(
                consumer_group="bad-commit",
                positions=[position, pb.QueuePosition(topic="Known", broker_name="no-such")],
            ),
            absent,
        ),
        (gateway.SendBackMessages, back(consumer_group=""), bad),
        (gateway.SendBackMessages, back(consumer_group="a/b"), bad),
        (gateway.SendBackMessages, back(topic=""), bad),
        (gateway.SendBackMessages, back(queue_id=-1), bad),
        (gateway.SendBackMessages, back(queue_offsets=[]), bad),
        (gateway.SendBackMessages, back(queue_offsets=[0] * 33), bad),
        (gateway.SendBackMessages, back(queue_offsets=[-1]), bad),
        (gateway.SendBackMessages, back(queue_offsets=[0, 1]), grpc.StatusCode.OUT_OF_RANGE),
        (gateway.SendBackMessages, back(queue_id=4_000), grpc.StatusCode.OUT_OF_RANGE),
        (gateway.SendBackMessages, back(topic="NoSuch"), absent),
        (gateway.SendBackMessages, back(broker_name="no-such"), absent),
        (gateway.LockQueues, lock(consumer_group=""), bad),
        (gateway.LockQueues, lock(consumer_group="a/b"), bad),
        (gateway.LockQueues, lock(client_id=""), bad),
        (gateway.LockQueues, lock(client_id=huge * 4), bad),
        (gateway.LockQueues, lock(queues=[]), bad),
        (gateway.LockQueues, lock(queues=[pb.TopicQueue(topic="Known", queue_id=-1)]), bad),
        (gateway.LockQueues, lock(queues=[pb.TopicQueue(topic="Known", queue_id=1 << 30)]), bad),
        (gateway.LockQueues, lock(queues=[pb.TopicQueue(topic="Known")] * 1_025), bad),
        (gateway.LockQueues, lock(queues=[pb.TopicQueue(topic="Known", broker_name="no-such")]), absent),
        (
            gateway.LockQueues,
            lock(queues=[pb.TopicQueue(topic="NoSuch"), pb.TopicQueue(topic="Known", queue_id=99)]),
            absent,
        ),
        (gateway.GetOffsets, pb.GetOffsetsRequest(consumer_group="no-such"), absent),
        (gateway.GetOffsets, pb.GetOffsetsRequest(), bad),
        (gateway.ResetOffsets, pb.ResetOffsetsRequest(consumer_group="no-such", topic="NoSuch", latest=True), absent),
        (gateway.ResetOffsets, pb.ResetOffsetsRequest(consumer_group="a/b", topic="Known", latest=True), bad),
        (gateway.GetConsumerGroup, pb.GetConsumerGroupRequest(consumer_group="no-such"), absent),
        (gateway.GetConsumerGroup, pb.GetConsumerGroupRequest(consumer_group=huge), bad),
        (gateway.UpdateConsumerGroup, pb.UpdateConsumerGroupRequest(consumer_group="a/b"), bad),
        (
            gateway.UpdateConsumerGroup,
            pb.UpdateConsumerGroupRequest(consumer_group="bad-commit", delivery_attempts_max=-1),
            bad,
        ),
        (
            gateway.UpdateConsumerGroup,
            pb.UpdateConsumerGroupRequest(consumer_group="bad-commit", delivery_attempts_max=2_147_483_647),
            bad,
        ),
        (gateway.TrackMessage, pb.TrackMessageRequest(), bad),
        (gateway.TrackMessage, pb.TrackMessageRequest(offset_msg_id="zz"), bad),
        (gateway.TrackMessage, pb.TrackMessageRequest(topic="Known"), bad),
        (gateway.TrackMessage, pb.TrackMessageRequest(unique_key="k"), bad),
        (gateway.TrackMessage, pb.TrackMessageRequest(topic="NoSuch", unique_key="k"), absent),
        (gateway.TrackMessage, pb.TrackMessageRequest(topic="Known", unique_key="no-such"), absent),
        (gateway.TrackMessage, pb.TrackMessageRequest(offset_msg_id="7F00000100002A9F00000000FFFFFFFF"), absent),
        (gateway.ResendDeadLetters, pb.ResendDeadLettersRequest(consumer_group="no-such"), absent),
        (gateway.ResendDeadLetters, pb.ResendDeadLettersRequest(), bad),
        (
            gateway.ResendDeadLetters,
            pb.ResendDeadLettersRequest(consumer_group="quiet", filter=pb.MessageFilter(sql="a >")),
            bad,
        ),
        (gateway.ResendDeadLetters, pb.ResendDeadLettersRequest(consumer_group="g", max_messages=-1), bad),
        (gateway.ResendDeadLetters, pb.ResendDeadLettersRequest(consumer_group="g", page_token="made up"), bad),
    ]

    for call, request, code in cases:
        assert refused(call, request) is code, request

    listed = gateway.ListConsumerGroups(pb.ListConsumerGroupsRequest(), timeout=WAIT_SECONDS_MAX)
    assert "bad-commit" not in {each.consumer_group for each in listed.groups}


def test_a_group_counts_for_the_connection_that_made_it(stack: HostedStack) -> None:
    send(stack, "Owned", 1)
    position = pb.QueuePosition(topic="Owned", queue_id=0, consumer_offset=0)
    stack.gateway.CommitOffsets(
        pb.CommitOffsetsRequest(consumer_group="by-commit", positions=[position]), timeout=WAIT_SECONDS_MAX
    )
    with QueryClient(stack.addresses["gateway"]) as client:
        states = client.by_offset("rmq_sys_REPUT_CONSUMER_STATE", 0, 0)
        made = [message.body for message in states if b"by-commit" in message.body]
    assert b"ipv4:127.0.0.1:" in made[0]


def test_lag_counts_also_the_queues_that_a_group_has_never_read(stack: HostedStack) -> None:
    messages = [new_message("Lagging", b"x", queue_id=queue_id) for queue_id in (0, 0, 1, 1, 1)]
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages))
    commit = pb.CommitOffsetsRequest(
        consumer_group="lagging", positions=[pb.QueuePosition(topic="Lagging", queue_id=0, consumer_offset=1)]
    )
    stack.gateway.CommitOffsets(commit, timeout=WAIT_SECONDS_MAX)
    stack.wait_until_built()

    group = stack.gateway.GetConsumerGroup(
        pb.GetConsumerGroupRequest(consumer_group="lagging"), timeout=WAIT_SECONDS_MAX
    )

    assert {(queue.queue_id, queue.lag_count) for queue in group.queues} == {(0, 1), (1, 3)}
    assert all(queue.HasField("lag_age") for queue in group.queues)


def test_a_dry_run_of_a_reset_says_what_the_reset_does_and_changes_nothing(stack: HostedStack) -> None:
    ids = send(stack, "Resets", 4)
    gateway = stack.gateway
    commit = pb.CommitOffsetsRequest(
        consumer_group="resets", positions=[pb.QueuePosition(topic="Resets", queue_id=0, consumer_offset=1)]
    )
    gateway.CommitOffsets(commit, timeout=WAIT_SECONDS_MAX)
    request = pb.ResetOffsetsRequest(consumer_group="resets", topic="Resets", queue_offset=3)

    dry = pb.ResetOffsetsRequest(dry_run=True)
    dry.MergeFrom(request)
    expected = [("broker-a", 0, 1, 3), *(("broker-a", queue_id, 0, 0) for queue_id in range(1, 8))]
    (wait_until(lambda: pull(stack, "Resets", queue_offset=3)[0].max_offset == 4, "the consumer service knows all"))
    dry_resets = gateway.ResetOffsets(dry, timeout=WAIT_SECONDS_MAX).resets
    (before,) = gateway.GetOffsets(pb.GetOffsetsRequest(consumer_group="resets"), timeout=WAIT_SECONDS_MAX).positions
    resets = gateway.ResetOffsets(request, timeout=WAIT_SECONDS_MAX).resets
    after, *_without_messages = gateway.GetOffsets(
        pb.GetOffsetsRequest(consumer_group="resets"), timeout=WAIT_SECONDS_MAX
    ).positions

    def rows(given: object) -> list[tuple[str, int, int, int]]:
        return [(each.broker_name, each.queue_id, each.before, each.after) for each in given]

    assert rows(dry_resets) == rows(resets) == expected
    assert (before.consumer_offset, after.consumer_offset) == (1, 3)
    states = [track_states(stack, offset_msg_id)["resets"] for offset_msg_id in ids]
    assert states == [
        pb.TRACK_STATE_CONSUMED,
        pb.TRACK_STATE_SKIPPED,
        pb.TRACK_STATE_SKIPPED,
        pb.TRACK_STATE_NOT_CONSUMED,
    ]


def track(stack: HostedStack, **which: str) -> pb.TrackMessageResponse:
    return stack.gateway.TrackMessage(pb.TrackMessageRequest(**which), timeout=WAIT_SECONDS_MAX)


def track_states(stack: HostedStack, offset_msg_id: str) -> dict[str, int]:
    return {each.consumer_group: each.state for each in track(stack, offset_msg_id=offset_msg_id).tracks}


def pop(consumer: ServiceClient, group: str, topic: str) -> list[consumer_pb.Delivery]:
    request = consumer_pb.PopMessagesRequest(
        consumer_group=group, topic=topic, client_id="a-client", invisible_duration=Duration(seconds=INVISIBLE_SECONDS)
    )
    return list(consumer.call(rpc.POP_MESSAGES, request).deliveries)


def test_a_message_is_tracked_from_its_first_delivery_to_its_second_life(
    stack: HostedStack, consumer: ServiceClient
) -> None:
    gateway = stack.gateway
    gateway.UpdateConsumerGroup(
        pb.UpdateConsumerGroupRequest(consumer_group="poor", delivery_attempts_max=2), timeout=WAIT_SECONDS_MAX
    )
    sent = gateway.AppendMessages(
        pb.AppendMessagesRequest(
            messages=[
                new_message(
                    "Fates",
                    b"a body",
                    queue_id=0,
                    tags="t",
                    keys=["k-1"],
                    properties={"colour": "red"},
                    unique_key="fate-1",
                )
            ]
        )
    ).results[0]

    def poor() -> pb.TrackMessageResponse.Track | None:
        tracks = track(stack, topic="Fates", unique_key="fate-1").tracks
        return next((each for each in tracks if each.consumer_group == "poor"), None)

    def becomes(state: int) -> pb.TrackMessageResponse.Track:
        wait_until(lambda: (known := poor()) is not None and known.state == state, lambda: f"{state}: {poor()}")
        known = poor()
        assert known is not None
        return known

    def deliver() -> None:
        wait_until(lambda: pop(consumer, "poor", "Fates"), "it is delivered")

    stack.wait_until_built()
    deliver()
    in_flight = becomes(pb.TRACK_STATE_IN_FLIGHT)
    assert (in_flight.client_id, in_flight.delivery_attempts) == ("a-client", 1)
    assert in_flight.HasField("next_time")

    found = gateway.FindMessage(
        pb.FindMessageRequest(text="k-1", topic="Fates", with_tracks=True), timeout=WAIT_SECONDS_MAX
    )
    (match,) = found.matches
    assert match.state == pb.MESSAGE_STATE_STORED
    under_way = (pb.TRACK_STATE_IN_FLIGHT, pb.TRACK_STATE_RETRYING)  # it is hidden for a second
    assert {each.consumer_group for each in match.tracks if each.state in under_way} == {"poor"}
    (plain,) = gateway.FindMessage(pb.FindMessageRequest(text="k-1", topic="Fates"), timeout=WAIT_SECONDS_MAX).matches
    assert (plain.HasField("state"), len(plain.tracks)) == (False, 0)
    with QueryClient(stack.addresses["gateway"]) as queries:
        (seen,) = list(queries.find("k-1", "Fates", with_tracks=True))
    assert seen.state is MessageState.STORED
    assert [each.delivery_attempts for each in seen.tracks if each.consumer_group == "poor"] == [1]

    retrying = becomes(pb.TRACK_STATE_RETRYING)
    assert retrying.delivery_attempts == 1
    deliver()
    again = becomes(pb.TRACK_STATE_IN_FLIGHT)
    assert again.delivery_attempts == 2

    dead = becomes(pb.TRACK_STATE_DEAD_LETTER)
    assert len(dead.copy_offset_msg_ids) == 2
    by_letter = track(stack, offset_msg_id=dead.copy_offset_msg_ids[-1])
    assert by_letter.message.offset_msg_id == sent.offset_msg_id
    assert by_letter.tracks == track(stack, offset_msg_id=sent.offset_msg_id).tracks
    group = gateway.GetConsumerGroup(pb.GetConsumerGroupRequest(consumer_group="poor"), timeout=WAIT_SECONDS_MAX)
    assert (group.retry_count, group.dead_letter_count) == (0, 1)

    request = pb.ResendDeadLettersRequest(consumer_group="poor", dry_run=True)
    (planned,) = gateway.ResendDeadLetters(request, timeout=WAIT_SECONDS_MAX).resent
    assert (planned.offset_msg_id, planned.topic, planned.new_offset_msg_id) == (
        dead.copy_offset_msg_ids[-1],
        "Fates",
        "",
    )
    (resent,) = gateway.ResendDeadLetters(
        pb.ResendDeadLettersRequest(consumer_group="poor"), timeout=WAIT_SECONDS_MAX
    ).resent
    new = gateway.QueryMessageById(
        pb.QueryMessageByIdRequest(offset_msg_id=resent.new_offset_msg_id), timeout=WAIT_SECONDS_MAX
    ).message
    assert (new.topic, new.body, new.tags, list(new.keys)) == ("Fates", b"a body", "t", ["k-1"])
    assert new.unique_key != "fate-1"
    own = {name: value for name, value in new.properties.items() if name not in ("UNIQ_KEY", "__CRC32#")}
    assert own == {"TAGS": "t", "KEYS": "k-1", "colour": "red"}
    assert becomes(pb.TRACK_STATE_DEAD_LETTER) == dead
    assert track_states(stack, resent.new_offset_msg_id)["poor"] == pb.TRACK_STATE_NOT_CONSUMED
