"""Archives of stores that are being written to: the next log file is there already, or the end of the log is not safe yet."""

from pathlib import Path

import pytest

from pipeline.archive import archive, query, restore, verify
from pipeline.archive.query import Source, UnionReader
from pipeline.archive.segment import map_log_file
from store.archive.archive_reader import ArchiveReader
from tests.support.archives import BROKER, FILE_BYTES, make_file_ahead, message, write_log, written_to
from tests.support.fixture_stores import walk_frames


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A log of four files, the last one not full."""
    return write_log(tmp_path / "store", [message(n, keys=f"k{n}", body=b"x" * 200) for n in range(700)])


def ends_of(archive_root: Path) -> list[tuple[bool, int]]:
    """Of each segment, whether it is sealed, and the end of its records (bytes)."""
    return [(one.is_sealed, one.records_end_offset) for one in ArchiveReader(archive_root, BROKER).segments()]


def test_a_log_file_made_ahead_was_taken_for_the_log_going_on(store: Path, tmp_path: Path):
    ahead = make_file_ahead(store)
    last = int(ahead.name) - FILE_BYTES

    sealed = archive.run(None, store, tmp_path / "archive")
    whole = archive.run(None, store, tmp_path / "archive", include_active=True)

    assert sealed.findings == []
    assert (sealed.counts["log_file_count"], sealed.counts["archived_file_count"]) == (4, 3)
    assert any("is still written to" in note for note in sealed.notes)
    assert whole.findings == []
    assert whole.counts["record_count"] == sum(offset >= last for offset, _ in walk_frames(store))
    assert verify.run(None, tmp_path / "archive").findings == []


def test_a_log_file_made_ahead_was_damage_for_the_union_query(store: Path, tmp_path: Path):
    archive.run(None, store, tmp_path / "archive")
    make_file_ahead(store)

    union = UnionReader(tmp_path / "archive", store)

    [found] = union.by_key("orders", "k699").messages
    assert found.source is Source.LIVE
    assert len(union.by_offset("orders", 0, 690, count=20).messages) == 10


@pytest.mark.parametrize("is_replicated", [False, True])
def test_a_full_log_file_was_archived_before_its_end_was_safe(store: Path, tmp_path: Path, is_replicated: bool):
    offsets = [offset for offset, _ in walk_frames(store)]
    safe = offsets[100]
    assert safe < FILE_BYTES
    durable, confirmed = (offsets[-1], safe) if is_replicated else (safe, None)

    with written_to(store, durable, confirmed_offset=confirmed):
        sealed = archive.run(None, store, tmp_path / "archive")
        whole = archive.run(None, store, tmp_path / "archive", include_active=True)
        kept = ends_of(tmp_path / "archive")
        verified = verify.run(None, tmp_path / "archive")
        restore.run(None, tmp_path / "archive", tmp_path / "restored")
    after = archive.run(None, store, tmp_path / "archive")

    assert (sealed.counts["archived_file_count"], sealed.findings) == (0, [])
    assert any("is still written to" in note for note in sealed.notes)
    assert (whole.counts["record_count"], whole.findings) == (100, [])
    assert kept == [(False, safe)]
    assert verified.findings == []
    assert [offset for offset, _ in walk_frames(tmp_path / "restored")] == offsets[:100]
    assert after.counts["archived_file_count"] == 3
    assert [is_sealed for is_sealed, _ in ends_of(tmp_path / "archive")] == [True] * 3


def test_a_log_file_whose_end_is_the_durable_mark_is_archived(store: Path, tmp_path: Path):
    with written_to(store, FILE_BYTES):
        report = archive.run(None, store, tmp_path / "archive")

    assert report.counts["archived_file_count"] == 1
    assert [is_sealed for is_sealed, _ in ends_of(tmp_path / "archive")] == [True]


def test_a_query_showed_records_behind_the_durable_mark(store: Path, tmp_path: Path):
    offsets = [offset for offset, _ in walk_frames(store)]
    archive.run(None, store, tmp_path / "archive")

    with written_to(store, offsets[-1]):
        union = UnionReader(tmp_path / "archive", store)

    assert union.by_key("orders", "k698").messages
    assert not union.by_key("orders", "k699").messages


@pytest.mark.parametrize("ask", ["key", "queue offset"])
def test_messages_were_missing_whose_log_file_was_archived_and_removed_during_a_query(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str
):
    """A query by queue offset asked the archive before it walked the log."""
    archive.run(None, store, tmp_path / "archive")
    last = max((store / "commitlog").iterdir())
    union = UnionReader(tmp_path / "archive", store)

    def remove_before(*where: object) -> memoryview:
        if last.exists():
            archive.run(None, store, tmp_path / "archive", include_active=True)
            last.unlink()
        return map_log_file(*where)

    monkeypatch.setattr(query, "map_log_file", remove_before)
    if ask == "key":
        answer = union.by_key("orders", "k699")
    else:
        answer = union.by_offset("orders", 0, 690, count=20)

    assert answer.messages[-1].record.keys == ("k699",)
    assert {found.source for found in answer.messages[-5:]} == {Source.ARCHIVE}
    assert answer.problem is None
