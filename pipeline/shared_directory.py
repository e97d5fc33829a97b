"""Says before a job begins that executors do not see a directory of the driver, instead of failing in the middle.

On a cluster, a directory must be shared by all machines, under one path. One task for each core looks at it; executors that
join later are not asked. An object store needs no such check.
"""

import os
import socket
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.rebuild.object_root import ObjectRoot
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK_PREFIX = ".reput-shared-"


def refuse_unshared(spark: "SparkSession | None", place: Path | str | ObjectRoot, field: str) -> None:
    """InvalidArgumentError about `field` if executors do not see the directory that a job reads as the driver sees it.

    Args:
        spark: the session; None, or a local one: there is one machine.
        place: the directory; nothing is asked for a URI.
        field: the argument that named it.
    """
    root = ObjectRoot.place(place, field)
    if isinstance(root, Path) and _is_cluster(spark):
        root = root.absolute()
        _ask(spark, root, partial(_sees_names, str(root), _names(str(root))), field)


def refuse_unshared_output(spark: "SparkSession | None", place: Path | str | ObjectRoot, field: str) -> None:
    """The same for a directory that a job writes; it may not exist yet. An empty file lies beside or in it meanwhile."""
    root = ObjectRoot.place(place, field)
    if not isinstance(root, Path) or not _is_cluster(spark):
        return
    root = root.absolute()
    there = next(parent for parent in (root, *root.parents) if parent.is_dir())
    mark = there / f"{MARK_PREFIX}{uuid.uuid4().hex}"
    mark.touch()
    try:
        _ask(spark, root, partial(_sees_file, str(mark)), field)
    finally:
        with suppress(FileNotFoundError):
            mark.unlink()


def _is_cluster(spark: "SparkSession | None") -> bool:
    return spark is not None and not (spark.sparkContext.master or "local").startswith("local")


def _ask(spark: "SparkSession | None", root: Path, sees: "partial[str]", field: str) -> None:
    assert spark is not None
    context = spark.sparkContext
    count = max(context.defaultParallelism, 2)
    blind = {host for host in context.parallelize(range(count), count).map(sees).collect() if host}
    if blind:
        raise InvalidArgumentError(
            f"{root} is not the same directory on {', '.join(sorted(blind))}: on a cluster, all machines must share it under "
            "this path. Share it, or name a place in an object store, such as s3://BUCKET/PREFIX.",
            field=field,
        )


def _names(root: str) -> Sequence[str]:
    """Names in a directory, and in its commitlog/ if it is a store."""
    with suppress(OSError):
        inside = os.path.join(root, "commitlog")
        return sorted(os.listdir(inside if os.path.isdir(inside) else root))
    return ()


def _sees_names(root: str, names: Sequence[str], _: int) -> str:
    """One task: the name of this machine if it does not see what the driver has seen, else nothing.

    A log may have grown, and retention may have removed files since: one common name is enough.
    """
    return "" if not names or set(names).intersection(_names(root)) else socket.gethostname()


def _sees_file(mark: str, _: int) -> str:
    """One task: the name of this machine if it does not see the file, else nothing."""
    return "" if os.path.exists(mark) else socket.gethostname()
