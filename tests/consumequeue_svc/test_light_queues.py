"""LightQueues against a list for each queue: positions, ranges, starts, cuts, expiry, damage."""

import random
from pathlib import Path

import pytest

from consumequeue_svc import light_queues
from consumequeue_svc.light_queues import UP_TO_DATE, LightQueues, oldest_that
from store.derive.queue_placement import LightUnit
from store.errors import DiskFullError, StoreCorruptedError
from store.files.file_system import RealFileSystem
from store.files.open_files import OpenFile, OpenFiles
from store.format.derived.light_unit import ENTRY_SIZE_BYTES, LightEntry, decode_light_names, encode_light_entry
from store.format.derived.queue_unit import FILLER, QueueUnit

RECORD_SIZE_BYTES = 100


def make(directory: Path, *, file_entry_count: int = 16) -> LightQueues:
    return LightQueues(OpenFiles(RealFileSystem()), directory / "light", file_entry_count=file_entry_count)


def unit(record: int, queue: str, queue_offset: int) -> LightUnit:
    return LightUnit(queue, queue_offset, record * RECORD_SIZE_BYTES, RECORD_SIZE_BYTES, record % 7)


def drawn(seed: int, count: int, queue_count: int = 5, *, gaps: bool = False) -> list[LightUnit]:
    """Units of some queues as a broker gives them."""
    chance = random.Random(seed)
    ends: dict[str, int] = {}
    units = []
    for record in range(count):
        queue = f"%LMQ%{chance.randrange(queue_count)}"
        at = ends.get(queue, 0) + (chance.choice((0, 0, 0, 1, 9)) if gaps else 0)
        units.append(unit(record, queue, at))
        ends[queue] = at + 1
    return units


def rows(units: list[LightUnit], queue: str) -> list[tuple[int, QueueUnit]]:
    return [(each.queue_offset, QueueUnit(*each[2:])) for each in units if each.queue == queue]


def assert_holds(light: LightQueues, units: list[LightUnit], names: set[str], log_first_offset: int = 0) -> None:
    """The queues say what a list of the units says."""
    kept = [each for each in units if each.commit_log_offset >= log_first_offset]
    for name in names:
        expected, found = rows(kept, name), light.get(name)
        if found is None:
            assert not expected, name
            continue
        end = max((each.queue_offset + 1 for each in units if each.queue == name), default=0)
        assert (found.units.min_offset(log_first_offset), found.units.end) == (expected[0][0] if expected else end, end)
        assert found.units.units(0, 1000, log_first_offset)[: len(expected)] == expected[:1000]
        for position in range(end + 2):
            behind = [row for row in expected if row[0] >= position]
            assert found.units.real_from(max(position, found.units.min_offset(log_first_offset))) == (
                behind[0][0] if behind else end
            )
            some = found.units.units(position, 3, log_first_offset)
            assert some == [row for row in behind if row[0] < behind[0][0] + 3] if behind else not some
            if position >= found.units.min_offset(log_first_offset):
                assert found.units.unit(position) == dict(expected).get(position, FILLER)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_each_queue_says_what_a_list_of_its_units_says(tmp_path: Path, seed: int, gaps: bool) -> None:
    units = drawn(seed, 150, gaps=gaps)
    light = make(tmp_path)

    light.apply(units[:40])
    light.apply(units[40:])

    assert_holds(light, units, {each.queue for each in units} | {"%LMQ%none"})


def test_a_position_far_back_is_found_in_few_steps(tmp_path: Path) -> None:
    light = make(tmp_path, file_entry_count=1 << 20)
    light.apply([unit(record, "%LMQ%a", record) for record in range(20_000)])
    asked: list[int] = []

    for position in (0, 1, 9_999, 19_998):
        asked.clear()

        def holds(entry, position=position):
            asked.append(entry.queue_offset)
            return entry.queue_offset >= position

        found = oldest_that(light.entry, 19_999, holds)
        assert found is not None
        assert found[1].queue_offset == position
        assert len(asked) <= 90, position  # 20,000 without the far pointers


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("how", ["at once", "one by one", "a start before each"])
def test_pointers_far_back_are_the_same_however_many_entries_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, gaps: bool
) -> None:
    monkeypatch.setattr(light_queues, "HOT_QUEUE_COUNT", 4)  # of five queues
    monkeypatch.setattr(light_queues, "WAY_ENTRY_COUNT_MAX", 4)
    units = drawn(4, 200, gaps=gaps)
    light = make(tmp_path, file_entry_count=1024)
    for each in [units] if how == "at once" else [[one] for one in units]:
        if how == "a start before each":
            state = light.state()
            light = make(tmp_path, file_entry_count=1024)
            assert light.resume(state)
        light.apply(each)

    entries = [entry for number in range(len(units)) if (entry := light.entry(number)) is not None]
    assert len(entries) == len(units)
    newest: dict[str, int] = {}
    for number, (entry, one) in enumerate(zip(entries, units, strict=True)):
        previous = newest.get(one.queue, -1)
        expected = previous if previous >= 0 else number
        if previous >= 0:  # Myers: two jumps of one length are followed by one over both
            before = entries[previous]
            jump, far = entries[before.jump], entries[entries[before.jump].jump]
            if before.queue_offset - jump.queue_offset == jump.queue_offset - far.queue_offset:
                expected = jump.jump
        assert (entry.previous, entry.jump) == (previous, expected)
        newest[one.queue] = number


def test_packed_units_are_those_of_a_queue_file_and_none_with_a_gap(tmp_path: Path) -> None:
    light = make(tmp_path)
    light.apply([unit(1, "%LMQ%a", 0), unit(2, "%LMQ%a", 1), unit(3, "%LMQ%a", 3)])
    found = light.get("%LMQ%a")

    assert found is not None
    assert found.packed_units(0, 2).hex() == (
        "000000000000006400000064000000000000000100000000000000c8000000640000000000000002"
    )
    assert found.packed_units(0, 4) == b""


@pytest.mark.parametrize(
    ("positions", "kept"),
    [
        ([0, 1, 1, 2], [0, 1, 3]),  # "%LMQ%a,%LMQ%a": the second unit of a record has a position that is taken
        ([0, 1, 0, 1], [2, 3]),  # a broker removed the queue, and it begins anew
        ([0, 1, 1 << 50, 2], [0, 1, 3]),  # damage: the log has no room for so many records
        ([7, 8], [0, 1]),  # retention removed the records before
        ([-1, 0], [1]),
    ],
)
def test_a_unit_stands_where_a_queue_of_its_own_files_would_have_it(
    tmp_path: Path, positions: list[int], kept: list[int]
) -> None:
    light = make(tmp_path)
    light.apply([unit(record, "%LMQ%a", position) for record, position in enumerate(positions)])

    found = light.get("%LMQ%a")
    assert found is not None
    assert found.units.units(0, 99) == [
        (positions[record], QueueUnit(record * RECORD_SIZE_BYTES, RECORD_SIZE_BYTES, record % 7)) for record in kept
    ]
    behind_first = [positions[record] for record in kept if record]
    assert found.units.min_offset(50) == behind_first[0], "nothing of a queue that was removed comes back"


def test_gaps_upon_gaps_lead_to_no_position_behind_which_the_commit_log_does_not_go_on(tmp_path: Path) -> None:
    light = make(tmp_path)
    light.apply([unit(record, "%LMQ%a", position) for record, position in enumerate([0, 4000, 8000, 4001])])
    assert light.newest("%LMQ%a")[1] == 4002


def test_a_record_that_comes_twice_is_one_unit(tmp_path: Path) -> None:
    light = make(tmp_path)
    light.apply([unit(5, "%LMQ%a", 0), unit(5, "%LMQ%a", 0)])

    found = light.get("%LMQ%a")
    assert found is not None
    assert found.units.end == 1


@pytest.mark.parametrize("done", [0, 1, 15, 16, 17, 32, 60])
def test_a_start_goes_on_at_the_checkpoint_whatever_was_written_behind_it(tmp_path: Path, done: int) -> None:
    units = drawn(1, 75)
    names = {each.queue for each in units}
    light = make(tmp_path)
    light.apply(units[:done])
    state = light.state()
    light.apply(units[done:])

    again = make(tmp_path)
    assert again.resume(state)

    assert_holds(again, units[:done], names)
    again.apply(units[done:])
    assert_holds(again, units, names)
    third = make(tmp_path)
    assert third.resume(again.state())
    assert_holds(third, units, names)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: (path / "units.00000000000000000016").unlink(),
        lambda path: (path / "names.00000000000000000016").unlink(),
        lambda path: (path / "names.00000000000000000032").write_bytes(b""),
        lambda path: (path / "units.00000000000000000032").write_bytes(b"\0" * 56 * 8),
        lambda path: (path / "units.00000000000000000032").write_bytes(b""),
    ],
)
def test_files_that_are_not_those_of_the_checkpoint_are_told(tmp_path: Path, change) -> None:
    light = make(tmp_path)
    light.apply(drawn(1, 40))
    state = light.state()
    change(tmp_path / "light")

    assert not make(tmp_path).resume(state)


@pytest.mark.parametrize(
    "state",
    [{}, {"begin": "a"}, {"begin": 3}, {"begin": 32, "end": 16}, {"file_entry_count": 8}],
)
def test_a_checkpoint_that_says_nothing_sound_is_not_taken(tmp_path: Path, state: dict[str, object]) -> None:
    light = make(tmp_path)
    light.apply(drawn(1, 40))

    assert not make(tmp_path).resume(light.state() | state if state else {})


@pytest.mark.parametrize("end", [0, 1, 20, 32, 39, 40, 99])
def test_a_cut_of_the_log_takes_the_units_behind_it(tmp_path: Path, end: int) -> None:
    units = drawn(2, 40)
    light = make(tmp_path)
    light.apply(units)

    light.cut(end * RECORD_SIZE_BYTES + 50)

    kept = units[:end]
    assert_holds(light, kept, {each.queue for each in units})
    other = [unit(record, f"%LMQ%{record % 3}", 50 + record) for record in range(end, end + 9)]
    light.apply(other)
    assert_holds(light, kept + other, {each.queue for each in units})
    again = make(tmp_path)
    assert again.resume(light.state())
    assert_holds(again, kept + other, {each.queue for each in units})


def test_files_before_the_logs_first_record_go_and_their_queues_with_them(tmp_path: Path) -> None:
    units = [unit(record, f"%LMQ%{record // 8}", record % 8) for record in range(80)]
    names = {each.queue for each in units}
    light = make(tmp_path)
    light.apply(units)

    assert light.hide_expired(1500, 99) == []
    first = light.hide_expired(3300, 2)
    second = light.hide_expired(3300, 2)
    assert [path.name[:6] + path.name[-2:] for path in first + second] == [
        "units.00",
        "names.00",
        "units.16",
        "names.16",
    ]
    assert_holds(light, units, names, 3300)
    assert light.get("%LMQ%3") is None
    known = {name for name, _ in light._queues.part(0, 99)}
    assert known == names - {f"%LMQ%{number}" for number in range(4)}, "no memory for what is gone"
    state = light.state()
    light.remove_hidden(first)  # the others stay: a kill came between

    again = make(tmp_path)
    assert again.resume(state)
    assert_holds(again, units, names, 3300)
    assert sorted(path.name for path in (tmp_path / "light").iterdir()) == [
        f"{kind}.{number:020d}" for kind in ("names", "units") for number in (32, 48, 64)
    ]
    again.apply([unit(90, "%LMQ%3", 8)])
    found = again.get("%LMQ%3")
    assert found is not None
    assert found.units.units(0, 9) == [(8, QueueUnit(9000, 100, 6))]


def test_a_queue_that_expired_while_it_was_in_memory_is_a_new_one_with_its_name(tmp_path: Path) -> None:
    light = make(tmp_path, file_entry_count=4)
    light.apply([unit(record, f"%LMQ%{record}", 0) for record in range(10)])
    light.remove_hidden(light.hide_expired(400, 9))

    light.apply([unit(10, "%LMQ%3", 1), unit(11, "%LMQ%9", 1)])

    again = make(tmp_path, file_entry_count=4)
    assert again.resume(light.state())
    for queues in (light, again):
        found = queues.get("%LMQ%3")
        assert found is not None
        assert found.units.units(0, 9) == [(1, QueueUnit(1000, 100, 3))]
        rows_of_page, number = queues.page("%LMQ%", 0, 6)
        assert rows_of_page == [*((f"%LMQ%{each}", 1) for each in range(4, 9)), ("%LMQ%9", 2)]
        assert queues.page("%LMQ%", number, 6)[0] == [("%LMQ%3", 2)]


def test_nothing_is_left_of_what_is_applied_anew(tmp_path: Path) -> None:
    light = make(tmp_path)
    light.apply(drawn(2, 40))
    light.next_offset = 7

    light.clear()

    assert (light.get("%LMQ%0"), light.next_offset, list((tmp_path / "light").iterdir())) == (None, UP_TO_DATE, [])
    light.apply(drawn(3, 20))
    assert_holds(light, drawn(3, 20), {"%LMQ%0", "%LMQ%1"})


def test_a_damaged_entry_is_named_with_its_byte_and_never_served(tmp_path: Path) -> None:
    light = make(tmp_path)
    light.apply([unit(record, "%LMQ%a", record) for record in range(20)])
    path = tmp_path / "light" / f"units.{16:020d}"
    data = bytearray(path.read_bytes())
    data[56 + 3] ^= 1
    path.write_bytes(data)

    found = light.get("%LMQ%a")
    assert found is not None
    with pytest.raises(StoreCorruptedError, match="byte 56") as error:
        found.units.units(0, 99)
    assert (error.value.metadata["file"], error.value.metadata["offset"]) == (str(path), "56")


def test_an_entry_that_points_forward_is_damage(tmp_path: Path) -> None:
    light = make(tmp_path)
    light.apply([unit(record, "%LMQ%a", record) for record in range(3)])
    path = tmp_path / "light" / f"units.{0:020d}"
    data = bytearray(path.read_bytes())
    data[56:112] = encode_light_entry(LightEntry(100, 100, 1, 1, 2, 0, 0))
    path.write_bytes(data)

    found = light.get("%LMQ%a")
    assert found is not None
    with pytest.raises(StoreCorruptedError, match="byte 56"):
        found.units.units(0, 99)


def test_messages_that_are_left_out_are_counted_in_one_line_and_known_ones_are_not(tmp_path: Path, caplog) -> None:
    light = make(tmp_path)
    light.apply([unit(record, "%LMQ%a", record) for record in range(3)])
    light.apply([unit(record, "%LMQ%a", record) for record in range(3)])
    assert not caplog.messages
    light.apply([unit(9, "%LMQ%a", 1), unit(10, "%LMQ%a", 2), unit(11, "%LMQ%a", 1 << 60), unit(12, "%LMQ%a", 0)])
    assert [message.split(";")[0] for message in caplog.messages] == [
        "light queues: 2 messages state a position that is taken and are left out",
        "light queues: 1 messages state a position for which the log has no room and are left out",
        "light queues: 1 messages begin a queue anew, as if a broker had removed its files",
    ]
    assert "record at 900, position 1 of %LMQ%a" in caplog.messages[0]


def test_queues_beyond_the_limit_are_left_out_and_counted(tmp_path: Path, caplog) -> None:
    light = LightQueues(OpenFiles(RealFileSystem()), tmp_path / "light", count_max=2)
    light.apply([unit(0, "%LMQ%a", 0), unit(1, "%LMQ%b", 0), unit(2, "%LMQ%c", 0), unit(3, "%LMQ%a", 1)])
    assert light.get("%LMQ%c") is None
    assert light.newest("%LMQ%a") == (2, 2)
    assert "LIGHT_QUEUE_COUNT_MAX" in caplog.text


def test_a_queue_that_the_log_forgot_goes_on_far_ahead(tmp_path: Path) -> None:
    """The log gives it the greatest position of all that it forgot."""
    light = make(tmp_path)
    light.apply([unit(0, "%LMQ%a", 0), unit(9_000_000, "%LMQ%a", 5_000_000)])
    found = light.get("%LMQ%a")
    assert found is not None
    assert (found.units.end, found.units.real_from(1)) == (5_000_001, 5_000_000)


class FullFileSystem(RealFileSystem):
    """A disk that is full after some writes."""

    writes_left = 1 << 30

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        if not self.writes_left:
            raise DiskFullError("full")
        self.writes_left -= 1
        super().pwrite(fd, data, position)


@pytest.mark.parametrize(("file_entry_count", "writes"), [*((16, writes) for writes in range(6)), (64, 0), (64, 1)])
def test_units_that_a_full_disk_refused_are_written_by_the_next_try(
    tmp_path: Path, file_entry_count: int, writes: int
) -> None:
    units = drawn(1, 60, 20)
    fs = FullFileSystem()
    light = LightQueues(OpenFiles(fs), tmp_path / "light", file_entry_count=file_entry_count)
    light.apply(units[:10])
    fs.writes_left = writes
    with pytest.raises(DiskFullError):
        light.apply(units[10:50])
    assert_holds(light, units[:10], {each.queue for each in units[:10]})
    fs.writes_left = 1 << 30
    light.apply(units[10:50])
    light.apply(units[50:])
    assert_holds(light, units, {each.queue for each in units})
    again = make(tmp_path, file_entry_count=file_entry_count)
    assert again.resume(light.state())
    assert_holds(again, units, {each.queue for each in units})


def test_a_file_that_expires_takes_its_queues_with_it_though_its_names_are_torn(tmp_path: Path) -> None:
    light = make(tmp_path, file_entry_count=4)
    light.apply([unit(record, f"%LMQ%{record}", 0) for record in range(10)])
    names = min((tmp_path / "light").glob("names.*"))
    names.write_bytes(names.read_bytes()[:-3])
    assert len(light.hide_expired(400, 9)) == 2
    assert light.newest("%LMQ%3") == (-1, 0)
    assert light.newest("%LMQ%4") == (4, 1)


@pytest.mark.parametrize("count_max", [1, 3, 7, 1_000])
def test_pages_have_each_queue_of_a_prefix_once_in_the_order_in_which_they_came(tmp_path: Path, count_max: int) -> None:
    light = make(tmp_path)
    names = [f"%LMQ%${parent}${number}" for number in range(10) for parent in ("p", "q")]
    light.apply([unit(record, name, 0) for record, name in enumerate(names)])
    light.apply([unit(100, names[4], 1)])
    found, number = [], 0
    for _ in range(100):
        rows_of_page, number = light.page("%LMQ%$p$", number, count_max)
        found += rows_of_page
        if not number:
            break
    assert found == [(name, 2 if name == names[4] else 1) for name in names if "$p$" in name]


def test_a_page_leaves_out_queues_that_retention_removed(tmp_path: Path) -> None:
    light = make(tmp_path, file_entry_count=4)
    light.apply([unit(record, f"%LMQ%{record}", 0) for record in range(10)])
    light.hide_expired(800, 10)
    assert [name for name, _ in light.page("%LMQ%", 0, 100)[0]] == ["%LMQ%8", "%LMQ%9"]


def test_pages_of_queues_left_out_one_that_came_again_after_old_files_were_removed(tmp_path: Path) -> None:
    """A start had the queues in the order of their files, and a page went on behind the greatest number of the one before."""
    numbers = [*range(16), *([3, 9] * 8), 5, 9, 16]
    ends: dict[int, int] = {}
    units = []
    for record, number in enumerate(numbers):
        units.append(unit(record, f"%LMQ%{number}", ends.get(number, 0)))
        ends[number] = ends.get(number, 0) + 1
    light = make(tmp_path)
    light.apply(units)
    light.remove_hidden(light.hide_expired(16 * RECORD_SIZE_BYTES, 99))
    again = make(tmp_path)
    assert again.resume(light.state())

    for queues in (light, again):
        found, number = [], 0
        while True:
            rows, number = queues.page("%LMQ%", number, 2)
            found += rows
            if not number:
                break
        assert found == [(f"%LMQ%{each}", ends[each]) for each in (3, 5, 9, 16)]


def test_queues_that_are_not_in_memory_and_lie_side_by_side_are_read_together_for_their_next_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    light = make(tmp_path, file_entry_count=32)
    light.apply([unit(number, f"%LMQ%{number}", 0) for number in range(40)])
    again = make(tmp_path, file_entry_count=32)
    assert again.resume(light.state())
    read: list[tuple[str, int]] = []
    pread = OpenFile.read

    def counted(file: OpenFile, at: int, size: int) -> bytes:
        read.append((file._path.name[-2:], at // ENTRY_SIZE_BYTES))
        return pread(file, at, size)

    monkeypatch.setattr(OpenFile, "read", counted)
    again.apply([unit(40 + number, f"%LMQ%{number}", 1) for number in range(40)])
    monkeypatch.undo()

    assert sorted(read) == [("00", 0), ("32", 0)]
    units = [unit(record, f"%LMQ%{record % 40}", record // 40) for record in range(80)]
    assert_holds(again, units, {each.queue for each in units})


def test_a_queue_has_its_name_once_in_each_file_where_it_has_units(tmp_path: Path) -> None:
    units = [unit(record, f"%LMQ%{record % 3}", record // 3) for record in range(40)]
    light = make(tmp_path)
    for begin in range(0, 40, 7):
        light.apply(units[begin : begin + 7])

    for path in sorted((tmp_path / "light").glob("names.*")):
        names = list(decode_light_names(path.read_bytes()))
        assert sorted(names) == [(number, f"%LMQ%{number}") for number in range(3)]
