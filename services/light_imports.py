"""Keeps unneeded modules and lines out of the process of a service: its `__main__` imports this before anything else.

It is for a process that is a service, and for a command that forks services (deploy/hosts.py). A program of somebody else that
hosts them (deploy/background.py) keeps its modules and environment: it may want TLS from asyncio, or colours from rich. In a
command that forks, what was loaded before stays, and rich can be loaded later; the search for garbage goes on after each fork.

- structlog loads rich, if installed, to colour tracebacks on a terminal: about 50 ms and 4 MiB in each service. It loads
  greenlet, if installed, for an interface that we do not use: 1 MiB.
- structlog loads asyncio, and asyncio loads ssl: 2 MiB. Only the console serves with asyncio: the gateway imports ssl before.
- gRPC writes a line of its own, at level INFO, for each TLS handshake that fails: any caller could fill the disk of the
  log with them. It reads GRPC_VERBOSITY when it is loaded; INFO shows them.
- Python looks for garbage again and again while hundreds of modules come, and finds none: a twelfth of the time of a
  start. It does not look before `services/serving/process.py` begins, and never at what is there then.
- numpy starts a thread for each further processor when it is loaded, for products of matrices, which nothing here computes. The
  threads spin for a while: 60 ms of CPU.
- pydantic searches all installed packages for plugins, and loads importlib.metadata for it: 2 MiB.
"""

import gc
import os
import sys
import types
from typing import Any

gc.disable()
ENVIRONMENT = {"PYDANTIC_DISABLE_PLUGINS": "__all__", "GRPC_VERBOSITY": "ERROR", "OPENBLAS_NUM_THREADS": "1"}
for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)
_NO_PLUGINS: Any = types.ModuleType("importlib.metadata")
_NO_PLUGINS.entry_points = tuple

if "structlog" not in sys.modules and "pydantic" not in sys.modules:
    # None: "there is no such module", as the import system has it.
    instead = {"rich": None, "greenlet": None, "ssl": None, "importlib.metadata": _NO_PLUGINS}
    instead = {name: module for name, module in instead.items() if name not in sys.modules}
    sys.modules.update(instead)
    try:
        import structlog  # noqa: F401
        from pydantic.plugin import _loader  # noqa: F401
    finally:
        for name in instead:
            del sys.modules[name]
