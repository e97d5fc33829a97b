"""Telemetry: a client tells its settings and is answered with those that hold here, for each settings command on its stream.

A producer whose settings name topics is also asked about the transactions of these topics that hang, and a consumer what it
does (sessions.py, asked_members.py).
"""

from collections.abc import Iterator

import grpc
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.ports.groups import attempts_max_of, is_of_lite_topics
from gateway.rocketmq.asked_members import MessagingMembers
from gateway.rocketmq.caller import Caller, caller_of, consumer_of
from gateway.rocketmq.clients import REQUEST_SECONDS_DEFAULT, Clients
from gateway.rocketmq.filters import filter_of
from gateway.rocketmq.message_rules import BODY_BYTES_MAX
from gateway.rocketmq.names import LITE_TOPIC_BYTES_MAX, full_name, group_of, topic_of
from gateway.rocketmq.sessions import QuestionBytes, TelemetrySession
from gateway.rocketmq.status import RefusedError, ok
from gateway.waiting.producers import Producers
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.serving.admission.callers import caller_here
from services.serving.admission.shares import client_of_name
from services.serving.calls.woken_requests import wake_here
from store.errors import InvalidArgumentError

# The retry policy that producers get: RocketMQ's proxy's default, few and quick retries.
ATTEMPT_COUNT_MAX = 3
BACKOFF_FIRST = Duration(nanos=10_000_000)
BACKOFF_MAX = Duration(seconds=1)
BACKOFF_FACTOR = 2.0
# What consumers get, as RocketMQ's proxy: messages of a poll, its time, and CustomizedRetryPolicy's waits (seconds).
RECEIVE_BATCH_SIZE = 32
LONG_POLLING_TIMEOUT = Duration(seconds=20)
RETRY_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
# Kinds of clients whose groups consume lite topics.
LITE_TYPES = frozenset({v2.LITE_PUSH_CONSUMER, v2.LITE_SIMPLE_CONSUMER})
# RocketMQ's `lite.sub.client.quota`, and what says that there is no quota.
LITE_SUBSCRIPTION_QUOTA, INT32_MAX = 2_000, (1 << 31) - 1
# Topics of one client that are passed on to its group's view.
SUBSCRIPTION_COUNT_MAX = 1_024
# Settings are kept and answered, by each of thousands of sessions. Those of 500 subscriptions have 32 KiB.
SETTINGS_BYTES_MAX = 64 * 1024
# What a client says when it was asked.
ANSWERS = frozenset(("thread_stack_trace", "verify_message_result"))


def telemetry(
    requests: Iterator[v2.TelemetryCommand],
    context: grpc.ServicerContext,
    clients: Clients,
    producers: Producers,
    members: MessagingMembers,
    question_bytes: QuestionBytes,
) -> Iterator[v2.TelemetryCommand]:
    """The answers of one stream, and the questions to its client. Other commands than settings get no answer.

    Args:
        requests: what the client says.
        context: the call's.
        clients: the clients that live.
        producers: those that can be asked for verdicts.
        members: those that can be asked what they do.
        question_bytes: of all streams.

    Raises:
        InvalidArgumentError: settings of no client; the stream ends, as RocketMQ's does.
        StoreError: the group's settings cannot be had; the client opens another stream.
    """

    client_id = caller_of(context).client_id
    session = TelemetrySession(lambda: clients.find(client_id) is not None, question_bytes, wake_here())

    def answer(command: v2.TelemetryCommand) -> v2.TelemetryCommand | None:
        if command.WhichOneof("command") in ANSWERS:
            session.note_answer(command)
        if not command.HasField("settings"):
            return None
        settings = command.settings
        try:
            answered = agreed(settings, context, clients)
        except RefusedError as error:
            raise InvalidArgumentError(error.message, field="settings") from error
        # Before the client reads the answer: from then on it expects to be asked.
        if client_id and settings.HasField("subscription"):
            members.settle(client_id, session)
        elif client_id:
            owner = client_of_name(caller_here())
            producers.settle(client_id, session, _served_topics(settings), owner=owner)
        return answered

    try:
        yield from session.commands(requests, answer)
    finally:
        producers.drop(session)
        members.drop(client_id, session)


def _served_topics(settings: v2.Settings) -> list[str]:
    return [full_name(topic) for topic in settings.publishing.topics]


def agreed(settings: v2.Settings, context: grpc.ServicerContext, clients: Clients) -> v2.TelemetryCommand:
    """The client's settings with what holds here; unknown fields are returned unchanged."""
    size_bytes = settings.ByteSize()
    if size_bytes > SETTINGS_BYTES_MAX:
        raise RefusedError(
            v2.BAD_REQUEST,
            f"the settings have {size_bytes} bytes: name fewer topics, {SETTINGS_BYTES_MAX} are possible",
        )
    answer = v2.TelemetryCommand(status=ok())
    answer.settings.CopyFrom(settings)
    answer.settings.metric.on = False
    kind = settings.WhichOneof("pub_sub")
    if kind == "publishing":
        topics = [topic_of(topic) for topic in settings.publishing.topics]
        caller = caller_of(context)
        if caller.client_id:
            clients.settle(_facts(settings, caller, ""), _request_seconds(settings), topics)
        _set_producer(answer.settings)
    elif kind == "subscription":
        group = group_of(settings.subscription.group)
        facts = _facts(settings, consumer_of(context), group)
        of_group = _group_of(facts, settings.client_type, clients)
        clients.settle(facts, _request_seconds(settings))
        _set_consumer(answer.settings, of_group)
    else:
        raise RefusedError(v2.BAD_REQUEST, "the settings have neither publishing nor subscription: set one")
    return answer


def _group_of(facts: pb.Client, client_type: "v2.ClientType", clients: Clients) -> pb.GroupSettings:
    """The settings of a member's group.

    Raises:
        RefusedError: the group consumes lite topics and the client does not, or the other way round, or it names another topic.
    """
    group = clients.group(facts)
    if not _refusal_of(facts, client_type, group):
        return group
    group = clients.group(facts, ask_again=True)  # somebody may just have set it
    refusal = _refusal_of(facts, client_type, group)
    if refusal:
        raise RefusedError(v2.BAD_REQUEST, refusal)
    return group


def _refusal_of(facts: pb.Client, client_type: "v2.ClientType", group: pb.GroupSettings) -> str:
    """Why a client cannot be a member of a group, in words that begin as those of RocketMQ's proxy; empty when it can."""
    name, parent = group.consumer_group, group.lite.bind_topic
    if client_type in LITE_TYPES and not is_of_lite_topics(group):
        return (
            f"regular group cannot use LITE mode: {name} is bound to no topic of lite topics: bind it (attribute "
            "lite.bind.topic), or use another kind of consumer"
        )
    if client_type not in LITE_TYPES and is_of_lite_topics(group):
        return f"lite group must use LITE mode: {name} consumes lite topics of {parent}: use a lite consumer, or another group"
    others = [each.topic for each in facts.subscriptions if each.topic != parent]
    if client_type in LITE_TYPES and others:
        return (
            f"lite group {name} is expected to bind topic {others[0]}, but actual is {parent}: subscribe to that topic"
        )
    return ""


def _set_producer(settings: v2.Settings) -> None:
    settings.backoff_policy.max_attempts = ATTEMPT_COUNT_MAX
    backoff = settings.backoff_policy.exponential_backoff
    backoff.initial.CopyFrom(BACKOFF_FIRST)
    backoff.max.CopyFrom(BACKOFF_MAX)
    backoff.multiplier = BACKOFF_FACTOR
    settings.publishing.max_body_size = BODY_BYTES_MAX
    settings.publishing.validate_message_type = True


def _set_consumer(settings: v2.Settings, group: pb.GroupSettings) -> None:
    settings.backoff_policy.max_attempts = attempts_max_of(group)
    # Not exponential: Python's push consumer knows only this form.
    waits = v2.CustomizedBackoff(next=[Duration(seconds=seconds) for seconds in RETRY_SECONDS])
    settings.backoff_policy.customized_backoff.CopyFrom(waits)
    settings.subscription.fifo = group.ordered
    settings.subscription.receive_batch_size = RECEIVE_BATCH_SIZE
    settings.subscription.long_polling_timeout.CopyFrom(LONG_POLLING_TIMEOUT)
    if is_of_lite_topics(group):
        quota = group.lite.client_quota or LITE_SUBSCRIPTION_QUOTA
        settings.subscription.lite_subscription_quota = quota if quota > 0 else INT32_MAX
        settings.subscription.max_lite_topic_size = LITE_TOPIC_BYTES_MAX


def _facts(settings: v2.Settings, caller: Caller, group: str) -> pb.Client:
    subscriptions = settings.subscription.subscriptions[:SUBSCRIPTION_COUNT_MAX]
    return pb.Client(
        client_id=caller.client_id,
        consumer_group=group,
        subscriptions=[
            gateway_pb.TopicSubscription(topic=full_name(each.topic), filter=filter_of(each.expression))
            for each in subscriptions
        ],
        language=caller.language,
        version=caller.version,
        address=caller.address,
        kind=kind_of(settings.client_type),
        caller=caller_here(),
    )


def kind_of(client_type: "v2.ClientType") -> str:
    """The kind of a client in words."""
    name = v2.ClientType.Name(client_type) if client_type in v2.ClientType.values() else "unknown"
    return name.lower().replace("_", " ")


def _request_seconds(settings: v2.Settings) -> float:
    if not settings.HasField("request_timeout"):
        return REQUEST_SECONDS_DEFAULT
    return settings.request_timeout.seconds + settings.request_timeout.nanos / 1e9
