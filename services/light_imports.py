"""Keeps unneeded modules out of a service: its `__main__` imports this before anything else.

- structlog loads rich, if installed, to colour tracebacks on a terminal: about 50 ms and 4 MiB in each service.
- pydantic searches all installed packages for plugins.
"""

import os
import sys

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # "there is none", as the import system has it
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
