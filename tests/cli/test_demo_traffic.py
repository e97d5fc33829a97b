"""What goes on in the sample store, step by step, with a producer and a consumer that only note it."""

import os
from pathlib import Path

import pytest

from cli import demo_traffic
from cli.demo import REPORTS_SETTING, _reports_of
from cli.demo_traffic import (
    MESSAGE_COUNT_MAX,
    REMINDERS,
    TRANSACTION_SECONDS,
    VISITS,
    WAVE_SECONDS,
    Traffic,
    audit_once,
    visits_at,
)
from console.pages.reports import Reports
from reput_client import ReputClientError
from tests.support.fixture_stores import unpack_store


class Producer:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.verdicts: list[str] = []
        self.failures = 0

    def append(self, messages) -> None:
        if self.failures:
            self.failures -= 1
            raise ReputClientError("away")
        self.sent += [message.topic for message in messages]

    def send_half(self, message) -> "Producer":
        self.verdicts.append(f"half {message.topic}")
        return self

    def rollback(self) -> None:
        self.verdicts.append("rollback")

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Consumer(Producer):
    def take(self, seconds: float) -> None:
        return None


def test_a_wave_has_a_height_and_ends_where_it_began() -> None:
    steps = [visits_at(second / 2) for second in range(int(WAVE_SECONDS) * 2)]

    assert (min(steps), max(steps)) == (0, 3)
    assert visits_at(5) == visits_at(WAVE_SECONDS + 5)


def test_reminders_and_one_open_transaction_go_on_beside_the_visits() -> None:
    producer = Producer()
    traffic = Traffic(producer, Consumer(), 100.0)
    for second in range(int(TRANSACTION_SECONDS) + 1):
        assert traffic.step(100.0 + second)

    assert producer.verdicts == ["half Payments", "rollback", "half Payments"]
    assert producer.sent.count(REMINDERS) == TRANSACTION_SECONDS / demo_traffic.REMINDER_SECONDS
    assert producer.sent.count(VISITS) == traffic.sent_count > TRANSACTION_SECONDS


def test_the_sample_store_does_not_grow_without_end() -> None:
    producer = Producer()
    traffic = Traffic(producer, Consumer(), 0.0)
    traffic.sent_count = MESSAGE_COUNT_MAX

    assert not traffic.step(1.0)
    assert producer.sent == []


@pytest.fixture
def as_client(monkeypatch):
    """The traffic's client: it has no group to make."""
    import reput_client

    producer = Producer()
    for name in ("QueryClient", "TransactionProducer", "Consumer"):
        made = Consumer() if name == "Consumer" else producer
        monkeypatch.setattr(reput_client, name, lambda *_, made=made, **__: made)
    monkeypatch.setattr(demo_traffic, "prepare", lambda client, producer: None)
    return producer


def test_the_traffic_goes_on_after_a_failure_and_ends_with_its_parent(as_client, monkeypatch) -> None:
    as_client.failures = 1
    slept: list[float] = []
    parents = iter([7, 7, 7, 7, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))

    demo_traffic.run("x", sleep=slept.append, clock=lambda: 0.0)
    assert slept == [2.0, 0.5, 0.5, 0.5]
    assert as_client.sent == [VISITS] * 4


def test_the_report_is_that_of_an_audit_which_the_console_reads_and_is_made_once(tmp_path: Path) -> None:
    store = unpack_store("broker", tmp_path / "store")
    reports = tmp_path / "reports"
    reports.mkdir()
    assert audit_once(store, reports)
    (report,) = Reports(reports).newest_first()
    assert (report.name, report.job, report.problem) == ("audit.json", "audit", "")
    assert report.counts["record_count"] > 1_000
    assert len(report.notes) == 1
    assert not audit_once(store, reports)
    assert [path.name for path in reports.iterdir()] == ["audit.json"]


def test_a_store_that_is_no_samples_gets_no_directory_of_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REPORTS_SETTING, raising=False)
    assert _reports_of(tmp_path / "new") == tmp_path / "new" / "reput" / "reports"
    (tmp_path / "old" / "commitlog").mkdir(parents=True)
    assert _reports_of(tmp_path / "old") is None
    (tmp_path / "old" / "reput" / "reports").mkdir(parents=True)
    assert _reports_of(tmp_path / "old") == tmp_path / "old" / "reput" / "reports"
    monkeypatch.setenv(REPORTS_SETTING, "mine")
    assert _reports_of(tmp_path / "new") is None
