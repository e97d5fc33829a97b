"""A rebuild into an object store: the same bytes as into a directory, and nothing that looks whole before it is.

Without Spark (`shuffling.py`); the object store is moto's S3 in a process of its own, or `file://`.
"""

import json
from pathlib import Path

import pytest

from pipeline import object_root as rebuild_object_root
from pipeline.job import JobReport, run_here
from pipeline.object_files import open_root
from pipeline.object_root import ObjectRoot
from pipeline.rebuild.out import BEGUN_NAME, MANIFEST_NAME, StoreLayout
from pipeline.rebuild.plan import make_plan
from pipeline.rebuild.rebuild import Rebuild
from pipeline.target import ObjectTarget
from store.errors import (
    InvalidArgumentError,
    PermissionDeniedError,
    RecordCorruptedError,
    ServiceUnavailableError,
    StoreLockedError,
)
from store.files.file_system import RealFileSystem
from store.readers.index_reader import IndexLayout
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.pipeline.rebuild.shuffling import shuffle_here
from tests.support.object_store import CREDENTIALS, running_object_store

LAYOUT = StoreLayout(4000, IndexLayout(500, 1000))


@pytest.fixture(scope="module")
def object_store():
    with pytest.MonkeyPatch.context() as environment, running_object_store() as store:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        store.fs.create_dir("rebuilt")
        yield store


@pytest.fixture
def log_alone(broker_store, tmp_path) -> Path:
    """The log of the fixture without derived files: the layout is the test's, small and many files."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store/commitlog").symlink_to(broker_store / "commitlog")
    return tmp_path / "store"


def file_uri(path: Path) -> str:
    return path.as_uri()


def names_of(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_objects_are_the_files_that_scatter_writes_and_the_last_one_names_them(object_store, log_alone, tmp_path):
    rebuild_here(log_alone, tmp_path / "scattered", layout=LAYOUT, split_bytes=200_000)

    report = shuffle_here(log_alone, object_store.uri("rebuilt/small"), LAYOUT, 200_000)

    down = object_store.download("rebuilt/small", tmp_path / "down")
    assert_same_store(down, tmp_path / "scattered")
    sizes = object_store.sizes("rebuilt/small")
    assert set(sizes) - {BEGUN_NAME, MANIFEST_NAME} == {
        name for name in sizes if name.startswith(("consume", "index/"))
    }
    manifest = json.loads((down / MANIFEST_NAME).read_bytes())
    files = manifest["queue_files"] + manifest["index_files"]
    assert {file["path"]: file["size_bytes"] for file in files} == {
        name: size for name, size in sizes.items() if "/" in name
    }
    assert manifest["queue_file_size_bytes"] == 4000
    assert (manifest["index_hash_slot_count"], manifest["index_entry_count_max"]) == (500, 1000)
    assert sum(file["entry_count"] for file in manifest["index_files"]) == report.counts["key_count"]
    assert manifest["counts"]["log_end_offset"] == report.counts["log_end_offset"]
    assert report.outputs["index"] == "s3://rebuilt/small/index"


def test_units_of_the_manifest_are_those_in_the_files(log_alone, tmp_path):
    shuffle_here(log_alone, file_uri(tmp_path / "out"), LAYOUT, 200_000)

    manifest = json.loads((tmp_path / "out" / MANIFEST_NAME).read_bytes())
    for file in manifest["queue_files"]:
        data = (tmp_path / "out" / file["path"]).read_bytes()
        units = [data[at : at + 20] for at in range(0, len(data), 20)]
        assert sum(unit != bytes(20) for unit in units) == file["unit_count"], file
    assert len(manifest["queue_files"]) > 5, "the test wants queues of several files"


@pytest.mark.parametrize("store", ["broker_store", "crashed_store"])
def test_stores_of_rocketmq_are_rebuilt_behind_a_uri(store, request, tmp_path):
    root = request.getfixturevalue(store)

    shuffle_here(root, file_uri(tmp_path / "out"), split_bytes=300_000)

    assert_same_store(tmp_path / "out", root)


def test_an_object_of_many_parts_is_whole_and_one_that_fails_in_the_middle_is_not_there(object_store, tmp_path):
    """Closing pyarrow's stream after a refused part must not make an object of the parts before, not even for a moment."""
    data = bytes(range(256)) * (25 << 12)
    (tmp_path / "file").write_bytes(data)
    assert len(data) > 2 * rebuild_object_root.PART_BYTES
    root = ObjectRoot(object_store.uri("rebuilt/parts"))

    assert root.put_file("whole", tmp_path / "file") == len(data)
    object_store.tell("keep", "parts/refused")
    for begun_count in (0, 1, 2, 4):  # the upload's begin, its three parts, its end
        object_store.tell("refuse", "parts/refused", begun_count)
        with pytest.raises(PermissionDeniedError, match=r"write refused.*AWS_ACCESS_KEY_ID"):
            root.put_file("refused", tmp_path / "file")
    object_store.tell("release")

    assert root.read("whole") == data
    assert object_store.sizes("rebuilt/parts") == {"whole": len(data)}


@pytest.mark.parametrize("readable_bytes", [None, 0, rebuild_object_root.PIECE_BYTES])
def test_a_local_file_that_cannot_be_read_makes_no_object_and_leaves_a_twins(
    object_store, tmp_path, monkeypatch, readable_bytes
):
    """Only a failure behind the first piece takes the twin's away, too: then the end of the run misses it."""
    root = ObjectRoot(object_store.uri(f"rebuilt/unread-{readable_bytes}"))
    with open(tmp_path / "file", "wb") as file:
        file.truncate(readable_bytes or 0)
    root.put_bytes("object", b"a twin's")

    class Broken:
        def __init__(self, *arguments, **options) -> None:
            if readable_bytes is None:
                raise OSError(5, "Input/output error")
            self._file = open(tmp_path / "file", "rb", buffering=0)  # noqa: SIM115

        def __enter__(self):
            return self

        def __exit__(self, *error) -> None:
            self._file.close()

        def read(self, count: int) -> bytes:
            if data := self._file.read(count):
                return data
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(rebuild_object_root, "open", Broken, raising=False)

    with pytest.raises(OSError, match="Input/output error"):
        root.put_file("object", tmp_path / "file")

    assert root.read("object") == (None if readable_bytes else b"a twin's")
    assert set(root.sizes("")) <= {"object"}


def test_a_killed_rebuilds_objects_are_written_over_and_what_does_not_belong_is_removed(
    object_store, log_alone, tmp_path
):
    rebuild_here(log_alone, tmp_path / "scattered", layout=LAYOUT, split_bytes=200_000)
    uri = object_store.uri("rebuilt/killed")
    root = ObjectRoot(uri)
    root.put_bytes(BEGUN_NAME, b'{"run": "killed", "first_begun_millis": 1700000000000}')
    root.put_bytes("consumequeue/gone/0/00000000000000000000", b"an older layout's")
    root.put_bytes("index/20200101000000000", b"an older index")

    shuffle_here(log_alone, uri, LAYOUT, 200_000)

    assert_same_store(object_store.download("rebuilt/killed", tmp_path / "down"), tmp_path / "scattered")
    again = [name for name in object_store.sizes("rebuilt/killed") if name.startswith("index/")]
    assert min(again).startswith("index/2023111"), "index files keep the first begin's names"


def test_a_rebuild_that_fails_leaves_no_manifest_and_runs_again(log_alone, tmp_path, monkeypatch):
    uri, put_file, put = file_uri(tmp_path / "out"), ObjectRoot.put_file, []

    def fail_at_the_third(self, name, file):
        put.append(name)
        if len(put) == 3:
            raise ServiceUnavailableError("no answer")
        return put_file(self, name, file)

    monkeypatch.setattr(ObjectRoot, "put_file", fail_at_the_third)
    with pytest.raises(ServiceUnavailableError):
        shuffle_here(log_alone, uri, LAYOUT)
    left = names_of(tmp_path / "out")
    shuffle_here(log_alone, uri, LAYOUT)

    assert left == sorted([BEGUN_NAME, *put[:2]])
    rebuild_here(log_alone, tmp_path / "scattered", layout=LAYOUT)
    assert_same_store(tmp_path / "out", tmp_path / "scattered")
    assert [name for name in names_of(tmp_path / "out") if name.endswith(".tmp")] == []


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["somebody's"], "holds other data"),
        (["index/20261122000000000"], "holds other data"),
        ([BEGUN_NAME, "somebody's"], "holds other data"),
        ([BEGUN_NAME, MANIFEST_NAME, "index/1"], "finished rebuild"),
    ],
)
@pytest.mark.parametrize("kind", ["s3", "file"])
def test_a_place_that_holds_anything_else_is_refused_and_left_as_it_is(
    object_store, broker_store, tmp_path, kind, names, said
):
    path = f"refused-{abs(hash(tuple(names)))}"
    uri = object_store.uri(f"rebuilt/{path}") if kind == "s3" else file_uri(tmp_path / path)
    root = ObjectRoot(uri)
    for name in names:
        root.put_bytes(name, b"{}")

    with pytest.raises(InvalidArgumentError, match=said):
        shuffle_here(broker_store, uri)

    assert sorted(root.top_names()) == sorted({name.partition("/")[0] for name in names})


def test_a_finished_rebuild_is_not_written_over(log_alone, tmp_path):
    shuffle_here(log_alone, file_uri(tmp_path / "out"), LAYOUT)
    with pytest.raises(InvalidArgumentError, match="finished rebuild"):
        shuffle_here(log_alone, file_uri(tmp_path / "out"), LAYOUT)


def test_a_dry_run_writes_nothing(object_store, broker_store):
    report = shuffle_here(broker_store, object_store.uri("rebuilt/dry"), dry_run=True)

    assert report.counts["record_count"] > 0
    assert object_store.sizes("rebuilt/dry") == {}


def test_a_damaged_log_stops_before_any_file_is_sent(copy_of_broker_store, tmp_path):
    path = sorted((copy_of_broker_store / "commitlog").iterdir())[0]
    with open(path, "r+b") as file:
        file.write(b"\x7f")

    with pytest.raises(RecordCorruptedError):
        shuffle_here(copy_of_broker_store, file_uri(tmp_path / "out"))

    assert names_of(tmp_path / "out") == [BEGUN_NAME]


def test_the_source_store_is_never_written_to(copy_of_broker_store):
    before = names_of(copy_of_broker_store)
    with pytest.raises(InvalidArgumentError, match="never writes into its source"):
        shuffle_here(copy_of_broker_store, file_uri(copy_of_broker_store / "inside"))
    assert names_of(copy_of_broker_store) == before


def test_tasks_of_a_run_that_another_has_taken_over_from_fail(log_alone, tmp_path, monkeypatch):
    uri, put_file, put = file_uri(tmp_path / "out"), ObjectRoot.put_file, []

    def take_over(self, name, file):
        put.append(name)
        size_bytes = put_file(self, name, file)
        self.put_bytes(BEGUN_NAME, b'{"run": "another"}')
        return size_bytes

    monkeypatch.setattr(ObjectRoot, "put_file", take_over)
    with pytest.raises(StoreLockedError, match="another rebuild"):
        shuffle_here(log_alone, uri, LAYOUT)
    assert len(put) == 1, "no task sends a file after that"
    assert MANIFEST_NAME not in names_of(tmp_path / "out")


def test_a_run_that_another_takes_over_from_at_its_very_end_does_not_call_it_whole(log_alone, tmp_path, monkeypatch):
    sizes = ObjectRoot.sizes

    def take_over(self, folder):
        self.put_bytes(BEGUN_NAME, b'{"run": "another"}')
        return sizes(self, folder)

    monkeypatch.setattr(ObjectRoot, "sizes", take_over)
    with pytest.raises(StoreLockedError, match="another rebuild"):
        shuffle_here(log_alone, file_uri(tmp_path / "out"), LAYOUT)
    assert MANIFEST_NAME not in names_of(tmp_path / "out")


def test_a_run_that_begins_while_another_ends_leaves_what_that_one_made(log_alone, tmp_path, monkeypatch):
    put_bytes = ObjectRoot.put_bytes

    def end_before(self, name, data):
        put_bytes(self, MANIFEST_NAME, b'{"run": "another"}')
        put_bytes(self, name, data)

    monkeypatch.setattr(ObjectRoot, "put_bytes", end_before)
    with pytest.raises(InvalidArgumentError, match="finished rebuild"):
        shuffle_here(log_alone, file_uri(tmp_path / "out"), LAYOUT)
    assert names_of(tmp_path / "out") == sorted([BEGUN_NAME, MANIFEST_NAME])
    assert json.loads((tmp_path / "out" / MANIFEST_NAME).read_bytes()) == {"run": "another"}


def test_an_object_that_somebody_removed_meanwhile_is_missed(log_alone, tmp_path, monkeypatch):
    last = []

    def remove_one(self) -> None:
        files = [name for name in names_of(tmp_path / "out") if name.startswith("consumequeue/")]
        if len(files) > 3 and not last:
            last.append(files[0])
            (tmp_path / "out" / files[0]).unlink()

    monkeypatch.setattr(ObjectTarget, "refuse_other_run", remove_one)
    with pytest.raises(ServiceUnavailableError, match="was written and is now missing"):
        shuffle_here(log_alone, file_uri(tmp_path / "out"), LAYOUT)
    assert MANIFEST_NAME not in names_of(tmp_path / "out")


def test_nothing_is_left_on_the_executors_disk(log_alone, tmp_path, monkeypatch):
    (tmp_path / "spill").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'spill'},/nowhere")
    seen, put_file = [], ObjectRoot.put_file

    def look(self, name, file):
        seen.append(len(names_of(tmp_path / "spill")))
        return put_file(self, name, file)

    monkeypatch.setattr(ObjectRoot, "put_file", look)
    shuffle_here(log_alone, file_uri(tmp_path / "out"), LAYOUT)

    assert set(seen) == {1}, "one file at a time, where Spark spills"
    assert list((tmp_path / "spill").iterdir()) == []


def test_a_missing_bucket_is_named(object_store):
    with pytest.raises(InvalidArgumentError, match="bucket 'nowhere' does not exist"):
        ObjectRoot(object_store.uri("nowhere/out")).top_names()


def test_who_may_list_below_the_prefix_only_need_not_look_at_the_bucket(object_store):
    root = ObjectRoot(object_store.uri("rebuilt/below"))
    root.put_bytes("index/1", b"{}")

    object_store.tell("hide", "/rebuilt")
    names = root.top_names()
    object_store.tell("release")

    assert names == {"index"}


def test_a_store_in_an_object_store_is_rebuilt_as_one_on_the_disk(object_store, broker_store, tmp_path):
    uri = object_store.upload(broker_store, "rebuilt/source")
    rebuild_here(broker_store, tmp_path / "here", split_bytes=400_000)

    report, fs = JobReport.begin("rebuild"), RealFileSystem()
    plan, _ = make_plan(*open_root(uri), tmp_path / "there", StoreLayout(), split_bytes=400_000, place=uri)
    Rebuild(fs, plan, run_here(), report).run(dry_run=False)

    assert_same_store(tmp_path / "there", tmp_path / "here")
    with pytest.raises(InvalidArgumentError, match="never writes into its source"):
        make_plan(*open_root(uri), ObjectRoot(object_store.uri("rebuilt/source/inside")), StoreLayout(), place=uri)
