"""Every call that changes the disk fails once, in turn: EIO, no space, half a write. Nobody is told a lie.

For each scenario, fault and N: a life whose N-th call fails must end by itself and soon, answer each append with a receipt
or a typed refusal, acknowledge nothing behind a refused flush of the log and never flush that descriptor again. The next
life, without faults, must then find all that was acknowledged, and nothing whose refusal said that it was not written.

EINTR is missing here: Python itself tries such calls again, so it can only come from outside (test_outside_faults.py).
"""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.torture.amount import amount
from tests.torture.drivers import SCENARIOS, Life
from tests.torture.lives import Lives, Told
from tests.torture.seeds import pick_seed
from tests.torture.stores import (
    TIME_LIMIT,
    History,
    check_life,
    choose,
    copy_of,
    judge,
    make_template,
)

pytestmark = TIME_LIMIT
EVERY = 1_000_000
TYPED = {"FlushFailedError", "DiskFullError", "ResourceBusyError"}  # what an append may answer for the disk's sake
AT_ONCE = ("EIO", "ENOSPC", "short")
MORE = ("EAGAIN", "EMFILE", "ENOSPC*", "EIO*")


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with Lives() as running:
        yield running


@pytest.fixture
def directory(lives: Lives, tmp_path: Path) -> Iterator[Path]:
    with lives.directory(tmp_path) as path:
        yield path


def check_answers(told: Told, life: Life, about: str) -> None:
    """Each append has one typed answer, and behind a fence there is no acknowledgement."""
    check_life(told, about)
    assert not told.was_killed
    if told.rows("recover_failed"):
        (failure,) = told.rows("recover_failed")  # a start may fail with the system's own error: it names the file
        assert failure[0] in TYPED | {"OSError", "BlockingIOError", "StoreLockedError"}, f"{about}: {told.lines}"
        assert not told.acked
        return
    answered = list(told.acked) + list(told.refused)
    assert len(answered) == len(set(answered)) == life.count, f"{about}: {told.lines}"
    assert set(told.refused.values()) <= TYPED, f"{about}: {told.refused}"
    kinds = [row[0] for row in told.lines]
    if "fenced" in kinds:
        behind = kinds[kinds.index("fenced") :]
        assert "ack" not in behind, f"{about}: acknowledged behind the fence: {told.lines}"
        assert ["state", "fenced"] in told.lines or "state" not in behind, f"{about}: {told.lines}"
    assert len(told.rows("fenced")) <= 1, about
    for name, error in told.rows("builder_failed"):
        assert error in TYPED | {"OSError", "BlockingIOError"}, f"{about}: builder {name} failed with {error}"


def is_flushed_again(trace: Sequence[Sequence[str]], number: int) -> bool:
    """Whether the n-th call is a recovery's first flush of a file, before it forgets the pages and reads the disk.

    What that one says means nothing (store/files/file_system.py): what is read then is flushed by another descriptor
    before the log opens.
    """
    opened = next((n for n, call in enumerate(trace, 1) if list(call[:2]) == ["open", "abort"]), 0)
    return number < opened and trace[number - 1] in trace[number:opened]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("fault", AT_ONCE + MORE)
def test_a_call_that_fails_makes_no_false_acknowledgement(
    scenario: str, fault: str, lives: Lives, directory: Path
) -> None:
    seed = pick_seed(f"{scenario}-{fault}")
    template, root, life = directory / "template", directory / "store", SCENARIOS[scenario]
    before = make_template(lives, scenario, template)
    trace = lives.live(copy_of(template, root), life, trace=True).calls
    candidates = [n for n, call in enumerate(trace, 1) if fault != "short" or call[0] in ("pwrite", "pwritev")]
    if fault in MORE:
        count = amount(sample=1, change=2, full=EVERY)
    else:  # for each change each fourth call of a run of 20 records, with each seed others
        count = amount(sample=1, change=-(-len(candidates) // 4) if scenario == "append" else 4, full=EVERY)
    for index in choose(len(candidates), count, seed):
        number = candidates[index - 1]
        history = before.copy()
        copy_of(template, root)
        about = f"{fault} at call {number} ({' '.join(trace[number - 1])}) of {scenario} (seed {seed})"
        told = lives.live(root, life, faults={number: fault}, seed=seed)
        check_answers(told, life, about)
        if fault == "short":
            assert len(told.acked) == life.count, f"{about}: half a write is no reason to refuse: {told.lines}"
        call = trace[number - 1]
        if fault.startswith("EIO") and call[0] == "fdatasync" and call[1].startswith("commitlog/"):
            fenced = told.rows("fenced") or told.rows("recover_failed")
            assert fenced or is_flushed_again(trace, number), f"{about}: a refused flush must fence"
        history.add(life, told)
        judge(lives, root, history, about)


def test_several_failures_in_one_life_make_no_false_acknowledgement(lives: Lives, directory: Path) -> None:
    seed = pick_seed("several-failures")
    chance = random.Random(seed)
    root = directory / "store"
    before = {scenario: make_template(lives, scenario, directory / scenario) for scenario in SCENARIOS}
    for round_ in range(amount(sample=6, change=30, full=5000)):
        scenario = chance.choice(list(SCENARIOS))
        life = SCENARIOS[scenario]
        faults = {
            chance.randrange(1, 300): chance.choice((*AT_ONCE, "EAGAIN", "EMFILE"))
            for _ in range(chance.randrange(2, 7))
        }
        if chance.random() < 0.3:
            faults[chance.randrange(50, 250)] = chance.choice(("kill", "cut_some"))
        history = before[scenario].copy()
        copy_of(directory / scenario, root)
        about = f"seed {seed}, round {round_}, {scenario}, faults {sorted(faults.items())}"
        told = lives.live(root, life, faults=faults, seed=seed + round_)
        if not told.was_killed:
            check_answers(told, life, about)
        history.add(life, told)
        judge(lives, root, history, about)


def test_rmq_7902_2081_no_space_is_said_and_leaves_nothing_of_the_refused_batch(lives: Lives, directory: Path) -> None:
    """From one call on the disk is full for good: what came before is kept, what is refused is not there."""
    seed = pick_seed("full-for-good")
    root, life = directory / "store", SCENARIOS["batches"]
    trace = lives.live(root, life, trace=True).calls
    writes = [n for n, call in enumerate(trace, 1) if call[1].startswith(("commitlog/", "reput/commitlog/0"))]
    for index in choose(len(writes), amount(sample=4, change=10, full=EVERY), seed):
        number = writes[index - 1]
        history = History()
        copy_of(directory / "none", root)
        about = f"full from call {number} ({' '.join(trace[number - 1])}) on (seed {seed})"
        told = lives.live(root, life, faults={number: "ENOSPC*"})
        check_answers(told, life, about)
        history.add(life, told)
        judge(lives, root, history, about)


def test_a_batch_refused_for_want_of_space_is_nowhere_after_a_restart(lives: Lives, directory: Path) -> None:
    """The batch spans two files; the second write finds no space, and neither does the undoing of the first."""
    root, life = directory / "store", SCENARIOS["batches"]
    trace = lives.live(root, life, trace=True).calls
    first, second = next(
        (n, n + 1) for n, (call, following) in enumerate(pairwise(trace), 1) if call[0] == following[0] == "pwritev"
    )
    assert trace[first - 1][1] != trace[second - 1][1]
    copy_of(directory / "none", root)
    told = lives.live(root, life, faults={second: "ENOSPC*"})
    check_answers(told, life, "no space for the second file")
    history = History()
    history.add(life, told)
    judge(lives, root, history, "no space for the second file")


def test_a_log_file_that_could_not_be_removed_leaves_no_hole_in_the_log(lives: Lives, directory: Path) -> None:
    template, root, life = directory / "template", directory / "store", SCENARIOS["expiry"]
    before = make_template(lives, "expiry", template)
    trace = lives.live(copy_of(template, root), life, trace=True).calls
    removals = [n for n, call in enumerate(trace, 1) if call[0] == "unlink" and call[1].startswith("commitlog/")]
    assert len(removals) > 2
    for number in removals[:3]:
        history = before.copy()
        told = lives.live(copy_of(template, root), life, faults={number: "EMFILE"})
        check_answers(told, life, f"removal {number} failed")
        history.add(life, told)
        judge(lives, root, history, f"removal {number} failed")


@pytest.mark.parametrize("count", range(3, 8))
def test_a_clean_index_without_its_checkpoint_gets_no_key_twice(count: int, lives: Lives, directory: Path) -> None:
    """Some of these leave the keys of the newest record in two index files."""
    root, life = directory / "store", Life(count=count, turn_every=count)
    history = History()
    history.add(life, lives.live(root, life))
    (root / "reput/index/checkpoint.json").unlink()
    judge(lives, root, history, f"{count} records, index checkpoint lost")


def test_an_index_file_whose_header_was_never_written_is_made_again(lives: Lives, directory: Path) -> None:
    root, life = directory / "store", Life(count=20, turn_every=20)
    history = History()
    history.add(life, lives.live(root, life))
    (root / "reput/index/checkpoint.json").unlink()
    newest = max((root / "index").iterdir())
    data = newest.read_bytes()
    newest.write_bytes(bytes(40) + data[40:])
    judge(lives, root, history, "no header in the newest index file")
