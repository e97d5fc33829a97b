"""`reput status`: state, problem, recovery and lag of each service in a row."""

from typing import Any

from google.rpc import status_pb2

from cli import status
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.querying.answers import statuses_of

ServiceStatus = pb.GetStatusResponse.ServiceStatus


def status_rows(services: list[pb.GetStatusResponse.ServiceStatus]) -> list[dict[str, Any]]:
    return status.status_rows(statuses_of(pb.GetStatusResponse(services=services)))


def test_a_recovering_log_shows_how_much_of_it_is_done() -> None:
    [row] = status_rows(
        [
            ServiceStatus(
                service="commitlog", state="recovering", catching_up=True,
                recovery_begin_offset=1000, recovery_next_offset=1420, recovery_end_offset=2000,
            )
        ]
    )  # fmt: skip

    assert (row["state"], row["recovered"], row["lag_bytes"]) == ("recovering", "42 %", None)


def test_a_log_that_serves_shows_no_recovery() -> None:
    [row] = status_rows([ServiceStatus(service="commitlog", state="serving", recovery_end_offset=2000)])

    assert row["recovered"] is None


def test_the_lag_of_a_builder_is_measured_against_the_log_of_its_own_shard() -> None:
    """A builder that has lost its log knows an old end of it."""
    rows = status_rows(
        [
            ServiceStatus(broker_name="a", service="commitlog", next_offset=900, log_end_offset=950),
            ServiceStatus(broker_name="a", service="index", next_offset=400, log_end_offset=500),
            ServiceStatus(broker_name="b", service="commitlog", next_offset=5000),
            ServiceStatus(broker_name="b", service="index", next_offset=5000, log_end_offset=5000),
        ]
    )

    assert [row["lag_bytes"] for row in rows] == [None, 500, None, 0]


def test_a_service_that_does_not_answer_says_why_as_its_problem() -> None:
    error = status_pb2.Status(code=14, message="connection refused")
    rows = status_rows(
        [
            ServiceStatus(service="index", error=error),
            ServiceStatus(service="consumequeue", state="retrying", problem="no space left"),
        ]
    )

    assert [(row["state"], row["problem"], row["answers"]) for row in rows] == [
        ("no answer", "connection refused", False),
        ("retrying", "no space left", True),
    ]


def test_a_consumer_service_shows_its_groups_what_is_in_flight_and_its_clients() -> None:
    """Other services have no such numbers, nor has one that does not answer."""
    error = status_pb2.Status(code=14, message="connection refused")
    rows = status_rows(
        [
            ServiceStatus(broker_name="a", service="commitlog", next_offset=900),
            ServiceStatus(
                broker_name="a", service="consumer", state="serving", next_offset=700,
                group_count=3, in_flight_count=70, client_count=5,
            ),
            ServiceStatus(broker_name="b", service="consumer", error=error),
        ]
    )  # fmt: skip

    assert [(row["groups"], row["in_flight"], row["clients"], row["lag_bytes"]) for row in rows] == [
        (None, None, None, None),
        (3, 70, 5, 200),
        (None, None, None, None),
    ]


def test_a_schedule_service_shows_what_waits_for_a_time_and_for_a_verdict() -> None:
    """Other services have no such numbers, nor has one that does not answer."""
    error = status_pb2.Status(code=14, message="connection refused")
    rows = status_rows(
        [
            ServiceStatus(broker_name="a", service="commitlog", next_offset=900),
            ServiceStatus(
                broker_name="a", service="schedule", state="serving", next_offset=700,
                scheduled_count=4, transaction_count=9,
            ),
            ServiceStatus(broker_name="b", service="schedule", error=error),
        ]
    )  # fmt: skip

    assert [(row["scheduled"], row["transactions"], row["groups"], row["lag_bytes"]) for row in rows] == [
        (None, None, None, None),
        (4, 9, None, 200),
        (None, None, None, None),
    ]


def test_the_name_servers_of_a_shard_are_listed_with_what_they_tell_rocketmqs_clients() -> None:
    log = ServiceStatus(broker_name="a", service="commitlog", broker_address="127.0.0.1:10911")
    log.nameservers.update({"127.0.0.1:9876": True, "10.0.0.9:9876": False})
    rows = status.nameserver_rows(statuses_of(pb.GetStatusResponse(services=[log, ServiceStatus(service="index")])))
    assert [(row["nameserver"], row["registered"], row["broker_address"]) for row in rows] == [
        ("10.0.0.9:9876", False, "127.0.0.1:10911"),
        ("127.0.0.1:9876", True, "127.0.0.1:10911"),
    ]
