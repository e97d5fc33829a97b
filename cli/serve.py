"""`reput serve`: all four services on one machine, on one store root."""

import pathlib
from typing import Annotated

import typer

from cli.exits import usage_error

StoreDir = Annotated[
    pathlib.Path,
    typer.Option(
        "--store", envvar="REPUT_STORE", help="The store root, also one that RocketMQ wrote.", file_okay=False
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Write nothing under the store root; appends are refused.")]
GatewayPort = Annotated[
    int | None, typer.Option("--gateway-port", min=0, max=65535, help="Default 8081; 0 takes a free port.")
]
ConsolePort = Annotated[
    int | None, typer.Option("--console-port", min=0, max=65535, help="Default 8080; 0 takes a free port.")
]
PortFile = Annotated[
    pathlib.Path | None,
    typer.Option("--port-file", help="File for the addresses (JSON), written when all services are up."),
]


def serve(
    *,
    store: StoreDir,
    read_only: ReadOnly = False,
    gateway_port: GatewayPort = None,
    console_port: ConsolePort = None,
    port_file: PortFile = None,
) -> int:
    """Start the four services on one store root, and stop them together."""
    from deploy.local import LocalStack
    from store.errors import InvalidSettingError

    check_store(store, read_only)
    try:
        stack = LocalStack(
            store,
            read_only=read_only,
            gateway_port=gateway_port,
            console_port=console_port,
            port_file=port_file,
        )
        return stack.run()
    except InvalidSettingError as error:
        usage_error(error.message, "`reput config` shows every setting and the origin of its value.")


def check_store(store: pathlib.Path, read_only: bool) -> None:
    """Refuse a store root that cannot be served, before any service starts."""
    if read_only and not store.is_dir():
        usage_error(f"{store} is no directory", "With --read-only the store must exist.")
    if store.exists() and not store.is_dir():
        usage_error(f"{store} is no directory")
