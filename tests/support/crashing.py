"""What a kill would have left of a store that is open."""

import shutil
from contextlib import suppress
from pathlib import Path


def copy_open_store(root: Path, target: Path) -> None:
    """A copy of its files as they are now."""

    def copy(source: str, goal: str) -> None:
        with suppress(FileNotFoundError):  # a state's new file, which has got the old one's name meanwhile
            shutil.copy2(source, goal)

    shutil.copytree(root, target, copy_function=copy)
