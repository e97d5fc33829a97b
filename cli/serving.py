"""The process of `reput serve` after its arguments are checked. The command line, whose libraries take 16 MiB, is gone from it.

python -P -m cli.serving "reput serve" JSON
"""

import json
import os
import pathlib
import sys
from typing import Any, NoReturn

from cli.exits import CliError, Exit, show_error


def become_supervisor(store: pathlib.Path, **arguments: Any) -> NoReturn:
    """Replaces this process by the one that starts, watches and stops the services. It keeps the process id.

    Args:
        store: the store root.
        arguments: others of `deploy.local.LocalStack`, a replica as its two fields, and `single_process`; None: left out.
    """
    from deploy.processes import python_path
    from store.files.open_files import open_standard_descriptors

    open_standard_descriptors()
    given = {name: value for name, value in (("store", store), *arguments.items()) if value is not None}
    # The first argument is for people who look for it in a list of processes.
    command = [sys.executable, "-P", "-m", "cli.serving", "reput serve", json.dumps(given, default=str)]
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": python_path(os.environ)})  # noqa: S606


def main() -> int:
    """The exit code of the services."""
    from deploy.local import LocalStack, Replica
    from store.errors import InvalidSettingError

    given = json.loads(sys.argv[2])
    given |= {name: pathlib.Path(given[name]) for name in ("store", "derived", "port_file") if name in given}
    if "replica" in given:
        given["replica"] = Replica(*given["replica"])
    is_single = given.pop("single_process", False)
    try:
        return _run_in_this_process(given) if is_single else LocalStack(**given).run()
    except InvalidSettingError as error:
        hint = "`reput config` shows every setting and the origin of its value."
        show_error(CliError(Exit.USAGE, "INVALID_ARGUMENT", error.message, hint))
        return Exit.USAGE
    except KeyboardInterrupt:
        return 130


def _run_in_this_process(given: dict[str, Any]) -> NoReturn:
    import ssl  # noqa: F401  # before asyncio, for the console's web server: see light_imports

    import services.light_imports  # noqa: F401  # before the others

    # isort: split
    from deploy.hosts import ThisProcess
    from deploy.local import LocalStack
    from services.observing import tracing
    from services.observing.telemetry import SINGLE_PROCESS
    from services.serving.process import leave, own
    from services.settings.service_settings import ServiceSettings, load_settings

    settings, _ = load_settings("gateway", ServiceSettings)  # for what all services share
    own(SINGLE_PROCESS, settings)
    exit_code = LocalStack(**given, host=ThisProcess(takes_signals=True)).run()
    tracing.switch_off()
    leave(exit_code)


if __name__ == "__main__":
    sys.exit(main())
