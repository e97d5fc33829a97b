"""Damaged stores and what an audit says of them."""

from pathlib import Path

from store.audit.findings import Finding
from store.audit.store_audit import StoreAudit, audit_store
from store.files.file_system import RealFileSystem
from tests.support.fixture_stores import walk_frames


def audit(root: Path) -> StoreAudit:
    """The audit of a root."""
    return audit_store(RealFileSystem(), root)


def find(root: Path, code: str) -> Finding:
    """The first finding with that code; there must be one."""
    found = audit(root).findings
    matching = [finding for finding in found.kept if finding.code == code]
    assert matching, f"{code} is not among {[(finding.code, finding.file, finding.byte) for finding in found.kept]}"
    return matching[0]


def bad_codes(root: Path) -> set[str]:
    """Codes of all errors and warnings."""
    return {finding.code for finding in audit(root).findings.kept if finding.severity != "info"}


def patch(path: Path, at: int, data: bytes) -> None:
    """Overwrites bytes of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Turns one bit of a file over."""
    patch(path, at, bytes([path.read_bytes()[at] ^ (1 << bit)]))


def records(root: Path) -> list[tuple[Path, int, int, bytes]]:
    """Every record: its file, the byte in it, its commit-log offset, its bytes."""
    paths = sorted((root / "commitlog").iterdir())
    found = []
    for offset, frame in walk_frames(root):
        path = max(path for path in paths if int(path.name) <= offset)
        found.append((path, offset - int(path.name), offset, frame))
    return found
