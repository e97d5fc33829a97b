"""A service with others hosted in its process: `python -m deploy.beside gateway nameserver`.

`reput serve` runs the name server this way: a process of its own would take memory, and time at each start. All take their
settings from the environment of the process, except for the files that tell the address and the readiness of the first one.
"""

if __name__ == "__main__":
    import ssl  # noqa: F401  # before asyncio, for the console's web server: see light_imports

    import services.light_imports  # noqa: F401  # before the others

# isort: split

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.modules import load_service
from services.serving.hosted import HostedService
from services.serving.process import main
from services.serving.server import Service, ServiceServer
from services.settings.service_settings import Origins

OWN_NAMES = ("REPUT_ADDRESS_FILE", "REPUT_READY_FILE")
END_SECONDS_MAX = 5.0


def service_with(name: str, beside: Sequence[str], environ: Mapping[str, str]) -> Service[Any]:
    """The service, which begins and ends with the others beside it; the end of one of them ends it.

    Args:
        name: of the service.
        beside: names of the others.
        environ: the environment that their settings come from.
    """
    service = load_service(name)
    shared = {variable: value for variable, value in environ.items() if variable not in OWN_NAMES}

    def serve(server: ServiceServer, settings: Any, origins: Origins) -> None:
        for each in beside:
            _host(each, shared, server)
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


if __name__ == "__main__":
    main(service_with(sys.argv[1], sys.argv[2:], os.environ), [])
