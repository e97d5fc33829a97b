"""`format("commitlog")` in any session: PySpark finds modules named `pyspark_*` and registers their `DefaultSource`."""

from pipeline.scan.commitlog import CommitLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
