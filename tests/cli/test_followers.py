"""`reput followers`: the rows, a removal, and what its exit codes say; against a commit log behind a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from cli.status import follower_rows
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from store.errors import FollowerNotFoundError, InvalidArgumentError
from tests.services.loopback import commit_log_server

NAMES = ["audit", "consumequeue"]


@pytest.fixture
def address() -> Iterator[str]:
    followers = {"audit": False, "consumequeue": True}

    def get_status(_: pb.GetStatusRequest, context: object) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(
            confirm_offset=900,
            followers=[pb.Follower(name=name, expected=expected) for name, expected in followers.items()],
        )

    def remove(request: pb.RemoveFollowerRequest, context: object) -> pb.RemoveFollowerResponse:
        if request.name not in followers:
            raise FollowerNotFoundError(f"there is no follower {request.name!r}", name=request.name)
        if followers[request.name]:
            raise InvalidArgumentError("it is expected", field="name")
        del followers[request.name]
        return pb.RemoveFollowerResponse()

    with commit_log_server(get_status=get_status, remove_follower=remove) as server:
        yield server.address


def test_each_follower_is_a_row_with_what_it_still_needs() -> None:
    status = pb.GetStatusResponse(
        log_first_offset=100,
        log_flushed_offset=1000,
        confirm_offset=900,
        followers=[
            pb.Follower(name="audit"),
            pb.Follower(name="consumequeue", expected=True, next_offset=850),
            pb.Follower(name="index", expected=True, next_offset=-1),
        ],
    )

    assert [tuple(row.values()) for row in follower_rows(status)] == [
        ("audit", False, "not reported", None, 800),
        ("consumequeue", True, "following", 850, 50),
        ("index", True, "off", -1, None),
    ]


def test_one_that_is_gone_is_removed_and_the_others_are_listed(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["followers", "--commitlog", address, "-O", "json"]) == 0
    assert [row["follower"] for row in json.loads(capsys.readouterr().out)["followers"]] == NAMES

    assert main(["followers", "--commitlog", address, "--remove", "audit"]) == 0

    assert "audit" not in capsys.readouterr().out
    assert main(["followers", "--commitlog", address, "--remove", "audit"]) == 1
    assert "FOLLOWER_NOT_FOUND" in capsys.readouterr().err
    assert main(["followers", "--commitlog", address, "--remove", "consumequeue"]) == 2


def test_no_service_at_the_address_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["followers", "--commitlog", f"unix:{tmp_path}/none", "--timeout", "0.2"]) == 4
    assert "--commitlog" in capsys.readouterr().err
    assert main(["followers", "--tls-cert", "a.crt"]) == 2
