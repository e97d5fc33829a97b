"""What the command says about the shards of an answer that is not whole."""

from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import status_pb2

from cli.queries.outcomes import Outcomes
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.querying.answers import shards_of

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
