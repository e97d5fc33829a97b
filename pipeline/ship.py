"""The project as one zip for executors, and how a process runs from it.

Spark puts the zip of `addPyFile` or `--py-files` on the path of each Python worker. Kernels keep their compiled code beside
their sources, which is impossible inside a zip. So the first import of `pipeline` unpacks the zip beside itself, once for
all workers of an executor, and later imports come from that folder.
"""

import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

ZIP_NAME = "reput.zip"
# The packages in the project's root. Those in `protos` are put at the top level of the zip, too.
PACKAGES = (
    "store",
    "services",
    "pipeline",
    "commitlog_svc",
    "consumequeue_svc",
    "index_svc",
    "consumer_svc",
    "schedule_svc",
    "gateway",
    "console",
    "reput_client",
    "cli",
)
PROTO_ROOT = "protos"
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest time of the zip format: the same sources make the same bytes
_UNPACKED = ".unpacked"
_shipped: list["tempfile.TemporaryDirectory[str]"] = []


def project_root() -> Path:
    """The folder that holds this package."""
    return Path(__file__).resolve().parent.parent


def write_zip(target: Path, root: Path | None = None) -> int:
    """Writes the zip, replacing an older one; returns how many files it holds.

    Args:
        target: path of the zip.
        root: the folder with the packages; None: the folder that this process runs from.
    """
    root = root or project_root()
    names: set[str] = set()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, written = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with open(handle, "w+b") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, name in _members(root):
                if name not in names:
                    names.add(name)
                    info = zipfile.ZipInfo(name, _EARLIEST)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    info.external_attr = 0o644 << 16
                    archive.writestr(info, path.read_bytes())
        os.chmod(written, 0o644)
        os.rename(written, target)
    except BaseException:
        Path(written).unlink(missing_ok=True)
        raise
    return len(names)


def ship_to_executors(context: "SparkContext") -> None:
    """Sends the project to the executors, unless this process itself runs from a shipped zip."""
    if zip_of(__file__) is not None or is_unpacked(Path(__file__)):
        return
    directory = tempfile.TemporaryDirectory(prefix="reput-ship-", ignore_cleanup_errors=True)
    # Executors get the file from this process, also those that come later: it stays until the process ends.
    _shipped.append(directory)
    target = Path(directory.name) / ZIP_NAME
    write_zip(target)
    context.addPyFile(str(target))


def live_outside_zip(package_file: str, package_path: list[str]) -> None:
    """If a package was imported from a zip: unpacks the zip, and makes all later imports come from the folder.

    Args:
        package_file: `__file__` of the package.
        package_path: `__path__` of the package; changed in place.
    """
    archive = zip_of(package_file)
    if archive is None:
        return
    folder = _unpack(archive)
    package_path[:] = [str(folder / Path(package_file).relative_to(archive).parent)]
    sys.path.insert(0, str(folder))


def zip_of(module_file: str) -> Path | None:
    """The zip that a module was imported from; None for a module from a folder."""
    for parent in Path(module_file).parents:
        if parent.is_file():
            return parent
    return None


def is_unpacked(module_file: Path) -> bool:
    """Whether a module lies in a folder that `live_outside_zip` unpacked."""
    return any(parent.name.endswith(_UNPACKED) for parent in module_file.parents)


def _unpack(archive: Path) -> Path:
    """The folder with the zip's contents; the first caller makes it, and a rename makes it appear complete."""
    stat = archive.stat()
    folder = archive.with_name(f"{archive.name}-{stat.st_size:x}-{stat.st_mtime_ns:x}{_UNPACKED}")
    if folder.is_dir():
        return folder
    try:
        made = Path(tempfile.mkdtemp(dir=archive.parent, prefix=archive.name))
    except OSError:  # the folder of the zip is read-only
        made = Path(tempfile.mkdtemp(prefix=archive.name))
        folder = made.with_name(made.name + _UNPACKED)
    with zipfile.ZipFile(archive) as file:
        file.extractall(made)
    try:
        made.rename(folder)
    except OSError:  # another worker was first
        if not folder.is_dir():
            raise
        shutil.rmtree(made)
    return folder


def _members(root: Path) -> Iterator[tuple[Path, str]]:
    """Files and their names in the zip, sorted within each package."""
    for package in PACKAGES:
        yield from _files(root / package, root)
    yield from _files(root / PROTO_ROOT, root / PROTO_ROOT)
    if not (root / PROTO_ROOT).is_dir():  # installed: `reput` lies beside the other packages
        yield from _files(root / "reput", root)


def _files(folder: Path, base: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path, str(PurePosixPath(path.relative_to(base)))
