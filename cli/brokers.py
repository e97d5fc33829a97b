"""A broker of RocketMQ that a command asks, with the credentials that it wants (docs/security.md)."""

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import usage_error

if TYPE_CHECKING:
    from services.rocketmq.remoting import Broker

AccessKey = Annotated[
    str,
    typer.Option("--access-key", metavar="KEY", help="Sign the requests to the broker: an access key of its users."),
]
SecretFile = Annotated[
    pathlib.Path | None, typer.Option("--secret-file", metavar="FILE", help="File of the secret of --access-key.")
]


def open_broker(address: str, access_key: str = "", secret_file: pathlib.Path | None = None) -> "Broker":
    """A broker that is asked with signed requests, if there is an access key.

    Raises:
        CliError: one of key and secret is missing, or the secret cannot be read.
        StoreError: the address is none.
    """
    from services.rocketmq.address import parse_address
    from services.rocketmq.remoting import Broker
    from services.rocketmq.signature import sign

    parsed = parse_address(address)
    if not access_key and secret_file is None:
        return Broker(parsed)
    if not access_key or secret_file is None:
        usage_error("give --access-key and --secret-file together: both are needed to sign")
    secret = secret_in(secret_file).encode()
    return Broker(parsed, lambda command: sign(command, access_key, secret))


def secret_in(path: pathlib.Path) -> str:
    """The secret that a file has; CliError."""
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        usage_error(f"the secret cannot be read from {path}: {error}")
