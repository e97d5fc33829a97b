"""The RPCs of `reput.gateway.v1` about consumer groups: each function reads the request, asks and makes the response."""

import time
from collections.abc import Callable, Iterable, Sequence

from gateway.group_wire import facts_of, group_to, reset_question_of, settings_to, track_to
from gateway.groups.administration import SettingsChange, delete_group, describe_group, list_groups, update_group
from gateway.groups.copies import Original, find_original
from gateway.groups.positions import commit_positions, get_positions, reset_positions
from gateway.groups.pulling import lock_queues, send_back
from gateway.groups.tracked import MessageState
from gateway.groups.tracks import MessageTrack, follow, tracks_of_record
from gateway.groups.waits import due_millis, settled
from gateway.ports.groups import GroupChoice, GroupPage, Position, Track
from gateway.ports.shards import require_topic
from gateway.queries.arrival import Part
from gateway.queries.completeness import Completeness, ShardOutcome
from gateway.queries.limits import PAGE_BYTES_MAX, page_size
from gateway.query_answers import Call
from gateway.wire import MessageShards, shard_outcome_of, timestamp_of
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import RecordNotFoundError, StoreError

# FindMessage with tracks: each match costs a few calls to every shard, so a page of 1,000 would take seconds.
TRACKED_MATCH_COUNT_MAX = 16
TRACK_METHOD = "TrackMessage"
# By the outcomes of a consumer service, those of the gateway's contract.
SEND_BACK_OUTCOMES = {
    value: f"SEND_BACK_{name}" for name, value in consumer_pb.SendBackMessagesResponse.Outcome.items()
}
# What a track takes in an answer beside itself.
FIELD_BYTES = 8


def commit(call: Call, request: pb.CommitOffsetsRequest) -> pb.CommitOffsetsResponse:
    """CommitOffsets; errors as `commit_positions`."""
    positions = [
        (each.broker_name, Position(each.topic, each.queue_id, each.consumer_offset)) for each in request.positions
    ]
    commit_positions(call.shards, request.consumer_group, positions, call.deadline, begins=request.begins)
    return pb.CommitOffsetsResponse()


def sent_back(call: Call, request: pb.SendBackMessagesRequest) -> pb.SendBackMessagesResponse:
    """SendBackMessages; errors as `send_back`."""
    question = consumer_pb.SendBackMessagesRequest(
        consumer_group=request.consumer_group,
        topic=request.topic,
        queue_id=request.queue_id,
        queue_offsets=request.queue_offsets,
        delay_level=request.delay_level,
    )
    outcomes = send_back(call.shards, question, request.broker_name, call.deadline).outcomes
    return pb.SendBackMessagesResponse(outcomes=[SEND_BACK_OUTCOMES[each] for each in outcomes])


def locked(call: Call, request: pb.LockQueuesRequest) -> pb.LockQueuesResponse:
    """LockQueues; errors as `lock_queues`."""
    question = consumer_pb.LockQueuesRequest(
        consumer_group=request.consumer_group,
        client_id=request.client_id,
        queues=[consumer_pb.TopicQueue(topic=each.topic, queue_id=each.queue_id) for each in request.queues],
        unlock=request.unlock,
        renew=request.renew,
    )
    broker_names = [each.broker_name for each in request.queues]
    locked = lock_queues(call.shards, question, broker_names, call.deadline)

    def rows(queues: Sequence[tuple[str, str, int]]) -> list[pb.TopicQueue]:
        return [
            pb.TopicQueue(topic=topic, queue_id=queue_id, broker_name=broker_name)
            for broker_name, topic, queue_id in queues
        ]

    return pb.LockQueuesResponse(queues=rows(locked.held), unknown_queues=rows(locked.unknown))


def offsets(call: Call, request: pb.GetOffsetsRequest) -> pb.GetOffsetsResponse:
    """GetOffsets; errors as `get_positions`."""
    rows = get_positions(call.shards, request.consumer_group, request.topic, call.deadline)
    return pb.GetOffsetsResponse(
        positions=[
            pb.QueuePosition(
                topic=each.topic,
                queue_id=each.queue_id,
                broker_name=broker_name,
                consumer_offset=each.consumer_offset,
            )
            for broker_name, each in rows
        ]
    )


def reset(call: Call, request: pb.ResetOffsetsRequest) -> pb.ResetOffsetsResponse:
    """ResetOffsets; errors as `reset_positions` and `reset_question_of`."""
    resets = reset_positions(call.shards, reset_question_of(request), request.broker_name, call.deadline)
    return pb.ResetOffsetsResponse(
        resets=[
            pb.ResetOffsetsResponse.Reset(
                broker_name=broker_name, queue_id=each.queue_id, before=each.before, after=each.after
            )
            for broker_name, each in resets
        ]
    )


def groups(call: Call, request: pb.ListConsumerGroupsRequest) -> pb.ListConsumerGroupsResponse:
    """ListConsumerGroups; errors as `list_groups`."""
    choice = GroupChoice(request.page_size, request.topic, request.name_contains)
    page = list_groups(call.shards, call.tokens, choice, request.page_token, call.deadline)
    return pb.ListConsumerGroupsResponse(
        groups=map(settings_to, page.groups),
        outcomes=map(shard_outcome_of, page.outcomes),
        next_page_token=page.next_page_token,
    )


def group(
    call: Call, request: pb.GetConsumerGroupRequest, clock: Callable[[], float] = time.time
) -> pb.GetConsumerGroupResponse:
    """GetConsumerGroup; errors as `describe_group`.

    Args:
        call, request: the call.
        clock: seconds since 1970; ages are counted from it.
    """
    return group_to(describe_group(call.shards, request.consumer_group, call.deadline), int(clock() * 1000))


def update(call: Call, request: pb.UpdateConsumerGroupRequest) -> pb.UpdateConsumerGroupResponse:
    """UpdateConsumerGroup; errors as `update_group`."""
    change = SettingsChange(
        request.ordered if request.HasField("ordered") else None,
        request.delivery_attempts_max if request.HasField("delivery_attempts_max") else None,
        not request.consume_disabled if request.HasField("consume_disabled") else None,
        request.broadcast if request.HasField("broadcast") else None,
    )
    settings = update_group(call.shards, request.consumer_group, change, call.deadline)
    return pb.UpdateConsumerGroupResponse(settings=settings_to(settings))


def delete(call: Call, request: pb.DeleteConsumerGroupRequest) -> pb.DeleteConsumerGroupResponse:
    """DeleteConsumerGroup; errors as `delete_group`."""
    delete_group(call.shards, request.consumer_group, call.deadline)
    return pb.DeleteConsumerGroupResponse()


def track(call: Call, request: pb.TrackMessageRequest) -> pb.TrackMessageResponse:
    """TrackMessage; errors as `find_original`, `settled` and `tracks_of_record`, and InvalidPageTokenError."""
    sealed = {
        "offset_msg_id": request.offset_msg_id,
        "topic": request.topic,
        "unique_key": request.unique_key,
        "group_contains": request.group_contains,
        "consumer_group": request.consumer_group,
    }
    after = str(call.tokens.open(request.page_token, TRACK_METHOD, sealed).get("after", ""))
    choice = GroupChoice(
        page_size(request.page_size, "page_size"), "", request.group_contains, request.consumer_group, after
    )
    original = _original(call, request)
    original, state = _settled(call, original)
    page: GroupPage[Track] = GroupPage(())
    followed: Sequence[MessageTrack] = ()
    if state is MessageState.STORED:
        page = tracks_of_record(call.shards, original, choice, call.deadline)

        # After the tracks: a copy that the consumer service knows of is in the log by now.
        def query(shards: MessageShards) -> tuple[Sequence[MessageTrack], Sequence[ShardOutcome], Completeness]:
            return follow(shards, facts_of, original, page.items, call.deadline)

        followed, _, _ = call.ask((), Part.INDEX, query)
    message = original.record
    message.broker_name = original.broker_name
    if message.source != message_pb2.MESSAGE_SOURCE_ARCHIVE:
        message.source = message_pb2.MESSAGE_SOURCE_LIVE
    message.body_omitted = bool(message.body) or message.body_omitted
    message.ClearField("body")
    tracks = _fitting(map(track_to, followed), PAGE_BYTES_MAX - message.ByteSize())
    has_more = page.has_more or len(tracks) < len(followed)
    return pb.TrackMessageResponse(
        message=message,
        state=f"MESSAGE_STATE_{state.name}",
        due_time=timestamp_of(_due_millis(call, original)) if state is MessageState.SCHEDULED else None,
        tracks=tracks,
        next_page_token=call.tokens.seal(TRACK_METHOD, sealed, {"after": tracks[-1].consumer_group})
        if tracks and has_more
        else "",
    )


def _fitting(tracks: Iterable[pb.TrackMessageResponse.Track], bytes_max: int) -> list[pb.TrackMessageResponse.Track]:
    """The first tracks, as many as fit into so many bytes; at least one, when there is one."""
    fitting: list[pb.TrackMessageResponse.Track] = []
    for each in tracks:
        bytes_max -= each.ByteSize() + FIELD_BYTES
        if fitting and bytes_max < 0:
            break
        fitting.append(each)
    return fitting


def add_tracks(call: Call, answer: pb.FindMessageResponse) -> None:
    """FindMessage with tracks: what became of the first matches; nothing is said of those of which it cannot be told now."""
    for match in answer.matches[:TRACKED_MATCH_COUNT_MAX]:
        try:
            found = track(call, pb.TrackMessageRequest(offset_msg_id=match.message.offset_msg_id))
        except StoreError:
            continue
        match.state = found.state
        match.tracks.extend(found.tracks)
        match.has_more_tracks = bool(found.next_page_token)
        if found.HasField("due_time"):
            match.due_time.CopyFrom(found.due_time)


def _due_millis(call: Call, waiting: Original) -> int | None:
    return due_millis(call.shards.named(waiting.broker_name), waiting.facts, call.deadline)


def _settled(call: Call, found: Original) -> tuple[Original, MessageState]:
    if found.facts.state is MessageState.STORED:
        return found, MessageState.STORED

    def query(
        shards: MessageShards,
    ) -> tuple[tuple[Original, MessageState], Sequence[ShardOutcome], Completeness]:
        return settled(shards, facts_of, found, call.deadline), (), Completeness.COMPLETE

    answer, _, _ = call.ask((), Part.INDEX, query)
    return answer


def _original(call: Call, request: pb.TrackMessageRequest) -> Original:
    """The message; TopicNotFoundError, RecordNotFoundError, or the error of a shard that may have it."""

    def query(
        shards: MessageShards,
    ) -> tuple[Original | None, Sequence[ShardOutcome], Completeness]:
        return find_original(
            shards,
            facts_of,
            offset_msg_id=request.offset_msg_id,
            topic=request.topic,
            unique_key=request.unique_key,
            deadline=call.deadline,
        )

    found, outcomes, _ = call.ask((), Part.INDEX, query)
    if found is not None:
        return found
    for outcome in outcomes:
        if outcome.error is not None:  # its index is behind: the message may be there
            raise outcome.error
    require_topic(call.shards, request.topic, call.deadline)
    raise RecordNotFoundError(
        f"Topic {request.topic!r} has no message with the unique key {request.unique_key!r}.",
        topic=request.topic,
        uniqueKey=request.unique_key,
    )
