"""The metric of what was moved aside (`store/files/aside.py`), one for each component."""

from collections.abc import Mapping
from pathlib import Path

from services.observing.meters import Meters
from store.errors import StoreError
from store.files.aside import builder_folder, kept_count
from store.files.file_system import FileSystem


def show_moved_aside(meters: Meters, fs: FileSystem, root: Path, component: str) -> None:
    """Shows on the metrics page what a component keeps aside."""
    folder = builder_folder(root, component)

    def read() -> Mapping[tuple[str, ...], float]:
        try:
            return {(component,): float(kept_count(fs, folder))}
        except (OSError, StoreError):  # the page shows the rest, and the status says why
            return {}

    text = "Starts at which something was moved aside that the log does not explain, and that nobody has removed."
    meters.gauge("reput_store_moved_aside", text, read, ("follower",))
