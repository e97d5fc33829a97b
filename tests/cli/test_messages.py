"""What the command says about the shards of an answer that is not whole.

`--format`: messages by a pattern, as kcat prints them.
"""

import datetime
import re

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import status_pb2

from cli.exits import CliError
from cli.messages import _FIELDS, Outcomes, message_row, parse_pattern, print_pattern
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.querying.answers import shards_of
from reput_client.querying.message import message_of

WELL = pb.ShardOutcome(broker_name="broker-c", indexed_up_to_offset=30, log_end_offset=30)
BEHIND = pb.ShardOutcome(
    broker_name="broker-b",
    indexed_up_to_offset=10,
    log_end_offset=30,
    indexed_up_to_time=Timestamp(seconds=1_700_000_000, nanos=123_000_000),
)
DOWN = pb.ShardOutcome(broker_name="broker-a", error=status_pb2.Status(code=14, message="index did not answer"))


def warned(capsys, *pages) -> list[str]:
    outcomes = Outcomes()
    for page in pages:
        outcomes.see(shards_of(page))
    outcomes.warn_partial()
    return capsys.readouterr().err.splitlines()


def test_each_shard_that_is_missing_or_behind_is_named_with_why(capsys) -> None:
    assert warned(capsys, [WELL, BEHIND, DOWN]) == [
        "reput: partial: shard broker-a: index did not answer",
        "reput: partial: shard broker-b is built up to byte 10 of 30 of its log (stored up to 2023-11-14T22:13:20.123Z)",
    ]


def test_a_failure_on_one_page_is_not_forgotten_on_the_next(capsys) -> None:
    up_again = pb.ShardOutcome(broker_name="broker-a", indexed_up_to_offset=5, log_end_offset=5)
    assert warned(capsys, [DOWN], [up_again]) == ["reput: partial: shard broker-a: index did not answer"]


def test_an_answer_that_names_no_shard_still_says_that_it_is_partial(capsys) -> None:
    (line,) = warned(capsys, [WELL])
    assert line.startswith("reput: partial: part of the store")


def test_programs_read_the_same_by_the_contracts_names() -> None:
    outcomes = Outcomes()
    outcomes.see(shards_of([BEHIND, DOWN]))
    assert outcomes.rows() == [
        {
            "broker_name": "broker-a",
            "indexed_up_to_offset": 0,
            "log_end_offset": 0,
            "catching_up": False,
            "error": "index did not answer",
        },
        {
            "broker_name": "broker-b",
            "indexed_up_to_offset": 10,
            "log_end_offset": 30,
            "catching_up": False,
            "indexed_up_to_time": "2023-11-14T22:13:20.123Z",
        },
    ]


STORED = message_pb2.StoredMessage(
    topic="Orders", queue_id=3, queue_offset=42, tags="paid", keys=["k1", "k2"], body="grüße\x1b[2J".encode(),
    unique_key="AC11", offset_msg_id="7F00", broker_name="broker-a", properties={"b": "2", "a": "1"},
)  # fmt: skip
STORED.store_time.FromDatetime(datetime.datetime(2026, 11, 21, 10, 29, 11, 776000))


def shown(pattern: str, capsys: pytest.CaptureFixture[str]) -> str:
    message = message_of(STORED)
    print_pattern(pattern, [message_row(message, "auto", "hex")], [message])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"%t %k %b\n", "Orders k1 k2 grüße\\x1b[2J\n"),
        ("%t|%p|%o", "Orders|3|42"),
        ("%T %D", "1795256951776 2026-11-21T10:29:11.776Z"),
        ("%i %u %n %g", "7F00 AC11 broker-a paid"),
        ("%S %s", "11 grüße\\x1b[2J"),
        ("%h", "a=1,b=2"),
        (r"100%% \\ \x41\t|", "100% \\ A\t|"),
        ("", ""),
    ],
)
def test_a_pattern_prints_the_fields_it_names(pattern, text, capsys):
    assert shown(pattern, capsys) == text


@pytest.mark.parametrize("pattern", ["%z", "%", "\\q", "\\", "\\x4"])
def test_an_unknown_letter_is_refused_before_anything_is_printed(pattern, capsys):
    with pytest.raises(CliError) as refused:
        shown("%t " + pattern, capsys)
    assert refused.value.code == 2
    assert capsys.readouterr().out == ""


def test_the_help_of_the_flag_names_every_field():
    from cli import options

    (option,) = options.Pattern.__metadata__
    named = set(re.findall(r"%(\w) ", option.help.partition(": %t")[2])) | {"t"}
    assert named | {"s"} == set(_FIELDS)  # %s is kcat's second word for the body
    assert parse_pattern("%%") == ["%"]
