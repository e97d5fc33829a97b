"""A service with others hosted in its process: `python -m deploy.beside gateway nameserver`.

`reput serve` runs the name server this way, because a process of its own would take memory, and time at each start; and the
followers of a log, which then share its Reput stream (services/following/shared_stream.py). All take their settings from the
environment of the process. The files that tell address and readiness are the first one's; where they have its name
(`consumer.ready`), the others have files beside them with theirs (`index.ready`).
"""

if __name__ == "__main__":
    import ssl  # noqa: F401  # before asyncio, for the console's web server: see light_imports

    import services.light_imports  # noqa: F401  # before the others

# isort: split

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from deploy.modules import FOLLOWERS, load_service
from services.observing.telemetry import SINGLE_PROCESS
from services.serving.hosted import HostedService
from services.serving.process import main
from services.serving.server import Service, ServiceServer
from services.settings.service_settings import Origins

OWN_NAMES = ("REPUT_ADDRESS_FILE", "REPUT_READY_FILE")
# A builder may have to finish a flush; deploy/local.py gives all of a process 30 s.
END_SECONDS_MAX = 9.0


def service_with(name: str, beside: Sequence[str], environ: Mapping[str, str]) -> Service[Any]:
    """The service, which begins and ends with the others beside it; the end of one of them ends it.

    Args:
        name: of the service.
        beside: names of the others.
        environ: the environment that their settings come from.
    """
    service = load_service(name)
    own_files = {variable: pathlib.Path(environ[variable]) for variable in OWN_NAMES if environ.get(variable)}
    named_files = {variable: path for variable, path in own_files.items() if path.stem == name}
    shared = {variable: value for variable, value in environ.items() if variable not in OWN_NAMES}

    def serve(server: ServiceServer, settings: Any, origins: Origins) -> None:
        for each in beside:
            files = {variable: str(path.with_stem(each)) for variable, path in named_files.items()}
            _host(each, shared | files, server)
        service.serve(server, settings, origins)

    return Service(service.component, service.settings, serve)


def _host(name: str, environ: Mapping[str, str], server: ServiceServer) -> None:
    def ended() -> None:
        if not server.stopping.is_set():
            server.fail(1, f"the {name} service beside it has ended")

    hosted = HostedService(load_service(name), environ, ended)

    def end() -> None:
        hosted.terminate()
        try:
            hosted.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            hosted.kill()

    server.on_stop(end)


def run(name: str, beside: Sequence[str]) -> NoReturn:
    """The process of a service with others beside it; ends when they have."""
    main(service_with(name, beside, os.environ), [], logs_as=SINGLE_PROCESS if name in FOLLOWERS else "")


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
