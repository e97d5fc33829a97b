"""`reput pipeline ship`: the project as one zip for `spark-submit --py-files`."""

import pathlib
import sys
from typing import Annotated

import typer

from cli.exits import Exit

Out = Annotated[pathlib.Path, typer.Option("--out", help="The zip to write; an existing one is replaced.")]


def ship(*, out: Out = pathlib.Path("reput.zip")) -> int:
    """Write the project as one zip, for executors: spark-submit --py-files reput.zip JOB.py."""
    from pipeline.ship import write_zip

    file_count = write_zip(out.absolute())
    print(out.absolute())
    print(f"{file_count} files", file=sys.stderr)
    return Exit.FOUND
