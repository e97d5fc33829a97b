"""`reput pipeline ship-cold`: sealed log files into an object store, where gateways read single messages.

Exit codes: 0 done, 1 a log file could not be shipped or a record was damaged before, 2 usage, not a store or another log's
place, 4 the disk or the object store failed.
"""

import pathlib
from typing import Annotated

import typer

from cli.exits import CliError, Exit, store_failure
from cli.pipeline.spark_job import BrokerName, DryRun

EXIT_FOUND = 1

Store = Annotated[pathlib.Path, typer.Option("--store", help="The store root; may be served.", show_default=False)]
Out = Annotated[
    str, typer.Option("--out", help="The cold tier: s3://BUCKET/PREFIX; shards may share it.", show_default=False)
]


def ship_cold(*, store: Store, out: Out, broker_name: BrokerName = "broker-a", dry_run: DryRun = False) -> int:
    """Ship the full files of the log to an object store, each once. Nothing is removed; a further run goes on."""
    from pipeline.cold import ship_cold as job
    from pipeline.progress import progress_bar
    from store.errors import StoreError

    try:
        with progress_bar() as progress:
            report = job.run(store, out, broker_name=broker_name, dry_run=dry_run, progress=progress)
    except StoreError as error:
        raise store_failure(error) from error
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    print(report.to_json())
    return EXIT_FOUND if report.findings else Exit.FOUND
