"""`--format`: messages by a pattern, as kcat prints them."""

import datetime
import re

import pytest

from cli.exits import CliError
from cli.queries.pattern import _FIELDS, parse_pattern, print_pattern
from cli.queries.rows import message_row
from reput.message.v1 import message_pb2
from reput_client.querying.message import message_of

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
