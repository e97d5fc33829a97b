"""`reput pipeline analytics`: statistics of a log, as tables and as a page.

Exit codes: 0 done, 2 usage, not a store, or one whose log or index is damaged, 4 the disk failed.
"""

import pathlib
from typing import Annotated

import typer

from cli.exits import CliError, Exit, usage_error

Store = Annotated[
    str, typer.Option("--store", help="The store root, or its URI; nothing is written there.", show_default=False)
]
Out = Annotated[
    str,
    typer.Option(
        "--out",
        help="Directory for tables and page, made if it does not exist; or its URI: s3://BUCKET/PREFIX.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be read and written.")]
Master = Annotated[str, typer.Option("--master", help="Spark's master.")]


def analytics(*, store: Store, out: Out, dry_run: DryRun = False, master: Master = "local[*]") -> int:
    """Rates, sizes, delays, keys, gaps, duplicates and index load, as Parquet, CSV and an HTML page."""
    import pyarrow as pa
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    import pipeline
    from cli.pipeline.on_spark import failure_in_spark
    from pipeline.analytics import analytics as job
    from pipeline.job import progress_bar
    from services.object_uri import is_uri
    from store.errors import ServiceUnavailableError, StoreError

    if not is_uri(store) and not (pathlib.Path(store) / "commitlog").is_dir():
        usage_error(f"{store} has no commitlog/", "Name the root of a store: the directory with commitlog/ in it.")
    if not is_uri(out) and pathlib.Path(out).is_file():
        usage_error(f"{out} is a file", "Name a directory for --out.")
    try:
        report = job.plan(store, out)  # refuses wrong arguments before Spark starts, which takes seconds
        if not dry_run:
            spark = pipeline.session(master=master)
            with progress_bar() as progress:
                report = job.run(spark, store, out, progress=progress)
    except ServiceUnavailableError as error:
        raise CliError(Exit.UNAVAILABLE, error.reason(), error.message) from error
    except StoreError as error:
        raise CliError(Exit.USAGE, error.reason(), error.message) from error
    except (PySparkException, Py4JJavaError) as error:
        raise failure_in_spark(error) from error
    except (OSError, pa.ArrowException) as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    print(report.to_json())
    return Exit.FOUND
