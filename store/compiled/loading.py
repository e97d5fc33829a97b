"""Loads kernels: an import never loads one.

A kernel was compiled before the process started (`built.py`), and takes a millisecond to load. So it is loaded when it is first
asked for. Where it was not compiled, plain code does the work, which is said once.

    REPUT_KERNELS=off      no kernel is ever loaded
    REPUT_KERNELS=auto     as without the variable; `eager` likewise. They are accepted because they once had a meaning
"""

import functools
import logging
import os
import threading
from types import ModuleType

from store.compiled import built

SETTING = "REPUT_KERNELS"
OFF, AUTO, EAGER = "off", "auto", "eager"
NO_LONGER_A_CHOICE = (
    f"{SETTING}={{mode}} has no meaning any more: kernels are compiled at setup and loaded when they are first needed; "
    f"leave it out, or set `{OFF}` for plain Python"
)

_log = logging.getLogger("reput.kernels")
_mode = os.environ.get(SETTING, AUTO).lower()
_kernels: dict[str, ModuleType | None] = {}  # None: it cannot be loaded
_lock = threading.Lock()  # held while one kernel is loaded
_is_missing_said = False  # whether it was said that a kernel is not compiled


def load(name: str) -> ModuleType | None:
    """The compiled kernel; None when it is not compiled, or kernels are off. Costs one lookup once it is loaded.

    Args:
        name: the module, such as "store.derive.dispatch_kernel".
    """
    if _mode == OFF:
        return None
    return _kernels[name] if name in _kernels else _load(name)


def switch(mode: str) -> str:
    """Sets OFF or AUTO for the whole process, as the environment does at its start; returns the mode before."""
    global _mode
    before, _mode = _mode, mode
    return before


@functools.cache
def plain(name: str) -> ModuleType:
    """A kernel as plain Python, for a caller that has no other plain code."""
    return built.load_source(name)


def _load(name: str) -> ModuleType | None:
    global _is_missing_said  # noqa: PLW0603 - said once in a process
    with _lock:
        if name not in _kernels:
            try:
                _kernels[name] = built.load(name)
            except (ImportError, OSError) as error:
                _log.warning("The kernel %s cannot be loaded, plain code serves: %s", name, error)
                _kernels[name] = None
            else:
                if _kernels[name] is None and not _is_missing_said:
                    _is_missing_said = True
                    _log.warning("The kernel %s is not compiled, plain code serves: %s", name, built.HOW_TO_BUILD)
        return _kernels[name]
