"""`reput cluster`: the replicas of one shard, a coordinator and a gateway on this machine, in one command."""

import contextlib
import pathlib
import shutil
from typing import Annotated

import typer

from cli.exits import CliError, Exit, usage_error
from cli.serve import port_of

REPLICA_COUNT_MAX = 9
GATEWAY_PORT_DEFAULT = 8081
STOPPING_SECONDS_MAX = 10.0  # for a cluster in the same directory that is being stopped


def cluster(
    *,
    directory: Annotated[
        pathlib.Path, typer.Option("--dir", help="Where stores and logs are; made if missing.", file_okay=False)
    ],
    port_file: Annotated[
        pathlib.Path, typer.Option("--port-file", help="File for addresses and roles (JSON), kept current.")
    ],
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, max=REPLICA_COUNT_MAX, help="Number of replicas of the shard.")
    ] = 3,
    gateway_port: Annotated[
        int | None,
        typer.Option(
            "--gateway-port",
            min=0,
            max=65535,
            help="Default 8081 where it is free; 0 takes a port of the directory's own.",
        ),
    ] = None,
    nameserver_port: Annotated[
        str | None,
        typer.Option(
            "--nameserver-port",
            metavar="PORT",
            help="RocketMQ's name server; default 9876 where it is free; 0 takes a port of the directory's own; off: none.",
        ),
    ] = None,
    remoting_port: Annotated[
        str | None,
        typer.Option(
            "--remoting-port",
            metavar="PORT",
            help="Where it sends its clients; default 10911 where it is free; 0: likewise; off: nowhere.",
        ),
    ] = None,
) -> int:
    """Start etcd, the replicas of one shard and a gateway on loopback, for trying out and for tests; stop them together."""
    from deploy.cluster.layout import Layout
    from deploy.cluster.local_cluster import LocalCluster
    from deploy.ports import claim_port
    from store.errors import InvalidSettingError, StoreLockedError
    from store.files.locks import OwnerLock

    nameserver = port_of("--nameserver-port", nameserver_port)
    remoting = port_of("--remoting-port", remoting_port)
    etcd = shutil.which("etcd")
    if etcd is None:
        raise CliError(
            Exit.USAGE,
            "ETCD_NOT_FOUND",
            "there is no program `etcd` in PATH: it keeps which replica leads",
            "Install it: `apt-get install etcd-server` on Debian; https://etcd.io/docs/latest/install/ has other ways.",
        )
    with contextlib.ExitStack() as held:
        lock = OwnerLock(directory.absolute() / "lock", wait_seconds=STOPPING_SECONDS_MAX)
        try:
            lock.acquire()
            held.callback(lock.release)
            layout = Layout.of(directory.absolute(), replicas)
        except StoreLockedError:
            usage_error(f"a `reput cluster` runs in {directory}", "Stop it first, or give another directory.")
        except (OSError, ValueError, KeyError) as error:
            usage_error(f"{directory} cannot be used: {error}", "Give an empty directory, or one of `reput cluster`.")
        if gateway_port is None:
            claim = held.enter_context(claim_port(GATEWAY_PORT_DEFAULT) or contextlib.nullcontext())
            gateway_port = 0 if claim is None else GATEWAY_PORT_DEFAULT
        try:
            running = LocalCluster(
                layout, etcd, port_file, gateway_port, nameserver_port=nameserver, remoting_port=remoting
            )
        except InvalidSettingError as error:
            usage_error(error.message, "`reput config` shows every setting and the origin of its value.")
        return running.run()
