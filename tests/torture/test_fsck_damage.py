"""Random damage anywhere in a store: what can be seen is found, the audit never breaks, and a repair ends clean.

What can be seen is told by the pristine copy: a change inside a record (all carry a `__CRC32#`), in the first 8 bytes of
a blank, behind the end of the log, or anywhere in a queue or index file.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.repair import Repairer
from store.audit.store_audit import audit_store
from store.files.file_system import RealFileSystem
from tests.support.dispatches import file_bytes
from tests.support.fixture_stores import walk_frames
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed

Damage = Callable[[random.Random, Path], str]
FS = RealFileSystem()


def _flip_bit(random_: random.Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    at = random_.randrange(len(data))
    data[at] ^= 1 << random_.randrange(8)
    path.write_bytes(data)
    return f"a bit of byte {at}"


def _change_bytes(random_: random.Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    at = random_.randrange(len(data))
    count = random_.choice((1, 2, 4, 8, 20, 300, 5000))
    noise = random_.randbytes(count) if random_.random() < 0.6 else bytes(count)
    data[at : at + count] = noise[: len(data) - at]
    path.write_bytes(data)
    return f"{count} bytes from {at}"


def _shorten(random_: random.Random, path: Path) -> str:
    size = random_.choice((0, 1, 19, 20, 21, random_.randrange(path.stat().st_size)))
    data = path.read_bytes()
    path.write_bytes(data[:size])
    return f"cut to {size}"


def _lengthen(random_: random.Random, path: Path) -> str:
    more = random_.randbytes(random_.choice((1, 20, 4096)))
    path.write_bytes(path.read_bytes() + more)
    return f"{len(more)} bytes more"


def _remove(random_: random.Random, path: Path) -> str:
    path.unlink()
    return "removed"


def _rename(random_: random.Random, path: Path) -> str:
    digits = [character for character in path.name if character.isdigit()]
    if len(digits) == len(path.name):
        at = random_.randrange(len(digits))
        digits[at] = str((int(digits[at]) + random_.randrange(1, 10)) % 10)
        target = path.with_name("".join(digits))
    else:
        target = path.with_name(path.name + ".old")
    if target.exists():
        return "left alone"
    path.rename(target)
    return f"renamed to {target.name}"


def _copy_over(random_: random.Random, path: Path) -> str:
    others = sorted(other for other in path.parent.iterdir() if other.is_file() and other != path)
    if not others:
        return "left alone"
    other = random_.choice(others)
    shutil.copyfile(other, path)
    return f"replaced by {other.name}"


DAMAGES: tuple[tuple[int, Damage], ...] = (
    (8, _flip_bit), (8, _change_bytes), (2, _shorten), (1, _lengthen), (1, _remove), (1, _rename), (1, _copy_over),
)  # fmt: skip


def _is_visible(before: dict[str, bytes], after: dict[str, bytes], root: Path) -> bool:
    """Whether the damage changed something that is guarded or told by the log."""
    frames = [(offset, len(frame)) for offset, frame in walk_frames(root)]
    end = max(offset + size for offset, size in frames)
    # Index files are told apart by their order alone; their names are times that nothing else knows.
    if _index_files(before) != _index_files(after):
        return True
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if name.startswith("consumequeue/"):
            return True
        if not name.startswith("commitlog/"):
            continue
        if new is None and all(name < other for other in after if other.startswith("commitlog/")):
            continue  # a log without its first file looks like one of which that file was retired
        if old is None or new is None or len(old) != len(new):
            return True
        base = int(Path(name).name)
        changed = {base + at for at in range(len(old)) if old[at] != new[at]}
        guarded = [(offset, offset + size) for offset, size in frames if base <= offset < base + len(old)]
        last = guarded[-1][1]
        for at in changed:
            if at >= end or at < last or at < last + 8:
                return True
    return False


def _index_files(tree: dict[str, bytes]) -> list[bytes]:
    return [tree[name] for name in sorted(tree) if name.startswith("index/")]


@pytest.mark.timeout(3600)
def test_any_visible_damage_is_found_and_repaired(engine_crc_store: Path, tmp_path: Path) -> None:
    seed = pick_seed("fsck damage")
    pristine = file_bytes(engine_crc_store)
    visible_count = 0
    for number in range(amount(sample=30, change=100, full=5000)):
        random_ = random.Random(f"{seed}/{number}")
        root = tmp_path / str(number)
        shutil.copytree(engine_crc_store, root)
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        for path in paths:
            path.chmod(0o644)
        what = []
        is_retired = random_.random() < 0.2
        if is_retired:  # what points before the log cannot be compared; it must still be survived and mended
            min((root / "commitlog").iterdir()).unlink()
        for _ in range(random_.choice((1, 1, 1, 2, 5))):
            part = random_.choice(("commitlog", "consumequeue", "consumequeue", "index", ""))
            candidates = [
                path for path in paths if path.exists() and path.stat().st_size and part in str(path.relative_to(root))
            ]
            if not candidates:  # earlier damage has left nothing of that part
                continue
            path = random_.choice(candidates)
            damage = random_.choices([one for _, one in DAMAGES], [weight for weight, _ in DAMAGES])[0]
            what.append(f"{path.relative_to(root)}: {damage(random_, path)}")
        story = f"seed {seed}, store {number}, retired {is_retired}: {what}"
        damaged = file_bytes(root)
        is_visible = not is_retired and _is_visible(pristine, damaged, engine_crc_store)
        visible_count += is_visible
        audit = audit_store(FS, root)
        assert file_bytes(root) == damaged, f"{story}: an audit changed something"
        assert not (is_visible and audit.findings.is_clean), f"{story}: not found"

        log_before = {name: data for name, data in damaged.items() if name.startswith("commitlog/")}
        Repairer(FS, root, lambda done, total: None).run(None)
        log_after = {name: data for name, data in file_bytes(root).items() if name.startswith("commitlog/")}
        assert log_after == log_before, f"{story}: --repair changed the log"
        audit, _ = Repairer(FS, root, lambda done, total: None).run(lambda question: True)
        assert audit.findings.is_clean, f"{story}: {[(f.code, f.file, f.byte, f.what) for f in audit.findings.kept]}"
        shutil.rmtree(root)
    assert visible_count > 0
