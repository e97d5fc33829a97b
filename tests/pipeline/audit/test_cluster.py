"""The audit of a cluster finds what differs between replicas and archive, and nothing where they only reach differently far."""

import http.server
import json
import shutil
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pipeline.archive import archive as archive_job
from pipeline.audit import cluster
from pipeline.audit.cluster import METRICS_NAME, REPORT_NAME, ROWS_NAME, ClusterReport, push_metrics
from pipeline.audit.cluster_logs import Replica, parse_replicas
from store.errors import InvalidArgumentError, UnsupportedStoreError
from store.files.locks import OwnerLock
from store.format.checkpoint import encode_durable_mark
from tests.support.archives import BROKER, message, write_log
from tests.support.fixture_stores import walk_frames

FILE_BYTES = 1 << 14
MESSAGE_COUNT = 150
DAY = 86_400


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several files."""
    messages = (message(n, keys=f"k{n}", body=b"b" * 300) for n in range(MESSAGE_COUNT))
    return write_log(tmp_path_factory.mktemp("log") / "store", messages, file_bytes=FILE_BYTES)


@pytest.fixture
def roots(log: Path, tmp_path: Path) -> list[Path]:
    """Three replicas of it."""
    return [Path(shutil.copytree(log, tmp_path / f"r{number}")) for number in (1, 2, 3)]


def replicas_of(roots: list[Path]) -> list[Replica]:
    return [Replica(BROKER, f"r{number}", (root,)) for number, root in enumerate(roots, 1)]


def audit(roots: list[Path], out: Path, **more: Any) -> ClusterReport:
    given = {"logs_only": True, **more}
    return cluster.run(None, replicas_of(roots), out, **given)


def told(report: ClusterReport) -> list[tuple[Any, ...]]:
    return [(row["replica"], row["kind"], row["commit_log_offset"]) for row in report.findings]


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def flip(root: Path, offset: int) -> None:
    file = [path for path in log_files(root) if int(path.name) <= offset][-1]
    with file.open("r+b") as opened:
        opened.seek(offset - int(file.name))
        (byte,) = opened.read(1)
        opened.seek(offset - int(file.name))
        opened.write(bytes([byte ^ 0x55]))


def mark(root: Path, offset: int) -> None:
    """Says that the log is on the disk up to there."""
    (root / "reput" / "commitlog").mkdir(parents=True, exist_ok=True)
    (root / "reput" / "commitlog" / "durable").write_bytes(encode_durable_mark(offset))


def frames_of(root: Path) -> list[tuple[int, int]]:
    """Begin and end of every record (bytes of the log)."""
    return [(offset, offset + len(frame)) for offset, frame in walk_frames(root)]


def test_equal_replicas_are_clean_and_everything_is_compared(roots: list[Path], tmp_path: Path) -> None:
    end = frames_of(roots[0])[-1][1]

    report = audit(roots, tmp_path / "out")

    assert report.findings == []
    assert report.counts["compared_bytes"] == 3 * end
    assert [replica["end_offset"] for replica in report.replicas] == [end] * 3


@pytest.mark.parametrize("count", [2, 3])
def test_a_damaged_byte_in_one_replica_is_found_with_its_offset(roots: list[Path], tmp_path: Path, count: int) -> None:
    begin, end = frames_of(roots[0])[70]
    flip(roots[0], end - 200)  # in the body; of two replicas only the CRC tells which one is right

    report = audit(roots[:count], tmp_path / "out")

    assert told(report) == [("r1", "REPLICA_DAMAGED", end - 200)]
    (row,) = report.findings
    assert (row["count"], row["severity"], row["is_new"]) == (1, "error", 1)
    assert f"the record at {begin} is sound there" in row["what"]
    assert row["file"] == f"commitlog/{(end - 200) // FILE_BYTES * FILE_BYTES:020d}"


def test_a_diverged_suffix_is_one_finding_at_the_first_other_record(roots: list[Path], tmp_path: Path) -> None:
    records = frames_of(roots[0])
    at = next(number for number, (begin, _) in enumerate(records) if begin > 2 * FILE_BYTES) + 3
    others = [message(n, keys=f"k{n}", body=(b"b" if n < at else b"c") * 300) for n in range(MESSAGE_COUNT)]
    shutil.rmtree(roots[1])
    write_log(roots[1], others, file_bytes=FILE_BYTES)

    report = audit(roots, tmp_path / "out")

    ((replica, kind, offset),) = told(report)
    assert (replica, kind) == ("r2", "REPLICA_DIVERGED")
    assert records[at][0] <= offset < records[at][1]
    assert f"others from {records[at][0]} on" in report.findings[0]["what"]


def test_a_shorter_replica_lags_and_is_no_finding(roots: list[Path], tmp_path: Path) -> None:
    records = frames_of(roots[0])
    cut, end = records[60][1], records[-1][1]
    for path in log_files(roots[1]):
        data, keep = path.read_bytes(), max(0, cut - int(path.name))
        path.write_bytes(data[:keep].ljust(len(data), b"\0"))

    report = audit(roots, tmp_path / "out")

    assert report.findings == []
    assert [replica["lag_bytes"] for replica in report.replicas] == [0, end - cut, 0]


def test_bytes_behind_the_durable_mark_are_not_compared(roots: list[Path], tmp_path: Path) -> None:
    records = frames_of(roots[0])
    for root in roots:
        mark(root, records[100][1])
    flip(roots[0], records[101][0] + 50)

    assert audit(roots, tmp_path / "out").findings == []


def test_files_that_only_one_replica_still_has_are_no_finding(roots: list[Path], tmp_path: Path) -> None:
    for path in log_files(roots[2])[:2]:
        path.unlink()
    log_files(roots[1])[0].unlink()

    assert audit(roots, tmp_path / "out").findings == []


def test_a_file_that_is_missing_in_the_middle_is_named(roots: list[Path], tmp_path: Path) -> None:
    log_files(roots[2])[1].unlink()

    assert told(audit(roots, tmp_path / "out")) == [("r3", "REPLICA_FILE_MISSING", FILE_BYTES)]


def archive_of(root: Path, archive: Path) -> Path:
    archive_job.run(None, root, archive, broker_name=BROKER)
    return archive


def test_an_archive_that_has_all_sealed_files_is_clean(roots: list[Path], tmp_path: Path) -> None:
    archive = archive_of(roots[0], tmp_path / "archive")

    report = audit(roots[:1], tmp_path / "out", archive=archive)

    assert report.findings == []
    assert report.counts["segment_count"] == len(log_files(roots[0])) - 1


def test_an_archive_that_lacks_a_file_is_told(roots: list[Path], tmp_path: Path) -> None:
    archive = archive_of(roots[0], tmp_path / "archive")
    manifests = sorted((archive / "segments" / BROKER).glob("0*.json"))
    manifests[1].unlink()
    gone = sorted((archive / "keys").rglob("*.idx"))[2]
    gone.unlink()

    report = audit(roots, tmp_path / "out", archive=archive)

    assert told(report) == [
        ("archive", "ARCHIVE_FILE_MISSING", FILE_BYTES),
        ("archive", "ARCHIVE_DAMAGED", 2 * FILE_BYTES),
    ]
    assert report.findings[1]["file"] == str(gone.relative_to(archive))


def test_a_log_that_was_removed_before_it_was_archived_is_told(roots: list[Path], tmp_path: Path) -> None:
    archive = archive_of(roots[0], tmp_path / "archive")
    for path in sorted((archive / "segments" / BROKER).glob("0*.json"))[1:]:
        path.unlink()
    for path in log_files(roots[0])[:3]:
        path.unlink()

    report = audit(roots[:1], tmp_path / "out", archive=archive)

    assert told(report) == [("archive", "ARCHIVE_FILE_MISSING", FILE_BYTES)]
    assert f"from {FILE_BYTES} to {3 * FILE_BYTES}" in report.findings[0]["what"]


def test_an_archive_of_other_bytes_names_the_first_that_differs(roots: list[Path], tmp_path: Path) -> None:
    archive = archive_of(roots[0], tmp_path / "archive")
    offset = frames_of(roots[0])[45][1] - 200
    flip(roots[0], offset)

    report = audit(roots[:1], tmp_path / "out", archive=archive)

    assert told(report) == [("archive", "ARCHIVE_DIFFERS", offset)]
    assert "the log's record is not sound" in report.findings[0]["what"]


def test_the_archive_decides_between_two_replicas(roots: list[Path], tmp_path: Path) -> None:
    archive = archive_of(roots[1], tmp_path / "archive")
    blank = frames_of(roots[0])
    at = next(end for (_, end), (begin, _) in pairwise(blank) if begin - end > 16)
    flip(roots[0], at + 12)  # behind the last record of its file, where no CRC helps

    report = audit(roots[:2], tmp_path / "out", archive=archive)

    assert told(report) == [("r1", "REPLICA_DIFFERS", at + 12)]


def test_a_second_run_says_since_when_and_reads_no_unchanged_file_again(roots: list[Path], tmp_path: Path) -> None:
    offset = frames_of(roots[0])[70][1] - 200
    flip(roots[0], offset)
    first = audit(roots, tmp_path / "out", clock=lambda: 1_000.0)
    flip(roots[1], frames_of(roots[2])[20][1] - 200)

    second = audit(roots, tmp_path / "out", clock=lambda: 1_000.0 + DAY)

    seen = {row["replica"]: (row["first_seen_millis"], row["is_new"]) for row in second.findings}
    assert seen == {"r1": (1_000_000, 0), "r2": (1_000_000 + DAY * 1000, 1)}
    assert second.counts["new_finding_count"] == 1
    assert second.counts["compared_bytes"] < first.counts["compared_bytes"] / 4
    assert second.counts["compared_bytes"] + second.counts["known_bytes"] == first.counts["compared_bytes"]


def test_a_finding_that_is_repaired_is_gone_and_later_new_again(roots: list[Path], tmp_path: Path) -> None:
    offset = frames_of(roots[0])[70][1] - 200
    flip(roots[0], offset)
    audit(roots, tmp_path / "out")
    flip(roots[0], offset)

    repaired = audit(roots, tmp_path / "out")
    flip(roots[0], offset)
    again = audit(roots, tmp_path / "out")

    assert (repaired.findings, repaired.counts["gone_finding_count"]) == ([], 1)
    assert [row["is_new"] for row in again.findings] == [1]


def test_unchanged_files_are_read_again_after_the_days_that_are_given(roots: list[Path], tmp_path: Path) -> None:
    full = audit(roots, tmp_path / "out", clock=lambda: 1_000.0).counts["compared_bytes"]

    def later(days: int, **more: Any) -> int:
        return audit(roots, tmp_path / "out", clock=lambda: 1_000.0 + days * DAY, **more).counts["compared_bytes"]

    assert later(6) < full / 4
    assert later(6, reread_days=0) == full
    assert later(12) < full / 4  # since the full read six days have passed
    assert later(13) == full


class KilledError(BaseException):
    """Ends a run as a kill does: nothing handles it."""


def killed_in(step: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the run die when the step is over; returns what ends that."""
    real = cluster.run_here

    def dying(progress: Any) -> Any:
        def run(name: str, function: Any, items: Any) -> Any:
            results = real(progress)(name, function, items)
            if name == step:
                raise KilledError
            return results

        return run

    monkeypatch.setattr(cluster, "run_here", dying)
    monkeypatch.setattr(cluster, "FILES_PER_SAVE", 2)
    return monkeypatch.undo


def steady(report: ClusterReport) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "first_seen_millis"} for row in report.findings]


@pytest.mark.parametrize("step", ["log files", "index files", "logs of broker-a", "archive of broker-a", "differences"])
def test_a_killed_run_that_is_continued_tells_what_one_tells_that_was_not(
    broker_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    roots = [Path(shutil.copytree(broker_store, tmp_path / name)) for name in ("one", "two")]
    archive = archive_of(roots[0], tmp_path / "archive")
    flip(roots[1], frames_of(roots[0])[5][1] - 120)
    queue = next(path for path in sorted((roots[0] / "consumequeue").rglob("*")) if path.is_file())
    queue.write_bytes(b"\xff" * 20 + queue.read_bytes()[20:])
    whole = audit(roots, tmp_path / "whole", archive=archive, logs_only=False)
    assert {row["replica"] for row in whole.findings} == {"r1", "r2"}
    heal = killed_in(step, monkeypatch)
    with pytest.raises(KilledError):
        audit(roots, tmp_path / "out", archive=archive, logs_only=False)
    assert not (tmp_path / "out" / REPORT_NAME).exists()
    heal()

    report = audit(roots, tmp_path / "out", archive=archive, logs_only=False)

    assert steady(report) == steady(whole)
    assert "a run that did not come to its end was continued" in report.notes


def test_a_killed_run_is_not_continued_for_other_stores(
    roots: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heal = killed_in("logs of broker-a", monkeypatch)
    with pytest.raises(KilledError):
        audit(roots, tmp_path / "out")
    heal()

    assert audit(roots[:2], tmp_path / "out").notes == []


def test_a_store_in_use_is_compared_by_its_log_alone(broker_store: Path, tmp_path: Path) -> None:
    roots = [Path(shutil.copytree(broker_store, tmp_path / name)) for name in ("one", "two")]
    lock = OwnerLock(roots[0] / "reput" / "commitlog" / "lock")
    lock.acquire()
    try:
        report = audit(roots, tmp_path / "out", logs_only=False)
    finally:
        lock.release()

    assert [replica["is_log_only"] for replica in report.replicas] == [True, False]
    assert report.notes == ["broker-a@r1 is in use: only its log was compared"]
    assert report.counts["record_count"] == len(frames_of(roots[1]))


def test_a_store_on_three_volumes_is_audited_as_one(broker_store: Path, tmp_path: Path) -> None:
    whole = Path(shutil.copytree(broker_store, tmp_path / "whole"))
    for name in ("consumequeue", "index"):
        (tmp_path / name).mkdir()
        (whole / name).rename(tmp_path / name / name)
        (whole / name).mkdir()  # as the log's service leaves it
    replica = Replica(BROKER, "r1", (whole, tmp_path / "consumequeue", tmp_path / "index"))

    report = cluster.run(None, [replica], tmp_path / "out")

    assert [row for row in report.findings if row["severity"] == "error"] == []
    assert report.counts["unit_count"] > 0
    assert report.counts["key_count"] > 0


def test_queues_and_indexes_ahead_of_the_log_are_no_finding_in_snapshots(broker_store: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(broker_store, tmp_path / "store"))
    begin = frames_of(root)[-5][0]
    for path in log_files(root):
        data = path.read_bytes()
        path.write_bytes(data[: max(0, begin - int(path.name))].ljust(len(data), b"\0"))
    (root / "checkpoint").unlink()  # it lies beside the log, and is of its moment

    strict = audit([root], tmp_path / "strict", logs_only=False)
    report = audit([root], tmp_path / "out", logs_only=False, are_snapshots=True)

    assert "QUEUE_SURPLUS_UNITS" in {row["kind"] for row in strict.findings}
    assert [row for row in report.findings if row["severity"] == "error"] == []


def test_the_outputs_tell_the_same_in_rows_metrics_and_report(roots: list[Path], tmp_path: Path) -> None:
    import pandas

    offset = frames_of(roots[0])[70][1] - 200
    flip(roots[2], offset)

    report = audit(roots, tmp_path / "out")

    rows = pandas.read_parquet(tmp_path / "out" / ROWS_NAME)
    assert list(rows["commit_log_offset"]) == [offset]
    assert json.loads((tmp_path / "out" / REPORT_NAME).read_text())["findings"] == report.findings
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families((tmp_path / "out" / METRICS_NAME).read_text())
        for sample in family.samples
    }
    assert samples["reput_audit_findings", BROKER, "error", "r3"] == 1
    assert samples["reput_audit_findings", BROKER, "error", "r1"] == 0
    assert samples["reput_audit_new_findings", BROKER, "r3"] == 1
    assert samples["reput_audit_read_bytes",] == report.counts["compared_bytes"]


def test_a_pushgateway_gets_the_metrics_of_the_run(tmp_path: Path) -> None:
    taken: list[tuple[str, bytes]] = []

    class Gateway(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            taken.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    (tmp_path / METRICS_NAME).write_text("reput_audit_read_bytes 1\n")
    with http.server.HTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        push_metrics(f"http://127.0.0.1:{server.server_port}/", tmp_path)
        thread.join()

    assert taken == [("/metrics/job/reput-audit", b"reput_audit_read_bytes 1\n")]


def test_shards_and_replicas_are_named_in_the_arguments() -> None:
    found = parse_replicas(["a@x=/1", "a=/2+/3", "b=/4"])

    assert [(replica.key, len(replica.parts)) for replica in found] == [("a@x", 1), ("a@r2", 2), ("b@r1", 1)]


@pytest.mark.parametrize("texts", [[], ["a"], ["=/x"], ["a@=/x"], ["a=/x+"], ["a@r=/x", "a@r=/y"]])
def test_arguments_that_name_no_replica_are_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_replicas(texts)


def test_a_root_without_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnsupportedStoreError, match="has no commitlog/"):
        audit([tmp_path / "empty"], tmp_path / "out")


def _brute_force(parts: dict[str, tuple[int, int, bytes]]) -> set[int]:
    """Every offset that at least two logs have, and with different bytes."""
    ends = [end for _, end, _ in parts.values()]
    return {
        at for at in range(max(ends)) if len({data[at] for begin, end, data in parts.values() if begin <= at < end}) > 1
    }


@settings(max_examples=40, deadline=None)
@given(chance=st.data())
def test_the_first_difference_in_each_file_is_that_of_brute_force(
    log: Path, tmp_path_factory: pytest.TempPathFactory, chance: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("random")
    ends = [end for _, end in frames_of(log)]
    whole = b"".join(path.read_bytes() for path in log_files(log))
    parts, roots = {}, []
    for name in ("r1", "r2", "r3"):
        root = Path(shutil.copytree(log, place / name))
        first = chance.draw(st.integers(0, 2)) * FILE_BYTES
        end = chance.draw(st.sampled_from([end for end in ends if end > 2 * FILE_BYTES]))
        data = bytearray(whole)
        for at in chance.draw(st.lists(st.integers(0, ends[-1] - 1), max_size=2)):
            data[at] ^= 0x11
        for path in log_files(root):
            offset = int(path.name)
            if offset < first:
                path.unlink()
            else:
                path.write_bytes(data[offset : offset + FILE_BYTES])
        mark(root, end)
        parts[name] = (first, end, bytes(data))
        roots.append(root)

    report = audit(roots, place / "out")

    expected = _brute_force(parts)
    found = {row["commit_log_offset"] for row in report.findings}
    assert found <= expected
    assert bool(found) == bool(expected)
    # Findings are told for each range between two ends: in each file the first byte that differs is one of them.
    assert {
        min(at for at in expected if at // FILE_BYTES == file) for file in {at // FILE_BYTES for at in expected}
    } <= found
    shutil.rmtree(place)
