"""Say that a port is taken before minutes are spent on setting up; with nothing but the standard library.

    python3 tools/free_ports.py GATEWAY_PORT=8081 CONSOLE_PORT=9000

Each argument is the variable of `make run` that names the port. 0 is any free port, and `off` none.
"""

import socket
import sys

EXIT_USAGE = 2
PORT_MAX = 65_535


def taken(port: int) -> str:
    """Why the port cannot be bound on loopback; empty when it can."""
    with socket.socket() as probe:
        # Connections of an earlier run that still close are no reason; a program that listens is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return str(error)
    return ""


def main(arguments: list[str]) -> int:
    """Check each port; the exit code."""
    for argument in arguments:
        variable, _, port = argument.partition("=")
        if port == "off" and variable != "GATEWAY_PORT":
            continue
        if not port.isdecimal() or len(port) > 5 or int(port) > PORT_MAX:
            print(f"free_ports: {variable}={port}: a port is a number up to {PORT_MAX}", file=sys.stderr)
            return EXIT_USAGE
        problem = taken(int(port))
        if problem:
            print(f"free_ports: port {port} is taken ({problem}): make run {variable}=n takes another", file=sys.stderr)
            return EXIT_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
