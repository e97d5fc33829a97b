"""The sample messages that ship with the project are messages, and as varied as the demonstration needs."""

import pytest

from cli.demo import SAMPLE_KEY, SAMPLES
from cli.exits import CliError
from cli.send import read_messages


def test_the_samples_hold_every_kind_of_message() -> None:
    messages = list(read_messages(SAMPLES.read_text(encoding="utf-8").splitlines(), SAMPLES.name))

    assert 35 <= len(messages) <= 60
    assert {message.topic for message in messages} >= {"Orders", "Payments", "ServiceLogs"}
    keys = [list(message.keys) for message in messages]
    assert any(SAMPLE_KEY in of_one for of_one in keys)
    assert any(len(of_one) > 1 for of_one in keys)
    assert [] in keys
    assert ["Aa"] in keys
    assert ["BB"] in keys
    unique_keys = [message.unique_key for message in messages if message.HasField("unique_key")]
    assert len(unique_keys) == 2
    assert len(set(unique_keys)) == 1
    assert any("谢谢".encode() in message.body for message in messages)
    assert bytes(range(256)) in [message.body for message in messages]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2"),
        ("[]", "not a JSON object"),
        ('{"body": "x"}', "no field 'topic'"),
        ('{"topic": "T", "body": "x", "keyz": []}', "unknown field 'keyz'"),
        ('{"topic": "T", "body": "xx", "body_format": "hex"}', "hexadecimal"),
        ('{"topic": "T", "body": "x", "body_format": "rot13"}', "rot13"),
        ('{"topic": 5, "body": "x"}', "line 2"),
        ('{"topic": "T", "body": "x", "queue_id": 4294967296}', "line 2"),
        ('{"topic": "T", "body": "x", "born_time": "soon"}', "soon"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(line: str, reason: str) -> None:
    with pytest.raises(CliError) as refused:
        list(read_messages(["", line], "orders.jsonl"))

    assert refused.value.code == 2
    assert "orders.jsonl, line 2: " in refused.value.message
    assert reason in refused.value.message
