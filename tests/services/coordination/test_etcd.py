"""What only a real etcd shows: TLS, users, an etcd that stops, hangs, loses its data, and leadership over it."""

import base64
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.replication.leading.leadership import ElectedLeadership
from commitlog_svc.replication.leading.leadership_rules import LeaseTimes
from commitlog_svc.replication.leading.view import Role
from services.coordination.access import CoordinatorAccess
from services.coordination.http_calls import HttpCalls
from services.coordination.opening import open_record_store
from services.coordination.port import RecordStore
from store.errors import CoordinatorUnavailableError, RecordConflictError
from tests.support.certificates import LOOPBACK, Authority
from tests.support.etcd import ETCD, MISSING, Etcd, running_etcd
from tests.support.halting import halt, resume
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [pytest.mark.etcd, pytest.mark.skipif(ETCD is None, reason=MISSING)]

SHORT_SECONDS = 1.0
TIMES = LeaseTimes(lease_seconds=2.0, margin_seconds=0.3, renew_seconds=0.2, jitter_seconds=0.05)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    with running_etcd(tmp_path / "etcd") as running:
        yield running


def store_of(*endpoints: str) -> RecordStore:
    return open_record_store(f"etcd://{','.join(endpoints)}/reput", "broker-a")


def test_an_etcd_that_is_away_is_an_error_of_its_own_and_later_answers_again(etcd: Etcd) -> None:
    store = store_of(etcd.endpoint)
    version = store.write(b"1", None, WAIT_SECONDS_MAX)
    etcd.stop()
    for call in (lambda: store.read(SHORT_SECONDS), lambda: store.write(b"2", version, SHORT_SECONDS)):
        with pytest.raises(CoordinatorUnavailableError, match=etcd.endpoint):
            call()
    etcd.start()

    assert store.write(b"2", version, WAIT_SECONDS_MAX) != version


def test_a_call_to_an_etcd_that_hangs_ends_in_time(etcd: Etcd) -> None:
    store = store_of(etcd.endpoint)
    store.write(b"1", None, WAIT_SECONDS_MAX)
    halt(etcd.pid)
    try:
        with pytest.raises(CoordinatorUnavailableError):
            store.read(SHORT_SECONDS)  # it hangs until it is let go, below
    finally:
        resume(etcd.pid)
    stored = store.read(WAIT_SECONDS_MAX)
    assert stored is not None


def test_a_version_of_before_the_data_was_lost_replaces_nothing(etcd: Etcd) -> None:
    store = store_of(etcd.endpoint)
    before = store.write(b"before", None, WAIT_SECONDS_MAX)
    etcd.lose_data()
    assert store.read(WAIT_SECONDS_MAX) is None
    after = store.write(b"after", None, WAIT_SECONDS_MAX)

    assert before.split("/")[0] == after.split("/")[0], "etcd counts anew: only the value tells them apart"
    with pytest.raises(RecordConflictError):
        store.write(b"late", before, WAIT_SECONDS_MAX)


def test_the_next_endpoint_answers_where_one_is_away_or_swallows_packets(etcd: Etcd) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refusing = f"127.0.0.1:{closed.getsockname()[1]}"
        store = store_of(refusing, etcd.endpoint)
        store.write(b"1", None, WAIT_SECONDS_MAX)
        stored = store.read(WAIT_SECONDS_MAX)
    assert stored is not None
    assert stored.data == b"1"


def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "another authority")
    server, client = authority.issue("server", *LOOPBACK), authority.issue("client")
    flags = [
        f"--cert-file={server.certificate}", f"--key-file={server.key}",
        f"--trusted-ca-file={authority.path}", "--client-cert-auth",
    ]  # fmt: skip
    with running_etcd(tmp_path / "etcd", flags, "https") as etcd:
        address = f"etcds://{etcd.endpoint}/reput"

        def with_access(access: CoordinatorAccess) -> RecordStore:
            return open_record_store(address, "broker-a", access)

        good = CoordinatorAccess(authority.path, client.certificate, client.key)
        with_access(good).write(b"1", None, WAIT_SECONDS_MAX)
        stored = with_access(good).read(WAIT_SECONDS_MAX)
        assert stored is not None

        stranger = other.issue("stranger")
        for refused in (
            CoordinatorAccess(authority.path),
            CoordinatorAccess(other.path, client.certificate, client.key),
            CoordinatorAccess(authority.path, stranger.certificate, stranger.key),
            CoordinatorAccess(tmp_path / "missing"),
        ):
            with pytest.raises(CoordinatorUnavailableError):
                with_access(refused).write(b"2", stored.version, WAIT_SECONDS_MAX)


def test_a_user_with_a_password_that_etcd_knows(etcd: Etcd, tmp_path: Path) -> None:
    host, port = etcd.endpoint.split(":")
    calls = HttpCalls("etcd", [(host, int(port))], None)

    def post(path: str, body: dict[str, Any]) -> None:
        answer = calls.call("POST", f"/v3/auth/{path}", body, {}, WAIT_SECONDS_MAX)
        assert answer.status == 200, answer

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    post("user/add", {"name": "root", "password": "r"})
    post("user/grant", {"user": "root", "role": "root"})
    post("role/add", {"name": "shards"})
    permission = {"permType": "READWRITE", "key": encoded("reput/"), "range_end": encoded("reput0")}
    post("role/grant", {"name": "shards", "perm": permission})
    post("user/add", {"name": "replica", "password": "secret"})
    post("user/grant", {"user": "replica", "role": "shards"})
    post("enable", {})
    password = tmp_path / "password"
    password.write_text("secret\n")

    access = CoordinatorAccess(user="replica", password_file=password)
    store = open_record_store(f"etcd://{etcd.endpoint}/reput", "broker-a", access)
    version = store.write(b"1", None, WAIT_SECONDS_MAX)
    etcd.stop()
    etcd.start()
    assert store.write(b"2", version, WAIT_SECONDS_MAX) != version, "the token was forgotten, and is asked for again"

    password.write_text("wrong")
    for address, refused in (
        (f"etcd://{etcd.endpoint}/reput", access),
        (f"etcd://{etcd.endpoint}/reput", CoordinatorAccess()),
        (f"etcd://{etcd.endpoint}/elsewhere", CoordinatorAccess(user="replica", password_file=password)),
        (f"etcd://{etcd.endpoint}/reput", CoordinatorAccess(user="replica", password_file=tmp_path / "missing")),
    ):
        with pytest.raises(CoordinatorUnavailableError):
            open_record_store(address, "broker-a", refused).read(WAIT_SECONDS_MAX)


def test_a_leader_outlives_an_etcd_that_restarts_and_one_that_lost_its_data(etcd: Etcd) -> None:
    first = ElectedLeadership("r1", {}, store_of(etcd.endpoint), lambda: 0, may_create=True, times=TIMES)
    second = ElectedLeadership("r2", {}, store_of(etcd.endpoint), lambda: 1, times=TIMES)
    with first, second:
        wait_until(first.may_acknowledge)
        etcd.stop()
        stay_without_coordinator(first, TIMES.lease_seconds * 1.5)
        assert first.may_acknowledge(), "it is its whole set: nobody else may lead"
        etcd.start()
        wait_until(lambda: first.change_in_sync(frozenset({"r1", "r2"})), "etcd is back")
        etcd.lose_data()
        # A promise keeps the leader in its place; a test has no stream that would bring it.
        wait_until(lambda: first.note_promise("r2", first.now()) or store_of(etcd.endpoint).read(WAIT_SECONDS_MAX))
        assert first.view.epoch == 1
        first.close()
        wait_until(second.may_acknowledge, "the member takes over from the record that was written back")

        assert (second.view.role, second.view.epoch, second.view.leader) == (Role.LEADER, 2, "r2")


def stay_without_coordinator(leadership: ElectedLeadership, seconds: float) -> None:
    until = leadership.now() + seconds
    while leadership.now() < until:
        leadership.wait_change(leadership.view, 0.1)
