"""`reput pipeline table`: a topic as an Apache Iceberg table, of its messages or of what is archived of them.

Exit codes: 0 done, 1 no such topic, no message has the key that is to be deleted, or a file of the archive could not be added,
2 usage, or a table that does not take these rows, 3 retention has removed messages that the table lacks, 4 the gateway, the
catalog or the disk failed.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Annotated

import typer

from cli import options
from cli.exits import CliError, Exit, store_failure, usage_error
from cli.pipeline.on_spark import BrokerName

TopicName = Annotated[str, typer.Option("--topic", "-t", help="The topic.", show_default=False)]
TableName = Annotated[str, typer.Option("--table", help="NAMESPACE.TABLE, made if there is none.", show_default=False)]
CatalogName = Annotated[str, typer.Option("--catalog", help="The catalog's name in pyiceberg's settings.")]
CatalogProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-property",
        metavar="NAME=VALUE",
        help="A setting of the catalog, such as uri=sqlite:////lake/catalog.db; repeatable. Secrets belong into "
        ".pyiceberg.yaml or PYICEBERG_CATALOG__...: process lists show arguments.",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help='An option of format("rocketmq"), such as bodyFormat=json; repeatable.',
    ),
]
UntilCaughtUp = Annotated[bool, typer.Option("--until-caught-up", help="End when the topic, as it is now, is in it.")]
CommitSeconds = Annotated[
    float, typer.Option("--commit-seconds", min=0.1, help="Time between two commits, unless there is much to add.")
]
DeleteKey = Annotated[
    str,
    typer.Option("--delete-key", metavar="KEY", help="Add nothing: delete the messages with this key or unique key."),
]
ArchivedIn = Annotated[
    str,
    typer.Option(
        "--archive", help="Add this archive's files instead, as they are; asks no gateway.", show_default=False
    ),
]


def table(
    *,
    table: TableName,
    topic: TopicName = "",
    catalog: CatalogName = "default",
    catalog_property: CatalogProperties = None,
    option: Options = None,
    until_caught_up: UntilCaughtUp = False,
    commit_seconds: CommitSeconds = 30.0,
    delete_key: DeleteKey = "",
    archive: ArchivedIn = "",
    broker_name: BrokerName = "broker-a",
    address: options.Address = options.DEFAULT_ADDRESS,
) -> int:
    """Keep an Apache Iceberg table of a topic up to date, each message in it exactly once. Needs the extra `table`."""
    import pyiceberg  # noqa: F401 - the first word of an installation without it

    from cli.client import failure_of
    from pipeline.job import progress_bar
    from pipeline.rocketmq.errors import DataLostError, OffsetError
    from pipeline.scan.options import OptionError
    from pipeline.scan.schema import ColumnError
    from pipeline.table import table as job
    from pipeline.table.iceberg import opened_catalog
    from reput_client import ReputClientError, TopicNotFoundError
    from store.errors import StoreError

    if not topic and not delete_key:
        usage_error("--topic is missing", "Name the topic, or a key to delete by --delete-key.")
    settings, given = _pairs("--catalog-property", catalog_property), _pairs("--option", option)
    stopping = threading.Event()
    try:
        opened = opened_catalog(catalog, settings)
        if delete_key:
            report = job.delete_key(opened, table, delete_key)
            print(report.to_json())
            return Exit.FOUND if report.counts["deleted_count"] else Exit.NOTHING_FOUND
        if archive:
            from pipeline.table import archived

            report = archived.run(archive, topic, opened, table, broker_name=broker_name)
            print(report.to_json())
            return Exit.NOTHING_FOUND if report.findings else Exit.FOUND
        with _stopped_by_signals(stopping), progress_bar() as progress:
            report = job.run(
                address,
                topic,
                opened,
                table,
                _secured(given),
                until_caught_up=until_caught_up,
                commit_seconds=commit_seconds,
                stop_event=stopping,
                progress=progress,
            )
    except (OptionError, ColumnError, OffsetError) as error:
        usage_error(str(error))
    except DataLostError as error:
        raise CliError(
            Exit.PARTIAL, "DATA_LOST", str(error), "Go on without them with --option failOnDataLoss=false."
        ) from error
    except TopicNotFoundError as error:
        raise CliError(
            Exit.NOTHING_FOUND, "TOPIC_NOT_FOUND", error.message, "`reput topics` lists the topics."
        ) from error
    except ReputClientError as error:
        raise failure_of(error, address) from error
    except StoreError as error:
        raise store_failure(error) from error
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    print(report.to_json())
    return Exit.FOUND


@contextlib.contextmanager
def _stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT end the run behind its micro-batch."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda number, frame: stopping.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _pairs(flag: str, given: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            usage_error(f"{flag} {text!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def _secured(given: dict[str, str]) -> dict[str, str]:
    """The options with the flags for TLS and credentials of this command, as the format takes them."""
    from cli.security_flags import given_security

    security = given_security()
    if security is None:
        return given
    if security.api_key and security.api_key != os.environ.get("REPUT_API_KEY"):  # the format reads that one by itself
        usage_error("--api-key is not passed on to a job", "Put the key into a file and give --token-file.")
    flags = {
        "tlsCaFile": security.ca_file,
        "tlsCertificateFile": security.certificate_file,
        "tlsKeyFile": security.key_file,
        "tokenFile": security.token_file,
    }
    named = {name: str(value) for name, value in flags.items() if value}
    return named | ({"tls": "true"} if security.tls and not named.get("tlsCaFile") else {}) | given
