"""The distributed audit says what `audit_store`, the judge of `reput fsck`, says: of sound stores and of damaged ones."""

import random
from collections import Counter
from pathlib import Path

import pytest

from pipeline.audit.audit import Audit, is_clean, put_rows, refuse_out, write_rows
from pipeline.audit.scratch import Scratch
from pipeline.job import JobReport, run_here
from store.audit.findings import Finding
from store.audit.store_audit import audit_store
from store.errors import InvalidArgumentError
from store.files.file_system import RealFileSystem
from store.format.sys_flag import INNER_BATCH
from store.readers.index_reader import list_index_files
from tests.support.archives import message, write_log
from tests.support.dispatches import file_bytes, requests_of
from tests.support.object_store import CREDENTIALS, running_object_store

STORES = ("broker_store", "engine_store", "engine_crc_store", "crashed_store", "rocketmq_5_5_store")
LEFT_TO_ANALYTICS = {"LOG_UNIQUE_KEY_REPEATED"}


@pytest.fixture(scope="module")
def object_store():
    with pytest.MonkeyPatch.context() as environment, running_object_store() as store:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        store.fs.create_dir("stores")
        yield store


def audit_here(root: Path | str, scratch: Path | str) -> tuple[JobReport, list[Finding]]:
    report = JobReport.begin("audit")
    if isinstance(scratch, Path):
        scratch.mkdir(exist_ok=True)
    audit = Audit(root, Scratch(str(scratch)), run_here(), report)
    audit.run()
    return report.end(), audit.judged.kept


def places(findings: list[Finding]) -> Counter:
    return Counter(
        (f.code, str(f.severity), f.file, f.byte, f.commit_log_offset, f.count, f.what)
        for f in findings
        if f.code not in LEFT_TO_ANALYTICS
    )


def assert_same_verdict(root: Path, scratch: Path) -> Counter:
    expected = places(audit_store(RealFileSystem(), root).findings.kept)
    report, findings = audit_here(root, scratch)
    assert places(findings) == expected
    assert len(report.findings) == len(findings)
    return expected


@pytest.mark.parametrize("store", STORES)
def test_real_stores_are_judged_as_fsck_judges_them(store, request, tmp_path):
    root = request.getfixturevalue(store)
    before = file_bytes(root)

    assert_same_verdict(root, tmp_path / "scratch")

    report, _ = audit_here(root, tmp_path / "again")
    assert report.counts["record_count"] == len(requests_of(root))
    assert report.counts["error_count"] == 0
    assert file_bytes(root) == before


def _flip(path: Path, position: int, number: random.Random) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ number.randrange(1, 256)]))


def _damage(root: Path, number: random.Random) -> None:
    """One of: a byte of a record, of a queue unit, of an index file; a file that is gone or short."""
    requests = requests_of(root)
    kind = number.randrange(6)
    log_files = sorted((root / "commitlog").iterdir())
    queue_files = sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())
    index_files = list_index_files(RealFileSystem(), root)
    if kind == 0:
        victim = number.choice(requests)
        path = [path for path in log_files if int(path.name) <= victim.commit_log_offset][-1]
        _flip(path, victim.commit_log_offset - int(path.name) + number.randrange(victim.record_size_bytes), number)
    elif kind == 1:
        _flip(number.choice(queue_files), number.randrange(400), number)
    elif kind == 2:
        path = number.choice(index_files)
        _flip(path, number.randrange(path.stat().st_size), number)
    elif kind == 3:
        _flip(number.choice(index_files), number.randrange(40), number)
    elif kind == 4:
        number.choice(queue_files).unlink()
    else:
        number.choice(index_files).unlink()


@pytest.mark.parametrize("seed", range(8))
def test_random_damage_is_listed_exactly(copy_of_crashed_store, tmp_path, seed):
    number = random.Random(seed)
    for _ in range(number.randrange(1, 4)):
        _damage(copy_of_crashed_store, number)

    assert_same_verdict(copy_of_crashed_store, tmp_path / "scratch")


def test_batch_topics_whose_row_and_folder_are_lost_are_known_by_their_records(tmp_path):
    """No queue of their single messages is missing, and no queue offset that a batch took."""
    store = tmp_path / "store"
    flags = [0, INNER_BATCH, 0, 0]
    write_log(store, [message(n, topic="bcq", sys_flag=flag) for n, flag in enumerate(flags)])
    codes = {code for code, *_ in assert_same_verdict(store, tmp_path / "scratch")}
    assert "STORE_FEATURE" in codes
    assert not {"QUEUE_MISSING_UNITS", "LOG_QUEUE_OFFSET_GAP"} & codes


def test_a_wrong_tag_code_is_one_row_that_says_where_and_what(copy_of_broker_store, tmp_path):
    path = sorted(path for path in (copy_of_broker_store / "consumequeue").rglob("*") if path.is_file())[0]
    with open(path, "r+b") as file:
        file.seek(12)
        tags_code = int.from_bytes(file.read(8), "big", signed=True)
        file.seek(12)
        file.write((tags_code + 1).to_bytes(8, "big", signed=True))

    report, _ = audit_here(copy_of_broker_store, tmp_path / "scratch")

    rows = [row for row in report.findings if row["severity"] == "error"]
    assert len(rows) == 1
    assert rows[0]["kind"] == "QUEUE_UNIT_WRONG"
    assert (rows[0]["topic"], rows[0]["queue"]) == (path.parent.parent.name, int(path.parent.name))
    assert (rows[0]["expected"], rows[0]["found"]) == (str(tags_code), str(tags_code + 1))
    assert not is_clean(report)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl"])
def test_rows_are_written_as_a_table(tmp_path, name):
    import pandas

    rows = [
        {
            "kind": "LOG_HOLE", "severity": "error", "file": "commitlog/0", "offset": 5, "commit_log_offset": 5,
            "topic": None, "queue": None, "count": 1, "what": "zeros", "expected": None, "found": None,
        }
    ]  # fmt: skip
    write_rows(rows, tmp_path / name)
    read = {
        "rows.parquet": pandas.read_parquet,
        "rows.csv": pandas.read_csv,
        "rows.jsonl": lambda path: pandas.read_json(path, lines=True),
    }[name](tmp_path / name)
    assert read.loc[0, "kind"] == "LOG_HOLE"
    assert read.loc[0, "offset"] == 5


@pytest.mark.parametrize("store", STORES)
def test_a_store_in_an_object_store_is_judged_as_on_the_disk(store, object_store, request, tmp_path):
    root = request.getfixturevalue(store)
    uri = object_store.upload(root, f"stores/{store}")
    before = object_store.sizes(f"stores/{store}")

    report, findings = audit_here(uri, tmp_path / "remote")

    expected, kept = audit_here(root, tmp_path / "local")
    assert places(findings) == places(kept)
    changing = ("worker_memory_bytes_max",)
    assert {n: c for n, c in report.counts.items() if n not in changing} == {
        n: c for n, c in expected.counts.items() if n not in changing
    }
    assert object_store.sizes(f"stores/{store}") == before


@pytest.mark.parametrize("is_damaged", [False, True])
def test_scratch_files_in_an_object_store_lead_to_the_same_findings(
    is_damaged, object_store, copy_of_broker_store, tmp_path
):
    if is_damaged:
        _damage(copy_of_broker_store, random.Random(7))
    shared = object_store.uri(f"stores/scratch-{is_damaged}")
    scratch = Scratch.of_run(shared)

    report, findings = audit_here(copy_of_broker_store, scratch.place)
    sent = object_store.sizes(f"stores/scratch-{is_damaged}")
    scratch.remove()

    expected, kept = audit_here(copy_of_broker_store, tmp_path / "local")
    assert places(findings) == places(kept)
    assert report.counts["key_count"] == expected.counts["key_count"] > 0
    assert any(name.endswith(".units") for name in sent)
    assert object_store.sizes(f"stores/scratch-{is_damaged}") == {}


def test_a_scratch_file_appears_whole_when_its_task_ends(tmp_path):
    scratch = Scratch(str(tmp_path))
    with scratch.writing() as one, scratch.writing() as other:
        for folder in (one, other):
            (folder / "log-0.units").write_bytes(b"units")
        assert not (tmp_path / "log-0.units").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["log-0.units"]
    with pytest.raises(OSError, match="the task died"), scratch.writing() as folder:
        (folder / "log-1.units").write_bytes(b"half")
        raise OSError("the task died")
    assert [path.name for path in tmp_path.iterdir()] == ["log-0.units"]


def test_rows_are_written_to_an_object_whole(object_store, tmp_path):
    assert (
        put_rows([{"kind": "LOG_HOLE"}], object_store.uri("stores/rows/found.jsonl")) == "s3://stores/rows/found.jsonl"
    )
    assert list(object_store.sizes("stores/rows")) == ["found.jsonl"]
    assert put_rows([{"kind": "LOG_HOLE"}], object_store.uri("stores/found.csv")) == "s3://stores/found.csv"
    assert put_rows([{"kind": "LOG_HOLE"}], (tmp_path / "found.jsonl").as_uri()) == str(tmp_path / "found.jsonl")
    with pytest.raises(InvalidArgumentError, match="names no object") as caught:
        refuse_out("s3://bucket?region=hush")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("seed", range(4))
def test_damage_in_an_object_store_is_found_as_on_the_disk(seed, object_store, copy_of_broker_store, tmp_path):
    _damage(copy_of_broker_store, random.Random(seed))
    uri = object_store.upload(copy_of_broker_store, f"stores/damaged{seed}")

    _, findings = audit_here(uri, tmp_path / "remote")

    assert places(findings) == places(audit_here(copy_of_broker_store, tmp_path / "local")[1])
    assert findings
