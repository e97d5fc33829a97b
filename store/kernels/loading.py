"""When kernels are loaded: never by an import, never while somebody waits who did not ask for it.

Importing numba takes a second and 65 MB, so an idle service does without. Whoever has work for a kernel asks for it
(`load_in_background`, as often as it likes) and takes it once it is `ready`; until then, and where kernels are switched
off or cannot be compiled, the plain twin serves.

    REPUT_KERNELS=off      no kernel is ever loaded
    REPUT_KERNELS=eager    each is loaded, and waited for, when it is first asked for: for tests

A kernel is a module `store.kernels.<name>_kernel` with a function `touch()` that calls each of its compiled functions
once with a small input, so that it is compiled, or read from the cache (`compiling.py`), before anybody waits for it.
"""

import atexit
import logging
import os
import threading
from importlib import import_module
from types import ModuleType

SETTING = "REPUT_KERNELS"
OFF, AUTO, EAGER = "off", "auto", "eager"

_log = logging.getLogger("reput.kernels")
_mode = os.environ.get(SETTING, AUTO).lower()
_kernels: dict[str, ModuleType | None] = {}  # None: it cannot be had
_wanted: list[str] = []
_lock = threading.Lock()  # held to look at or change the three names around it
_changed = threading.Condition(_lock)  # one that was wanted is there, or cannot be had
_loading_lock = threading.Lock()  # held while one kernel is loaded
_thread: threading.Thread | None = None


def ready(name: str) -> ModuleType | None:
    """The kernel if it is loaded, otherwise None; costs a look into a dictionary.

    Args:
        name: the module's name without `store.kernels.`, such as "dispatch_kernel".
    """
    if _mode == EAGER:
        return load(name)
    return _kernels.get(name) if _mode != OFF else None


def switch(mode: str) -> str:
    """Sets OFF, AUTO or EAGER for the whole process, as the environment does at its start; returns what was set."""
    global _mode
    before, _mode = _mode, mode
    return before


def load_in_background(*names: str) -> None:
    """Has these kernels loaded by a thread of its own; does nothing for those that are loaded, failed or under way."""
    global _thread  # noqa: PLW0603 - one thread for all
    if _mode == OFF or all(name in _kernels for name in names):
        return
    with _lock:
        _wanted.extend(name for name in names if name not in _kernels and name not in _wanted)
        if _thread is None and _wanted:
            _thread = threading.Thread(target=_load_wanted, name="kernels", daemon=True)
            _thread.start()
            atexit.register(_finish, _thread)


def wait(name: str, seconds_max: float) -> None:
    """Returns once the kernel, which was asked for, is loaded or failed, or the time is up."""
    with _changed:
        _changed.wait_for(lambda: name in _kernels or name not in _wanted, seconds_max)


def load(name: str) -> ModuleType | None:
    """The kernel, loaded at once if need be (seconds, without a cache); None when it is off or cannot be had."""
    if _mode == OFF:
        return None
    with _loading_lock:
        if name not in _kernels:
            _kernels[name] = _import(name)
        return _kernels[name]


def _finish(thread: threading.Thread) -> None:
    """At the process's end: the kernel that is being loaded is the last one; the compiler must not be cut off inside."""
    with _lock:
        del _wanted[1:]
    thread.join()


def _load_wanted() -> None:
    global _thread  # noqa: PLW0603
    while True:
        with _lock:
            if not _wanted:
                _thread = None
                return
            name = _wanted[0]
        load(name)
        with _changed:
            _wanted.pop(0)
            _changed.notify_all()


def _import(name: str) -> ModuleType | None:
    try:
        module = import_module(f"store.kernels.{name}")
        module.touch()
    except Exception as error:  # whatever a compiler may say: the plain twin serves
        _log.warning("The kernel %s cannot be compiled, plain code serves: %s: %s", name, type(error).__name__, error)
        return None
    return module
