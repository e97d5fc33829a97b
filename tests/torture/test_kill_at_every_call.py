"""SIGKILL and power cuts at every single call that changes the disk, in each part of a store's life.

For each scenario and each N: a life on a fresh copy of the store dies at its N-th call; one more life without faults must
then find all that was acknowledged, once, with right queues and index, and go on. `sample` takes a few N of each, a change each
call of a start and each fourth one of the longer scenarios, other ones with another seed.
"""

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.amount import amount
from tests.torture.drivers import CHECK_LAYOUT, SCENARIOS, TIME_MILLIS, Life
from tests.torture.lives import Lives
from tests.torture.seeds import pick_seed
from tests.torture.store_check import HEAD, Frame, read_frames
from tests.torture.stores import (
    LAST_LIFE,
    TIME_LIMIT,
    History,
    check_life,
    choose,
    copy_of,
    judge,
    make_template,
    tear_tail,
)

pytestmark = TIME_LIMIT
EVERY = 1_000_000
CHECKPOINT = struct.Struct(">qqq")


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with Lives() as running:
        yield running


@pytest.fixture
def directory(lives: Lives, tmp_path: Path) -> Iterator[Path]:
    with lives.directory(tmp_path) as path:
        yield path


def die_at(lives: Lives, template: Path, root: Path, history: History, life: Life, faults: dict[int, str]) -> str:
    """A life on a copy of the template that dies at a call; what it was about, for messages."""
    copy_of(template, root)
    about = f"faults {faults} of {life}"
    told = lives.live(root, life, faults=faults)
    check_life(told, about)
    assert told.was_killed, f"{about}: not killed, {told.lines[-3:]}"
    history.add(life, told)
    return about


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("action", ["kill", "torn_kill", "cut", "cut_some"])
def test_a_death_at_any_call_loses_nothing_acknowledged(
    scenario: str, action: str, lives: Lives, directory: Path
) -> None:
    seed = pick_seed(f"{scenario}-{action}")
    template, root, life = directory / "template", directory / "store", SCENARIOS[scenario]
    before = make_template(lives, scenario, template)
    whole = lives.live(copy_of(template, root), life)
    total = whole.call_count
    if action == "kill":
        count = amount(sample=4, change=total if scenario == "start" else -(-total // 4), full=EVERY)
    else:
        count = amount(sample=1, change=6, full=EVERY)
    numbers = choose(total, count, seed)
    for number in numbers:
        history = before.copy()
        copy_of(template, root)
        about = f"{action} at call {number} of {total} of {scenario} (seed {seed})"
        told = lives.live(root, life, faults={number: action}, seed=seed + number)
        check_life(told, about)
        assert told.was_killed, f"{about}: not killed, {told.lines[-3:]}"
        history.add(life, told)
        judge(lives, root, history, about)
    print(f"{scenario} {action}: died at {len(numbers)} of {total} calls")


def test_a_second_death_during_recovery_loses_nothing_either(lives: Lives, directory: Path) -> None:
    seed = pick_seed("second-death")
    chance = random.Random(seed)
    root = directory / "store"
    before = {scenario: make_template(lives, scenario, directory / scenario) for scenario in SCENARIOS}
    for round_ in range(amount(sample=6, change=30, full=3000)):
        scenario = chance.choice(list(SCENARIOS))
        life = SCENARIOS[scenario]
        history = before[scenario].copy()
        copy_of(directory / scenario, root)
        plans = []
        for death, upto in enumerate((150, 40, 25)):
            action, number = chance.choice(("kill", "torn_kill", "cut", "cut_some")), chance.randrange(1, upto)
            plans.append((number, action))
            one = life if death == 0 else Life(first=300 + 100 * death, count=3, turn_every=1)
            told = lives.live(root, one, faults={number: action}, seed=seed + round_)
            check_life(told, f"seed {seed}, {scenario}, {plans}")
            history.add(one, told)
        judge(lives, root, history, f"seed {seed}, round {round_}, {scenario}, deaths at {plans}")


def test_rmq_1434_a_death_around_a_rollover_leaves_no_record_out_of_queues_and_index(
    lives: Lives, directory: Path
) -> None:
    seed = pick_seed("rollover")
    life, root = SCENARIOS["rollover"], directory / "store"
    trace = lives.live(root, life, trace=True).calls
    makings = [n for n, call in enumerate(trace, 1) if call[0] == "fallocate"]
    assert len(makings) > 4, "the log must roll several times"
    around = sorted({n for making in makings for n in range(making - 4, making + 9) if 0 < n <= len(trace)})
    for index in choose(len(around), amount(sample=8, change=15, full=EVERY), seed):
        number = around[index - 1]
        history = History()
        about = die_at(lives, directory / "none", root, history, life, {number: "kill"})
        judge(lives, root, history, about)


def test_rmq_405_a_power_cut_with_the_log_flushed_and_the_queues_not_leaves_the_queues_whole(
    lives: Lives, directory: Path
) -> None:
    seed = pick_seed("log-flushed-queues-not")
    life, root = SCENARIOS["append"], directory / "store"
    trace = lives.live(root, life, trace=True).calls
    builders = [n for n, call in enumerate(trace, 1) if call[1].startswith(("consumequeue/", "index/"))]
    for index in choose(len(builders), amount(sample=8, change=15, full=EVERY), seed):
        history = History()
        about = die_at(lives, directory / "none", root, history, life, {builders[index - 1]: "cut"})
        judge(lives, root, history, about)


def test_rmq_678_10073_no_checkpoint_is_ahead_of_the_disk(lives: Lives, directory: Path) -> None:
    seed = pick_seed("checkpoints")
    life, root = SCENARIOS["rollover"], directory / "store"
    trace = lives.live(root, life, trace=True).calls
    names = ("checkpoint", "snapshot", "durable")
    # Behind each flush, and behind each write and rename of a file that says how far something is.
    places = [
        n
        for n, call in enumerate(trace, 1)
        if trace[n - 2][0] == "fdatasync" or any(name in trace[n - 2][1] for name in names)
    ]
    for index in choose(len(places), amount(sample=8, change=20, full=EVERY), seed):
        number = places[index - 1]
        history = History()
        about = die_at(lives, directory / "none", root, history, life, {number: "cut"})
        assert_checkpoints_behind_disk(root, about)
        judge(lives, root, history, about)


def assert_checkpoints_behind_disk(root: Path, about: str) -> None:
    """After a cut the files are what the disk holds; whoever says how far it is must not say more."""
    frames = read_frames(root, [])
    end = frames[-1].commit_log_offset + frames[-1].size_bytes if frames else 0
    times = [frame.store_time_millis for frame in frames]
    own = root / "reput"
    for path, name in (
        (own / "commitlog/snapshot.json", "commit_log_offset"),
        (own / "consumequeue/checkpoint.json", "next_offset"),
        (own / "index/checkpoint.json", "next_offset"),
    ):
        if path.exists():
            assert json.loads(path.read_bytes())[name] <= end, f"{about}: {path.name} is ahead of the log's end {end}"
    if (own / "commitlog/durable").exists():
        data = (own / "commitlog/durable").read_bytes()
        assert not data or int.from_bytes(data[:8], "big") <= end, f"{about}: the durable mark is ahead of {end}"
    if (root / "checkpoint").exists():
        log_millis, queue_millis, index_millis = CHECKPOINT.unpack_from((root / "checkpoint").read_bytes())
        newest = max(times, default=0)
        in_queues, in_index = newest_unit_millis(root, frames), newest_entry_millis(root, frames)
        assert log_millis <= newest, f"{about}: the checkpoint has the log at {log_millis}, the disk {newest}"
        assert queue_millis <= in_queues, f"{about}: the checkpoint has the queues at {queue_millis}, not {in_queues}"
        assert index_millis <= in_index, f"{about}: the checkpoint has the index at {index_millis}, not {in_index}"
        assert log_millis == 0 or log_millis > TIME_MILLIS


def newest_unit_millis(root: Path, frames: list[Frame]) -> int:
    """Store time up to which every record has its unit on the disk."""
    millis = 0
    for frame in frames:
        place = frame.queue_offset * 20
        path = root / "consumequeue" / frame.topic / str(frame.queue_id) / f"{place - place % 80:020d}"
        unit = path.read_bytes()[place % 80 : place % 80 + 12] if path.exists() else b""
        if unit != struct.pack(">qi", frame.commit_log_offset, frame.size_bytes):
            break
        millis = frame.store_time_millis
    return millis


def newest_entry_millis(root: Path, frames: list[Frame]) -> int:
    """Store time of the newest record that has an entry on the disk."""
    size = 40 + 4 * CHECK_LAYOUT.slot_count + 20 * CHECK_LAYOUT.entry_count_max
    files = [path.read_bytes().ljust(size, b"\0") for path in sorted((root / "index").glob("*"))]
    entries = [struct.unpack_from(">iq", data, size - 20 * n) for data in files for n in range(1, 12)]
    offsets = {offset for hash_, offset in entries if hash_}
    return max((frame.store_time_millis for frame in frames if frame.commit_log_offset in offsets), default=0)


def test_rmq_495_many_crashes_during_recovery_leave_every_unit_on_its_record(lives: Lives, directory: Path) -> None:
    seed = pick_seed("crashes-during-recovery")
    chance = random.Random(seed)
    template, root = directory / "template", directory / "store"
    before = make_template(lives, "recovery", template)
    tear_tail(template)
    history = before.copy()
    copy_of(template, root)
    deaths = []
    for crash in range(amount(sample=20, change=80, full=2000)):
        number = chance.randrange(1, 60)
        action = chance.choice(("kill", "torn_kill", "cut_some"))
        deaths.append((number, action))
        life = Life(first=1000 + 10 * crash, count=chance.choice((0, 0, 1, 3)), turn_every=1)
        told = lives.live(root, life, faults={number: action}, seed=seed + crash)
        check_life(told, f"seed {seed}, crash {crash}: {deaths[-1]}")
        history.add(life, told)
        if crash % 50 == 49:
            about = f"seed {seed} after {crash + 1} crashes, the last {deaths[-5:]}"
            judge(lives, root, history, about, Life(first=1000 + 10 * crash + 5, count=2, turn_every=2))
    judge(lives, root, history, f"seed {seed} after {len(deaths)} crashes", Life(first=900_000, count=2, turn_every=2))


@pytest.mark.parametrize("damaged", [0, 4, 8])
def test_rmq_467_501_a_damaged_record_before_good_ones_is_reported_and_leaves_no_hole_in_a_queue(
    damaged: int, lives: Lives, directory: Path
) -> None:
    root = directory / "store"
    life = Life(count=9, turn_every=3, is_clean_end=False)
    told = lives.live(root, life)
    history = History()
    history.add(life, told)
    frames = read_frames(root, [])
    at = frames[damaged].commit_log_offset + HEAD.size + 3
    path = root / "commitlog" / f"{0:020d}"
    (root / "reput/commitlog/snapshot.json").unlink(missing_ok=True)  # so that the walk reads what is before it too
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)
    log_before = path.read_bytes()

    told = lives.live(root, LAST_LIFE)

    (failure,) = told.rows("recover_failed")
    assert failure[0] == "StoreCorruptedError"
    assert f"byte {frames[damaged].commit_log_offset} " in " ".join(failure)
    assert path.read_bytes() == log_before, "a damaged log must not be changed"
    assert not told.acked
    data[at] ^= 0x20
    path.write_bytes(data)  # the operator brings the file back
    judge(lives, root, history, "brought back")


def test_rmq_467_501_a_torn_last_record_gives_its_place_and_its_queue_offset_to_the_next(
    lives: Lives, directory: Path
) -> None:
    root = directory / "store"
    first = Life(count=9, turn_every=3, is_clean_end=False)
    history = History()
    history.add(first, lives.live(root, first))
    torn = Life(first=20, count=1, turn_every=0)
    trace = lives.live(copy_of(root, directory / "copy"), torn, trace=True).calls
    write = next(n for n, call in enumerate(trace, 1) if call[0] == "pwritev" and call[1].startswith("commitlog/"))
    told = lives.live(root, torn, faults={write: "torn_kill"})
    assert told.was_killed
    assert not told.acked
    torn_offset = int(trace[write - 1][2])
    again = lives.live(root, torn)  # the same message: the same queue
    history.add(torn, again)

    (place,) = again.acked.values()
    assert place.commit_log_offset == torn_offset
    judge(lives, root, history, "torn last record")


def test_rmq_alibaba_358_a_tail_lost_after_a_clean_stop_is_lost_from_queues_and_index_too(
    lives: Lives, directory: Path
) -> None:
    root = directory / "store"
    life = Life(count=15, turn_every=5)
    history = History()
    history.add(life, lives.live(root, life))
    frames = read_frames(root, [])
    path = root / "commitlog" / f"{0:020d}"
    lost = frames[-3:]
    data = bytearray(path.read_bytes())
    data[lost[0].commit_log_offset :] = bytes(len(data) - lost[0].commit_log_offset)
    path.write_bytes(data)

    refused = lives.live(root, LAST_LIFE)
    (failure,) = refused.rows("recover_failed")
    assert failure[0] == "StoreCorruptedError", "what was acknowledged as durable is missing: no torn tail"
    assert f"byte {lost[0].commit_log_offset} " in " ".join(failure)

    for name in ("durable", "snapshot.json"):  # the operator accepts the loss; a broker's store has none of these
        (root / "reput/commitlog" / name).unlink()
    for frame in lost:
        del history.acked[frame.message_id]
    judge(lives, root, history, "tail lost after a clean stop")
