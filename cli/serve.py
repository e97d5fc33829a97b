"""`reput serve`: all six services on one machine, on one store root."""

import os
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import usage_error

if TYPE_CHECKING:
    from deploy.remoting_ports import Port

PORT_MAX = 65_535

StoreDir = Annotated[
    pathlib.Path,
    typer.Option(
        "--store", envvar="REPUT_STORE", help="The store root, also one that RocketMQ wrote.", file_okay=False
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Write nothing under the store root; appends are refused.")]
Mirror = Annotated[
    str | None,
    typer.Option(
        "--mirror",
        metavar="rocketmq://HOST:HA_PORT",
        help="Copy the log of a RocketMQ broker, as its slave; appends are refused.",
    ),
]
MirrorBroker = Annotated[
    str | None,
    typer.Option(
        "--mirror-broker",
        metavar="HOST:PORT",
        help="The same broker's own port: asked for topics, groups and positions.",
    ),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        envvar="REPUT_FOLLOW",
        help="Follow the log of a broker that runs on the store; write nothing there.",
    ),
]
Derived = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--derived", envvar="REPUT_DERIVED", help="With --follow: directory for queues and index.", file_okay=False
    ),
]
GatewayPort = Annotated[
    int | None, typer.Option("--gateway-port", min=0, max=65535, help="Default 8081; 0 takes a free port.")
]
ConsolePort = Annotated[
    str | None,
    typer.Option("--console-port", metavar="PORT", help="Default 8080; 0 takes a free port; off: no console."),
]
NameServerPort = Annotated[
    str | None,
    typer.Option(
        "--nameserver-port",
        metavar="PORT",
        help="RocketMQ's name server, for its remoting clients; default 9876; 0 takes a free port; off: none.",
    ),
]
RemotingPort = Annotated[
    str | None,
    typer.Option(
        "--remoting-port",
        metavar="PORT",
        help="Where the name server sends those clients; default 10911; 0 takes a free port; off: nowhere.",
    ),
]
PortFile = Annotated[
    pathlib.Path | None,
    typer.Option("--port-file", help="File for the addresses (JSON), written when all services are up."),
]


def serve(
    *,
    store: StoreDir,
    read_only: ReadOnly = False,
    mirror: Mirror = None,
    mirror_broker: MirrorBroker = None,
    follow: Follow = False,
    derived: Derived = None,
    gateway_port: GatewayPort = None,
    console_port: ConsolePort = None,
    nameserver_port: NameServerPort = None,
    remoting_port: RemotingPort = None,
    port_file: PortFile = None,
    replica: Annotated[
        str, typer.Option("--replica", metavar="NAME", help="Serve a replica of a shard, without a gateway.")
    ] = "",
    coordinator: Annotated[
        str, typer.Option("--coordinator", metavar="URL", help="Of the replica: etcd://HOST:PORT/PREFIX.")
    ] = "",
    single_process: Annotated[
        bool,
        typer.Option(
            "--single-process", help="Run all services in this process: half of the memory; not for a replica."
        ),
    ] = False,
    followers_apart: Annotated[
        bool,
        typer.Option(
            "--followers-apart",
            help="Run queues, index, consumer and schedule service in a process each, not in one.",
        ),
    ] = False,
) -> int:
    """Start the services on one store root, and stop them together; exit code 4: start this replica again."""
    from cli.serving import become_supervisor

    check_store(store, read_only or follow)
    check_followed(store, derived, read_only=read_only, follow=follow)
    check_mirrored(mirror, mirror_broker, is_read_only=read_only or follow)
    if bool(replica) != bool(coordinator):
        usage_error("--replica and --coordinator are given together or not at all")
    if replica and single_process:
        usage_error("--replica and --single-process are both set", "A replica's services are killed alone.")
    if followers_apart and single_process:
        usage_error("--followers-apart and --single-process are both set", "Give one of the two.")
    console = port_of("--console-port", console_port)
    nameserver = port_of("--nameserver-port", nameserver_port)
    remoting = port_of("--remoting-port", remoting_port)
    is_asked = any(isinstance(port, int) for port in (gateway_port, console, nameserver, remoting))
    if replica and (read_only or follow or mirror or is_asked):
        usage_error(
            "a replica has no gateway and is not read-only", "Run a gateway beside the replicas: docs/replicas.md."
        )
    if (follow or mirror) and (isinstance(nameserver, int) or isinstance(remoting, int)):
        usage_error(
            "--nameserver-port and --remoting-port are not for --follow and --mirror",
            "Clients reach the broker that has the log.",
        )
    become_supervisor(
        store,
        read_only=read_only,
        mirror=mirror,
        mirror_broker=mirror_broker,
        derived=derived,
        gateway_port=gateway_port,
        console_port=console,
        nameserver_port=nameserver,
        remoting_port=remoting,
        port_file=port_file,
        replica=(replica, coordinator) if replica else None,
        single_process=single_process or None,
        followers_apart=followers_apart or None,
    )


def port_of(flag: str, text: str | None) -> "Port":
    """The port that a flag names, `off`, or None where it is not given; a usage error for anything else."""
    if text is None or text == "off":
        return text  # type: ignore[return-value]  # mypy does not narrow text to a literal
    if not (text.isascii() and text.isdecimal() and int(text) <= PORT_MAX):
        usage_error(f"{flag} is {text!r}", f"It takes a port, 0 to {PORT_MAX}, or `off`.")
    return int(text)


def check_store(store: pathlib.Path, read_only: bool) -> None:
    """Refuse a store root that cannot be served, before any service starts."""
    if read_only and not store.is_dir():
        usage_error(f"{store} is no directory", "With --read-only and --follow the store must exist.")
    if store.exists() and not store.is_dir():
        usage_error(f"{store} is no directory")


def check_followed(store: pathlib.Path, derived: pathlib.Path | None, *, read_only: bool, follow: bool) -> None:
    """Refuse flags that contradict one another, before any service starts."""
    if not follow:
        if derived is not None:
            usage_error("--derived is set without --follow", "Queues and index of a store lie in its root.")
        return
    if read_only:
        usage_error("--follow and --read-only are both set", "--follow writes nothing under the store root already.")
    if derived is None:
        usage_error("--follow is set without --derived", "Name the directory for queues and index.")
    root, other = store.resolve(), derived.resolve()
    if root == other or root in other.parents or other in root.parents:
        usage_error(f"--derived is {other}, --store is {root}", "Neither may lie in the other.")
    for directory in (store, store / "commitlog", store / "config"):
        if directory.exists() and not os.access(directory, os.R_OK | os.X_OK):
            usage_error(
                f"{directory} cannot be read", "Run Reput as the broker's user, or let it read the broker's files."
            )


def check_mirrored(mirror: str | None, mirror_broker: str | None, *, is_read_only: bool) -> None:
    """Refuse flags of a mirror that name no broker or contradict others, before any service starts."""
    from services.rocketmq.address import parse_address, parse_mirror
    from store.errors import InvalidArgumentError

    try:
        if mirror:
            parse_mirror(mirror)
        if mirror_broker:
            parse_address(mirror_broker)
    except InvalidArgumentError as error:
        usage_error(error.message, "The HA port of a broker is its haListenPort, by default its listenPort + 1.")
    if mirror and is_read_only:
        usage_error("--mirror is set with --read-only or --follow", "A mirror writes to its store.")
