"""Catalogs in a directory for tests: SQL in a file, and one whose commits fail as a test says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from pipeline.table.iceberg import opened_catalog

TABLE = "shop.orders"


def settings(directory: Path) -> dict[str, str]:
    """The properties of a catalog whose tables are in this directory."""
    directory.mkdir(exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/warehouse"}


def lake(directory: Path) -> Catalog:
    return opened_catalog("lake", settings(directory))


def catalog_flags(directory: Path) -> list[str]:
    """The flags of the command for that catalog."""
    return ["--catalog=lake", *(f"--catalog-property={name}={value}" for name, value in settings(directory).items())]


def rows(catalog: Catalog, table: str = TABLE) -> list[dict[str, Any]]:
    """All rows of the newest snapshot."""
    return list(catalog.load_table(table).scan().to_arrow().to_pylist())


def duckdb_with_iceberg() -> Any:
    """A connection of DuckDB with its own reader of Iceberg; the test is skipped without them."""
    duckdb = pytest.importorskip("duckdb", reason="needs DuckDB")
    database = duckdb.connect(config={"autoinstall_known_extensions": False})
    for extension in ("avro", "iceberg"):
        package = pytest.importorskip(f"duckdb_extension_{extension}", reason="needs DuckDB's reader of Iceberg")
        (file,) = Path(package.__path__[0]).rglob("*.duckdb_extension")
        database.execute(f"LOAD '{file}'")
    return database


def data_files(directory: Path) -> set[str]:
    """Names of all Parquet files below it, also of those that no snapshot names."""
    return {path.name for path in (directory / "warehouse").rglob("*.parquet")}


class FaultyCatalog(SqlCatalog):
    """A catalog that asks a test before it commits.

    Attributes:
        fault: called with the number of the commit; returns `refused`, `lost` (nothing is stored), `answer lost` (it is
            stored), or nothing.
        before: called before each commit.
    """

    fault: Callable[[int], str] = staticmethod(lambda number: "")
    before: Callable[[], object] = staticmethod(lambda: None)
    commit_count = 0

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        self.commit_count += 1
        fault = self.fault(self.commit_count)
        self.before()
        if fault == "refused":
            raise CommitFailedException("another one was faster")
        if fault == "lost":
            raise CommitStateUnknownException("the connection ended")
        answer = super().commit_table(table, requirements, updates)
        if fault == "answer lost":
            raise CommitStateUnknownException("the connection ended")
        return answer


class CountingFileIO(PyArrowFileIO):
    """Notes the locations of the files that pyiceberg opens."""

    opened: ClassVar[list[str]] = []

    def new_input(self, location: str) -> PyArrowFile:
        self.opened.append(location)
        return super().new_input(location)


def faulty(directory: Path) -> FaultyCatalog:
    return FaultyCatalog("lake", **settings(directory))
