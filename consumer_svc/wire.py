"""What the fields of reput.consumer.v1 mean: filters, durations, counts, settings."""

from google.protobuf.duration_pb2 import Duration

from consumer_svc.filters.message_filter import EVERYTHING, MessageFilter, filter_of_sql, filter_of_tags
from consumer_svc.state.codec import factor_of, lite_of, lite_to_proto, mode_to_proto, said_factor
from consumer_svc.state.group_states import GroupSettings
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import InvalidArgumentError
from store.format.delivery.consumer_files import check_priority_factor
from store.format.topic import validate_topic


def filter_of(wanted: gateway_pb.MessageFilter) -> MessageFilter:
    """The filter of a request.

    Raises:
        IllegalFilterError: its expression cannot be used.
    """
    match wanted.WhichOneof("expression"):
        case "tags":
            return filter_of_tags(wanted.tags)
        case "sql":
            return filter_of_sql(wanted.sql)
        case _:
            return EVERYTHING


def duration_millis(duration: Duration, field: str) -> int:
    """Milliseconds of a duration, parts of one dropped; InvalidArgumentError when it is negative."""
    millis = duration.seconds * 1000 + duration.nanos // 1_000_000
    if millis < 0:
        raise InvalidArgumentError(f"{field} is {millis} ms: it must be 0 or more", field=field)
    return millis


def count_of(value: int, field: str, default: int, largest: int) -> int:
    """A number of a request, within its limits; InvalidArgumentError when it is negative."""
    if value < 0:
        raise InvalidArgumentError(f"{field} {value} is negative: 0 to {largest} are possible", field=field)
    return min(value or default, largest)


def check_topic_named(topic: str) -> None:
    """InvalidArgumentError when a request names no topic."""
    if not topic:
        raise InvalidArgumentError("topic is empty: name one", field="topic")


def settings_to_proto(settings: GroupSettings, attempts_max: int) -> pb.GroupSettings:
    """A group's settings, with the number of attempts that counts."""
    return pb.GroupSettings(
        consumer_group=settings.consumer_group,
        ordered=settings.ordered,
        delivery_attempts_max=attempts_max,
        consume_enabled=settings.consume_enabled,
        broadcast=settings.broadcast,
        is_set=settings.is_set,
        request_modes=map(mode_to_proto, settings.request_modes),
        priority_factor=said_factor(settings),
        lite=lite_to_proto(settings.lite),
    )


def settings_of(settings: pb.GroupSettings) -> GroupSettings:
    """A group's settings."""
    if settings.delivery_attempts_max < 0:
        raise InvalidArgumentError(
            "delivery_attempts_max is negative: 0 means the default", field="delivery_attempts_max"
        )
    factor = factor_of(settings)
    check_priority_factor(factor)
    lite = lite_of(settings)
    if lite is not None:
        validate_topic(lite.bind_topic)
        if lite.client_event_count_max < 0:
            raise InvalidArgumentError(
                f"client_event_count_max is {lite.client_event_count_max}: 0 means the default", field="lite"
            )
    return GroupSettings(
        settings.consumer_group,
        settings.ordered,
        settings.delivery_attempts_max,
        settings.consume_enabled,
        settings.broadcast,
        priority_factor=factor,
        lite=lite,
    )
