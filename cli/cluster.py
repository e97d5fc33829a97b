"""`reput cluster`: the replicas of one shard, a coordinator and a gateway on this machine, in one command."""

import pathlib
import shutil
from typing import Annotated

import typer

from cli.exits import CliError, Exit, usage_error

REPLICA_COUNT_MAX = 9


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
        int, typer.Option("--gateway-port", min=0, max=65535, help="Default 8081; 0 takes a free port.")
    ] = 8081,
) -> int:
    """Start etcd, the replicas of one shard and a gateway on loopback, for trying out and for tests; stop them together."""
    from deploy.cluster.layout import Layout
    from deploy.cluster.local_cluster import LocalCluster

    etcd = shutil.which("etcd")
    if etcd is None:
        raise CliError(
            Exit.USAGE,
            "ETCD_NOT_FOUND",
            "there is no program `etcd` in PATH: it keeps which replica leads",
            "Install it: `apt-get install etcd-server` on Debian; https://etcd.io/docs/latest/install/ has other ways.",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        layout = Layout.of(directory.absolute(), replicas)
    except (OSError, ValueError, KeyError) as error:
        usage_error(f"{directory} cannot be used: {error}", "Give an empty directory, or one of `reput cluster`.")
    return LocalCluster(layout, etcd, port_file, gateway_port).run()
