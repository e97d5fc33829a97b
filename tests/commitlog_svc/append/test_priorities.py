"""A priority chooses the queue of its message; RocketMQ 5.5.0 was seen to place these, and to drop the property of others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reput.message.v1.message_pb2 import NewMessage
from store.errors import InvalidMessageError
from tests.commitlog_svc.support import new_message
from tests.commitlog_svc.twins import Twins, open_twins, request_of

NAME = "_SYS_MSG_PRIORITY_"
QUEUE_COUNT = 8  # of a topic that its first message makes


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[Twins]:
    """Two logs that know the topic, so that the fast way would take its messages."""
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message()))
        yield twins


def place_of(twins: Twins, message: NewMessage) -> tuple[int, str | None]:
    """The queue that a message gets, and its priority as it is stored."""
    (result,) = twins.append(request_of(message)).results
    return result.queue_id, twins.fast.opened.reads.get(result.commit_log_offset).properties.get(NAME)


def wire(**properties: str) -> bytes:
    """A property string of a client."""
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in {"UNIQ_KEY": "u", **properties}.items())


@pytest.mark.parametrize("priority", [0, 1, 7, 8, 1_000, (1 << 31) - 1])
def test_a_message_goes_to_the_queue_of_its_priority_whatever_queue_was_asked_for(twins: Twins, priority: int) -> None:
    expected = min(priority, QUEUE_COUNT - 1), str(priority)
    properties = {NAME: str(priority)}
    assert place_of(twins, new_message(properties=properties)) == expected
    assert place_of(twins, new_message(properties=properties, queue_id=2)) == expected
    assert place_of(twins, new_message(wire_properties=wire(**properties), queue_id=2)) == expected


@pytest.mark.parametrize(
    "other", [{"__SHARDINGKEY": "g"}, {"DELAY": "3"}, {"TIMER_DELAY_MS": "9"}, {"TRAN_MSG": "true"}]
)
def test_a_message_of_another_type_loses_its_priority(twins: Twins, other: dict[str, str]) -> None:
    properties = {**other, NAME: "5", "colour": "red"}
    for message in (new_message(properties=properties), new_message(wire_properties=wire(**properties), queue_id=2)):
        (result,) = twins.append(request_of(message)).results
        stored = twins.fast.opened.reads.get(result.commit_log_offset).properties
        assert (stored["colour"], NAME in stored) == ("red", False)
    assert result.queue_id == 2


@pytest.mark.parametrize("field", ["delivery_time", "delay_level"])
def test_a_delay_that_a_field_asks_for_takes_the_priority_away_too(twins: Twins, field: str) -> None:
    message = new_message(properties={NAME: "5"})
    if field == "delay_level":
        message.delay_level = 3
    else:
        message.delivery_time.FromMilliseconds(twins.now_millis + 60_000)
    (result,) = twins.append(request_of(message)).results
    assert NAME not in twins.fast.opened.reads.get(result.commit_log_offset).properties


@pytest.mark.parametrize("text", ["-1", "high", "2147483648"])
def test_a_property_that_is_no_priority_is_refused_by_name_or_kept_as_the_broker_keeps_it(
    twins: Twins, text: str
) -> None:
    error, words, metadata = twins.append(request_of(new_message(properties={NAME: text})))
    assert (error, metadata["field"], metadata["property"]) == (InvalidMessageError, "properties", NAME)
    assert text in words
    assert place_of(twins, new_message(wire_properties=wire(**{NAME: text}), queue_id=2)) == (2, text)


def test_the_messages_of_a_batch_each_go_to_the_queue_of_their_priority(twins: Twins) -> None:
    messages = [new_message(wire_properties=wire(**{NAME: str(number)}), queue_id=0) for number in (3, 0, 3, 9)]
    results = twins.append(request_of(*messages)).results
    assert [(each.queue_id, each.queue_offset) for each in results] == [(3, 0), (0, 1), (3, 1), (7, 0)]
