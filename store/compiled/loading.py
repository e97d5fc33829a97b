"""Loads kernels: an import never loads one, and no request waits for one.

Importing numba takes a second and 65 MB, so an idle service does not import it. A caller with work for a kernel asks for it
(`load_in_background`, any number of times) and uses it once it is `ready`. Until then, and where kernels are switched off or
cannot be compiled, plain code does the work.

    REPUT_KERNELS=off      no kernel is ever loaded
    REPUT_KERNELS=eager    the first request for a kernel loads it and waits for it: for tests

A kernel of numba is a module with a name in `_kernel` and a function `touch()` that calls each of its compiled functions
once with a small input, so that it is compiled, or read from the cache (`compiling.py`), before it is used.

A kernel of Cython (`built.py`) was compiled before the process started. It takes a millisecond to load, so it is ready when it
is first asked for. Where it was not compiled, plain code does the work, which is said once.
"""

import atexit
import functools
import logging
import os
import threading
from importlib import import_module
from types import ModuleType

from store.compiled import built

SETTING = "REPUT_KERNELS"
OFF, AUTO, EAGER = "off", "auto", "eager"

_log = logging.getLogger("reput.kernels")
_mode = os.environ.get(SETTING, AUTO).lower()
_kernels: dict[str, ModuleType | None] = {}  # None: loading failed
_wanted: list[str] = []
_lock = threading.Lock()  # guards _kernels, _wanted and _thread
_changed = threading.Condition(_lock)  # notified when a wanted kernel is loaded or has failed
_loading_lock = threading.Lock()  # held while one kernel of numba is loaded
_built_lock = threading.Lock()  # held while one kernel of Cython is loaded
_is_missing_said = False  # whether it was said that a kernel is not compiled
_thread: threading.Thread | None = None


def ready(name: str) -> ModuleType | None:
    """The kernel if it is loaded, otherwise None; costs one lookup in a dictionary.

    Args:
        name: the module, such as "store.derive.dispatch_kernel".
    """
    if _mode == OFF:
        return None
    if name not in _kernels and (_mode == EAGER or built.is_cython(name)):
        return load(name)
    return _kernels.get(name)


def switch(mode: str) -> str:
    """Sets OFF, AUTO or EAGER for the whole process, as the environment does at its start; returns the mode before."""
    global _mode
    before, _mode = _mode, mode
    return before


def load_in_background(*names: str) -> None:
    """Starts loading these kernels in a thread; does nothing for kernels that are loaded, failed or under way."""
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
    """Waits until a kernel that was asked for is loaded or has failed, at most `seconds_max`."""
    with _changed:
        _changed.wait_for(lambda: name in _kernels or name not in _wanted, seconds_max)


def load(name: str) -> ModuleType | None:
    """The kernel, loaded now if it is not (takes seconds without a cache); None when kernels are off or it cannot be loaded."""
    if _mode == OFF:
        return None
    if built.is_cython(name):
        return _load_built(name)
    with _loading_lock:
        if name not in _kernels:
            _kernels[name] = _import(name)
        return _kernels[name]


@functools.cache
def plain(name: str) -> ModuleType:
    """A kernel of Cython as plain Python, for a caller that has no other plain code."""
    return built.load_source(name)


def _load_built(name: str) -> ModuleType | None:
    global _is_missing_said  # noqa: PLW0603 - said once in a process
    with _built_lock:
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


def _finish(thread: threading.Thread) -> None:
    """At the end of the process: waits for the kernel under way (a compiler must not be interrupted), then loads no more."""
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
        module = import_module(name)
        module.touch()
    except Exception as error:  # a compiler may raise any error; plain code does the work
        _log.warning("The kernel %s cannot be compiled, plain code serves: %s: %s", name, type(error).__name__, error)
        return None
    return module
