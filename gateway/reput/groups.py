"""The RPCs of `reput.gateway.v1` about consumer groups: tracks, pulls, dead letters and their administration.

From the top: each function reads the request, asks and makes the response; the conversions; dead letters that are sent again;
`GroupMethods`, which GatewayServicer has as its own.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import grpc

from gateway.appends.forwarder import AppendForwarder
from gateway.groups.administration import Group, SettingsChange, delete_group, describe_group, list_groups, update_group
from gateway.groups.asked_members import AskedMembers, check_stack_trace, find_member
from gateway.groups.copies import Original, find_original
from gateway.groups.dead_letters import Letter, Resending, ResendQuestion
from gateway.groups.lite_topics import list_lite_topics
from gateway.groups.positions import commit_positions, get_positions, reset_positions
from gateway.groups.pulling import lock_queues, send_back
from gateway.groups.traces import TraceQuestion, read_traces
from gateway.groups.tracked import state_of
from gateway.groups.tracks import follow, tracks_of_record
from gateway.groups.waits import due_millis, settled
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import DeliveringSource, Pulled, filter_in, pull_now
from gateway.ports.groups import attempts_max_of, is_of_lite_topics, lag_count
from gateway.ports.shards import Shards, ShardsSource, require_topic
from gateway.ports.time_window import millis_at_or_after, millis_in
from gateway.queries.completeness import ShardOutcome, judge
from gateway.queries.freshness import Part
from gateway.queries.page import PAGE_BYTES_MAX, check_topic, page_size
from gateway.reput.pulling import PullStreams
from gateway.reput.queries import Call
from gateway.reput.query_methods import choice_of
from gateway.reput.running_info import info_of, keep_topics
from gateway.reput.wire import duration_of, filter_of, millis_of, shard_outcome_of, timestamp_of, window_of
from gateway.shards.replica_choice import ReadFrom
from gateway.shards.replica_reads import ReplicaReads
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import millis_to_timestamp, timestamp_to_millis
from services.message_copy import new_message, origin_topic_of
from services.methods import INNER_SECONDS
from services.serving.calls.blocked_caller import BlockedCaller
from services.serving.calls.cancellation import Cancellation
from services.serving.calls.raw_handlers import AnyHandler
from services.serving.deadline import answer_seconds
from store.errors import (
    InvalidArgumentError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreError,
)
from store.format.topic import RETRY_PREFIX, TRACE_TOPIC

# FindMessage with tracks: each match costs a few calls to every shard, so a page of 1,000 would take seconds.
TRACKED_MATCH_COUNT_MAX = 16
TRACK_METHOD = "TrackMessage"
# What a track takes in an answer beside itself.
FIELD_BYTES = 8


def commit(call: Call, request: pb.CommitOffsetsRequest) -> pb.CommitOffsetsResponse:
    """CommitOffsets; errors as `commit_positions`."""
    positions = [
        (
            each.broker_name,
            consumer_pb.QueueOffset(topic=each.topic, queue_id=each.queue_id, queue_offset=each.consumer_offset),
        )
        for each in request.positions
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
    return pb.SendBackMessagesResponse(outcomes=outcomes)


def locked(call: Call, request: pb.LockQueuesRequest) -> pb.LockQueuesResponse:
    """LockQueues; errors as `lock_queues`."""
    question = consumer_pb.LockQueuesRequest(
        consumer_group=request.consumer_group,
        client_id=request.client_id,
        queues=request.queues,
        unlock=request.unlock,
        renew=request.renew,
    )
    return lock_queues(call.shards, question, call.deadline)


def offsets(call: Call, request: pb.GetOffsetsRequest) -> pb.GetOffsetsResponse:
    """GetOffsets; errors as `get_positions`."""
    rows = get_positions(call.shards, request.consumer_group, request.topic, call.deadline)
    return pb.GetOffsetsResponse(
        positions=[
            pb.QueuePosition(
                topic=each.topic,
                queue_id=each.queue_id,
                broker_name=broker_name,
                consumer_offset=each.queue_offset,
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
                broker_name=broker_name,
                queue_id=each.queue_id,
                before=each.before if each.HasField("before") else None,
                after=each.after,
            )
            for broker_name, each in resets
        ]
    )


def groups(call: Call, request: pb.ListConsumerGroupsRequest) -> pb.ListConsumerGroupsResponse:
    """ListConsumerGroups; errors as `list_groups`."""
    choice = consumer_pb.ListGroupsRequest(
        page_size=request.page_size, topic=request.topic, name_contains=request.name_contains
    )
    page = list_groups(call.shards, call.tokens, choice, request.page_token, call.deadline)
    return pb.ListConsumerGroupsResponse(
        groups=map(settings_to, page.groups),
        outcomes=map(shard_outcome_of, page.outcomes),
        next_page_token=page.next_page_token,
    )


def lite_topics(call: Call, request: pb.ListLiteTopicsRequest) -> pb.ListLiteTopicsResponse:
    """ListLiteTopics; errors as `list_lite_topics`."""
    choice = consumer_pb.ListLiteTopicsRequest(
        topic=request.topic,
        consumer_group=request.consumer_group,
        lite_topic_contains=request.name_contains,
        client_id=request.client_id,
        lite_topic=request.lite_topic,
        page_size=request.page_size,
    )
    page = list_lite_topics(call.shards, call.tokens, choice, request.page_token, call.deadline)
    rows = [_lite_topic_to(broker_name, each) for broker_name, each in page.rows]
    return pb.ListLiteTopicsResponse(
        lite_topics=rows, outcomes=map(shard_outcome_of, page.outcomes), next_page_token=page.next_page_token
    )


def _lite_topic_to(broker_name: str, lite_topic: consumer_pb.LiteTopic) -> pb.LiteTopic:
    return pb.LiteTopic(
        lite_topic=lite_topic.lite_topic,
        broker_name=broker_name,
        min_offset=lite_topic.min_offset,
        max_offset=lite_topic.max_offset,
        last_store_time=lite_topic.last_store_time if lite_topic.HasField("last_store_time") else None,
        groups=lite_topic.groups,
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


def running_info(
    call: Call, request: pb.GetConsumerRunningInfoRequest, infos: AskedMembers
) -> pb.GetConsumerRunningInfoResponse:
    """GetConsumerRunningInfo; of a caller that does not see everything, what is of topics that it may see.

    Raises:
        PermissionDeniedError: such a caller asks for stacks, which name anything.
        StoreError: as `find_member`, `AskedMembers.get` and `info_of`.
    """
    group_name, is_limited = request.consumer_group, call.shards.is_limited
    if request.with_stack_trace:
        check_stack_trace(group_name, is_limited=is_limited)
    member = find_member(call.shards, group_name, request.client_id, call.deadline)
    info = info_of(infos.get(group_name, member, call.deadline, with_stack_trace=request.with_stack_trace))
    if is_limited:
        keep_topics(info, {each.topic for each in member.subscriptions} | {f"{RETRY_PREFIX}{group_name}"})
    return info


def update(call: Call, request: pb.UpdateConsumerGroupRequest) -> pb.UpdateConsumerGroupResponse:
    """UpdateConsumerGroup; errors as `update_group`."""
    change = SettingsChange(
        request.ordered if request.HasField("ordered") else None,
        request.delivery_attempts_max if request.HasField("delivery_attempts_max") else None,
        not request.consume_disabled if request.HasField("consume_disabled") else None,
        request.broadcast if request.HasField("broadcast") else None,
        request.priority_factor if request.HasField("priority_factor") else None,
        dict(request.lite_attributes),
    )
    settings = update_group(call.shards, request.consumer_group, change, call.deadline)
    return pb.UpdateConsumerGroupResponse(settings=settings_to(settings))


def delete(call: Call, request: pb.DeleteConsumerGroupRequest) -> pb.DeleteConsumerGroupResponse:
    """DeleteConsumerGroup; errors as `delete_group`."""
    delete_group(call.shards, request.consumer_group, call.deadline)
    return pb.DeleteConsumerGroupResponse()


# Tracks, and what clients told; None: it was not asked for.
_Followed: TypeAlias = tuple[Sequence[pb.TrackMessageResponse.Track], pb.MessageTraces | None]


def track(
    call: Call, request: pb.TrackMessageRequest, trace_topic_default: str = TRACE_TOPIC
) -> pb.TrackMessageResponse:
    """TrackMessage; errors as `find_original`, `settled`, `tracks_of_record` and `check_topic`, and InvalidPageTokenError.

    `trace_topic_default`: where traces lie for a request that does not say so.
    """
    trace_topic = request.trace_topic or trace_topic_default
    check_topic(trace_topic, "trace_topic")
    sealed = {
        "offset_msg_id": request.offset_msg_id,
        "topic": request.topic,
        "unique_key": request.unique_key,
        "group_contains": request.group_contains,
        "consumer_group": request.consumer_group,
        **({"trace_topic": trace_topic} if request.with_traces else {}),
    }
    after = str(call.tokens.open(request.page_token, TRACK_METHOD, sealed).get("after", ""))
    choice = consumer_pb.TrackMessageRequest(
        page_size=page_size(request.page_size, "page_size"),
        name_contains=request.group_contains,
        consumer_group=request.consumer_group,
        after=after,
    )
    original = _original(call, request)
    original, state = _settled(call, original)
    page = consumer_pb.TrackMessageResponse()
    is_stored = state == pb.MESSAGE_STATE_STORED
    if is_stored:
        page = tracks_of_record(call.shards, original, choice, call.deadline)
    of_traces: TraceQuestion | None = None
    if request.with_traces and not request.page_token:
        of_traces = TraceQuestion(trace_topic, original.record.unique_key)

    # After the tracks: a copy that the consumer service knows of is in the log by now. Both in one query, which costs one wait
    # for the index.
    def query(shards: Shards) -> tuple[_Followed, Sequence[ShardOutcome], message_pb2.Completeness]:
        followed: Sequence[pb.TrackMessageResponse.Track] = ()
        outcomes: list[ShardOutcome] = []
        if is_stored:
            followed, outcomes, _ = follow(shards, original, page.tracks, call.deadline)
        traces: pb.MessageTraces | None = None
        if of_traces is not None:
            traces, told = _traces(shards, of_traces, call.deadline)
            outcomes = [*outcomes, *told]
        return (followed, traces), outcomes, judge(outcomes, more=False)

    followed: Sequence[pb.TrackMessageResponse.Track] = ()
    traces: pb.MessageTraces | None = None
    if is_stored or of_traces is not None:
        (followed, traces), outcomes, completeness = call.ask((), Part.INDEX, query)
        if traces is not None and not traces.problem and completeness == message_pb2.COMPLETENESS_PARTIAL:
            reasons = (f"shard {each.broker_name}: {each.error.message}" for each in outcomes if each.error is not None)
            traces.problem = f"traces may be missing: {next(reasons, 'the index is behind the log: ask again')}"
    message = original.record
    message.broker_name = original.broker_name
    if message.source != message_pb2.MESSAGE_SOURCE_ARCHIVE:
        message.source = message_pb2.MESSAGE_SOURCE_LIVE
    message.body_omitted = bool(message.body) or message.body_omitted
    message.ClearField("body")
    tracks = _fitting(followed, PAGE_BYTES_MAX - message.ByteSize() - (0 if traces is None else traces.ByteSize()))
    has_more = page.has_more or len(tracks) < len(followed)
    return pb.TrackMessageResponse(
        message=message,
        state=state,
        due_time=timestamp_of(_due_millis(call, original)) if state == pb.MESSAGE_STATE_SCHEDULED else None,
        tracks=tracks,
        next_page_token=call.tokens.seal(TRACK_METHOD, sealed, {"after": tracks[-1].consumer_group})
        if tracks and has_more
        else "",
        traces=traces,
    )


def _traces(
    shards: Shards, question: TraceQuestion, deadline: Deadline
) -> tuple[pb.MessageTraces, tuple[ShardOutcome, ...]]:
    """What clients told of a message, and how the shards took part; a refusal and a failure stand in it."""
    try:
        return read_traces(shards, question, deadline)
    except StoreError as error:
        return pb.MessageTraces(topic=question.topic, problem=f"traces cannot be read: {error.message}"), ()


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
    return due_millis(call.shards.named(waiting.broker_name), waiting.record, call.deadline)


def _settled(call: Call, found: Original) -> tuple[Original, pb.MessageState]:
    if state_of(found.record) == pb.MESSAGE_STATE_STORED:
        return found, pb.MESSAGE_STATE_STORED

    def query(
        shards: Shards,
    ) -> tuple[tuple[Original, pb.MessageState], Sequence[ShardOutcome], message_pb2.Completeness]:
        return settled(shards, found, call.deadline), (), message_pb2.COMPLETENESS_COMPLETE

    answer, _, _ = call.ask((), Part.INDEX, query)
    return answer


def _original(call: Call, request: pb.TrackMessageRequest) -> Original:
    """The message; TopicNotFoundError, RecordNotFoundError, or the error of a shard that may have it."""

    def query(
        shards: Shards,
    ) -> tuple[Original | None, Sequence[ShardOutcome], message_pb2.Completeness]:
        return find_original(
            shards,
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


def settings_to(settings: consumer_pb.GroupSettings) -> pb.ConsumerGroupSettings:
    """The settings of a group."""
    return pb.ConsumerGroupSettings(
        consumer_group=settings.consumer_group,
        ordered=settings.ordered,
        delivery_attempts_max=attempts_max_of(settings),
        consume_disabled=not settings.consume_enabled,
        broadcast=settings.broadcast,
        priority_factor=settings.priority_factor if settings.HasField("priority_factor") else None,
        lite=settings.lite if is_of_lite_topics(settings) else None,
    )


def reset_question_of(request: pb.ResetOffsetsRequest) -> consumer_pb.ResetOffsetsRequest:
    """Where a group shall go on; InvalidArgumentError when the request does not say where."""
    kind = request.WhichOneof("to")
    question = consumer_pb.ResetOffsetsRequest(
        consumer_group=request.consumer_group,
        topic=request.topic,
        queue_id=request.queue_id if request.HasField("queue_id") else None,
        dry_run=request.dry_run,
    )
    if kind == "time":
        question.time.CopyFrom(millis_to_timestamp(millis_of(request, "time", millis_at_or_after) or 0))
    elif kind == "queue_offset":
        question.queue_offset = request.queue_offset
    elif kind == "earliest" and request.earliest:
        question.earliest = True
    elif kind == "latest" and request.latest:
        question.latest = True
    else:
        raise InvalidArgumentError("to is missing: set earliest, latest, time or queue_offset.", field="to")
    return question


def group_to(group: Group, now_millis: int) -> pb.GetConsumerGroupResponse:
    """A group."""
    return pb.GetConsumerGroupResponse(
        settings=settings_to(group.settings),
        members=map(_member_to, group.members),
        queues=[_queue_to(broker_name, queue, now_millis) for broker_name, queue in group.queues],
        retry_count=group.retry_count,
        dead_letter_count=group.dead_letter_count,
        problems=group.problems,
        outcomes=map(shard_outcome_of, group.outcomes),
        lite_topics=[
            pb.LiteTopicsSummary(
                topic=each.topic,
                lite_topic_count=each.lite_topic_count,
                lag_count=each.lag_count,
                in_flight_count=each.in_flight_count,
            )
            for each in group.lite_topics
        ],
    )


def _member_to(member: consumer_pb.Client) -> pb.ConsumerGroupMember:
    return pb.ConsumerGroupMember(
        client_id=member.client_id,
        language=member.language,
        version=member.version,
        address=member.address,
        subscriptions=[
            pb.TopicSubscription(topic=each.topic, filter=filter_in(each.filter)) for each in member.subscriptions
        ],
        kind=member.kind,
    )


def _queue_to(broker_name: str, queue: consumer_pb.GroupQueue, now_millis: int) -> pb.ConsumerGroupQueue:
    row = pb.ConsumerGroupQueue(
        topic=queue.topic,
        queue_id=queue.queue_id,
        broker_name=broker_name,
        consumer_offset=queue.consumer_offset,
        min_offset=queue.min_offset,
        max_offset=queue.max_offset,
        lag_count=lag_count(queue),
        in_flight_count=queue.in_flight_count,
        removed_count=queue.removed_count,
    )
    oldest_millis = millis_in(queue, "oldest_store_time") if row.lag_count else None
    if oldest_millis is not None:
        row.lag_age.CopyFrom(duration_of(max(now_millis - oldest_millis, 0)))
    return row


def letter_of(message: StoredMessage) -> Letter:
    """A dead letter. Where it goes is what it says of its origin, RocketMQ's or ours."""
    return Letter(
        message.offset_msg_id, timestamp_to_millis(message.store_time, "store_time"), origin_topic_of(message)
    )


CheckTopic = Callable[[str], object]


class LetterAppends:
    """An Appending over the forwarder.

    Args:
        forwarder: sends append requests.
        check_topic: raises PermissionDeniedError for a topic that the caller may not append to.
    """

    def __init__(self, forwarder: AppendForwarder, check_topic: CheckTopic = lambda _: None) -> None:
        self._forwarder = forwarder
        self._check_topic = check_topic

    def append(self, broker_name: str, letters: Sequence[StoredMessage], deadline: Deadline) -> Sequence[str]:
        """See Appending."""
        messages = [new_message(letter, letter_of(letter).topic) for letter in letters]
        for topic in {message.topic for message in messages}:
            self._check_topic(topic)
        request = pb.AppendMessagesRequest(messages=messages, broker_name=broker_name)
        waiting = BlockedCaller(deadline.remaining_seconds)
        self._forwarder.append_messages(request.SerializeToString(), waiting)
        answer = pb.AppendMessagesResponse.FromString(waiting.result())
        return [result.offset_msg_id for result in answer.results]


def resend(
    call: Call,
    request: pb.ResendDeadLettersRequest,
    source: DeliveringSource,
    appends: LetterAppends,
) -> pb.ResendDeadLettersResponse:
    """ResendDeadLetters; errors as `Resending.resend`."""
    question = ResendQuestion(
        request.consumer_group, filter_of(request.filter), window_of(request), request.max_messages, request.dry_run
    )

    def pull(broker_name: str, ask: consumer_pb.PullMessagesRequest, deadline: Deadline) -> Pulled:
        return pull_now(source, broker_name, ask, deadline)

    resending = Resending(call.shards, call.tokens, pull, letter_of, appends)
    resent, next_page_token = resending.resend(question, request.page_token, call.deadline)
    return pb.ResendDeadLettersResponse(
        resent=[
            pb.ResendDeadLettersResponse.Resent(
                offset_msg_id=each.letter.offset_msg_id,
                topic=each.letter.topic,
                new_offset_msg_id=each.new_offset_msg_id,
            )
            for each in resent
        ],
        next_page_token=next_page_token,
    )


class GroupDelivery:
    """What delivers, for the methods that do more than ask the shards.

    Args:
        source: the consumer services of the shards.
        streams: serves PullMessages.
        appends: appends dead letters again.
    """

    def __init__(self, source: DeliveringSource, streams: PullStreams, appends: LetterAppends) -> None:
        self.source = source
        self.streams = streams
        self.appends = appends


class GroupMethods:
    """The methods; `_source` and `_call` are those of the servicer.

    Attributes:
        delivery: set by the gateway; None where nothing is delivered.
        reads, read_from: see GatewayServicer.
        asked_members: asks members; the gateway adds the ways to them.
        trace_topic: see GatewaySettings.
    """

    asked_members: AskedMembers
    delivery: GroupDelivery | None = None
    reads: ReplicaReads | None = None
    read_from: ReadFrom = ReadFrom.LEADER
    trace_topic: str = TRACE_TOPIC
    _source: ShardsSource

    def _call(self, context: grpc.ServicerContext) -> Call:
        raise NotImplementedError

    @property
    def _delivery(self) -> GroupDelivery:
        if self.delivery is None:
            raise ServiceUnavailableError("this gateway delivers no messages", service="consumer")
        return self.delivery

    def PullMessages(self, request: pb.PullMessagesRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        """The messages of a queue in batches, which are PullMessagesResponses as bytes: see `raw_handlers`."""
        delivery, choice = self._delivery, choice_of(request, self.read_from)
        leader = delivery.source.named(request.broker_name)
        seconds = partial(answer_seconds, context, INNER_SECONDS)
        if self.reads is None or choice.read_from is ReadFrom.LEADER:
            return delivery.streams.answers(self._source.now(), request, Cancellation.of(context), leader, seconds)
        # Not a generator: the choice of the thread ends here, the stream goes on.
        with self.reads.reading(choice):
            shards = self._source.now()
        return delivery.streams.answers(
            shards, request, Cancellation.of(context), self.reads.pulls(leader, choice), seconds
        )

    def raw_handlers(self) -> dict[str, AnyHandler]:
        """The handlers of methods that answer with bytes."""
        pull: AnyHandler = grpc.unary_stream_rpc_method_handler(
            self.PullMessages, request_deserializer=pb.PullMessagesRequest.FromString
        )
        return {"PullMessages": pull}

    def CommitOffsets(
        self, request: pb.CommitOffsetsRequest, context: grpc.ServicerContext
    ) -> pb.CommitOffsetsResponse:
        """Sets positions of a group."""
        return commit(self._call(context), request)

    def SendBackMessages(
        self, request: pb.SendBackMessagesRequest, context: grpc.ServicerContext
    ) -> pb.SendBackMessagesResponse:
        """Gives messages to a group again."""
        return sent_back(self._call(context), request)

    def LockQueues(self, request: pb.LockQueuesRequest, context: grpc.ServicerContext) -> pb.LockQueuesResponse:
        """Locks queues for a member of a group."""
        return locked(self._call(context), request)

    def GetOffsets(self, request: pb.GetOffsetsRequest, context: grpc.ServicerContext) -> pb.GetOffsetsResponse:
        """The positions of a group."""
        return offsets(self._call(context), request)

    def ResetOffsets(self, request: pb.ResetOffsetsRequest, context: grpc.ServicerContext) -> pb.ResetOffsetsResponse:
        """Moves a group to other positions."""
        return reset(self._call(context), request)

    def ListConsumerGroups(
        self, request: pb.ListConsumerGroupsRequest, context: grpc.ServicerContext
    ) -> pb.ListConsumerGroupsResponse:
        """The groups of all shards."""
        return groups(self._call(context), request)

    def ListLiteTopics(
        self, request: pb.ListLiteTopicsRequest, context: grpc.ServicerContext
    ) -> pb.ListLiteTopicsResponse:
        """The lite topics of a topic."""
        return lite_topics(self._call(context), request)

    def GetConsumerGroup(
        self, request: pb.GetConsumerGroupRequest, context: grpc.ServicerContext
    ) -> pb.GetConsumerGroupResponse:
        """A group with its members, queues and lag."""
        return group(self._call(context), request)

    def GetConsumerRunningInfo(
        self, request: pb.GetConsumerRunningInfoRequest, context: grpc.ServicerContext
    ) -> pb.GetConsumerRunningInfoResponse:
        """What a member of a group does now."""
        return running_info(self._call(context), request, self.asked_members)

    def UpdateConsumerGroup(
        self, request: pb.UpdateConsumerGroupRequest, context: grpc.ServicerContext
    ) -> pb.UpdateConsumerGroupResponse:
        """Sets the settings of a group."""
        return update(self._call(context), request)

    def DeleteConsumerGroup(
        self, request: pb.DeleteConsumerGroupRequest, context: grpc.ServicerContext
    ) -> pb.DeleteConsumerGroupResponse:
        """Forgets a group."""
        return delete(self._call(context), request)

    def TrackMessage(self, request: pb.TrackMessageRequest, context: grpc.ServicerContext) -> pb.TrackMessageResponse:
        """What has become of a message."""
        return track(self._call(context), request, self.trace_topic)

    def ResendDeadLetters(
        self, request: pb.ResendDeadLettersRequest, context: grpc.ServicerContext
    ) -> pb.ResendDeadLettersResponse:
        """Sends dead letters to their own topics again."""
        delivery = self._delivery
        return resend(self._call(context), request, delivery.source, delivery.appends)
