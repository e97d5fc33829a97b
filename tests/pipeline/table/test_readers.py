"""Tables are read back by pyiceberg and by DuckDB's own reader of Iceberg, and both see the same rows."""

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.table import archived, table
from tests.pipeline.rocketmq.gateways import append
from tests.pipeline.table.lakes import duckdb_with_iceberg, lake, rows
from tests.support.archives import BROKER, message, write_log
from tests.support.archives import archived as archive_of
from tests.support.stack import hosted_stack

TYPED, ARCHIVED = "shop.orders", "shop.archived"
SELECT = "SELECT physicalOffset, uniqKey, {} FROM {} ORDER BY physicalOffset"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A catalog with a typed table, whose schema has grown and from which a key was deleted, and one of an archive."""
    directory = tmp_path_factory.mktemp("readers")
    catalog = lake(directory)
    with hosted_stack(directory / "store") as stack:
        endpoint = stack.addresses["gateway"]

        def keep(bodies: list[bytes], key: str, schema: str) -> None:
            append(endpoint, "Orders", bodies, keys=[key])
            stack.wait_until_built()
            options = {"bodyFormat": "json", "bodySchema": schema}
            table.run(endpoint, "Orders", catalog, TYPED, options, until_caught_up=True)

        keep([b'{"id":%d}' % i for i in range(20)], "a", "id int")
        keep([b'{"id":%d,"price":%d.5}' % (i, i) for i in range(20, 30)], "b", "id long, price double")
        keep([b'{"id":99}'], "gone", "id long, price double")
    assert table.delete_key(catalog, TYPED, "gone").counts["deleted_count"] == 1
    store = write_log(directory / "log", [message(n, keys=f"k{n}", body=b"%d" % n) for n in range(50)])
    archive = archive_of(store, directory / "archive").archive
    archived.run(archive, "orders", catalog, ARCHIVED, broker_name=BROKER)
    return catalog


def expected(catalog: Any, name: str) -> list[tuple[Any, ...]]:
    """As pyiceberg reads them: offset, unique key, and what is in the body."""
    found = sorted(rows(catalog, name), key=lambda row: row["physicalOffset"])
    assert len(found) == {TYPED: 30, ARCHIVED: 50}[name]
    body = (lambda row: row["bodyValue"]["price"]) if name == TYPED else (lambda row: row["body"].decode())
    return [(row["physicalOffset"], row["uniqKey"], body(row)) for row in found]


@pytest.mark.parametrize("name", [TYPED, ARCHIVED])
def test_duckdb_reads_a_table_through_pyiceberg(made: Any, name: str) -> None:
    pytest.importorskip("duckdb", reason="needs DuckDB")
    database = made.load_table(name).scan().to_duckdb("found")
    body = "bodyValue.price" if name == TYPED else "decode(body)"
    assert database.sql(SELECT.format(body, "found")).fetchall() == expected(made, name)


@pytest.mark.parametrize("name", [TYPED, ARCHIVED])
def test_duckdbs_own_iceberg_reader_sees_the_same_rows(made: Any, name: str) -> None:
    database = duckdb_with_iceberg()
    body = "bodyValue.price" if name == TYPED else "decode(body)"
    place = f"iceberg_scan('{made.load_table(name).metadata_location}')"
    assert database.sql(SELECT.format(body, place)).fetchall() == expected(made, name)
