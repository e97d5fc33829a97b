"""A REST catalog on loopback for tests: the calls of Iceberg's OpenAPI description that the job makes, over a SQL catalog."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import unquote

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest

ERRORS = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}
ONE = re.compile(r"/v1/namespaces/([^/]+)/tables/([^/]+)")
NAMESPACE = re.compile(r"/v1/namespaces/([^/]+)")
ALL = re.compile(r"/v1/namespaces/([^/]+)/tables")


class RestHandler(BaseHTTPRequestHandler):
    """The calls, by path."""

    catalog: ClassVar[Catalog]
    fault: ClassVar[Callable[[], int]]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            self._answer(200, {"defaults": {}, "overrides": {}})
        elif found := NAMESPACE.fullmatch(self.path):
            self._tried(lambda: {"properties": dict(self.catalog.load_namespace_properties(unquote(found[1])))})
        elif found := ONE.fullmatch(self.path.partition("?")[0]):
            self._tried(lambda: self._table(self.catalog.load_table(_names(found))))
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/namespaces":
            self._tried(lambda: self.catalog.create_namespace(tuple(said["namespace"])) or said)
        elif found := ONE.fullmatch(self.path):
            self._tried(lambda: self._commit(_names(found), said))
        elif found := ALL.fullmatch(self.path):
            assert said["stage-create"], "the job stages tables"
            identifier = (unquote(found[1]), said["name"])
            self._tried(lambda: self._staged(identifier, said))
        else:
            self._answer(404, {})

    def log_message(self, *args: object) -> None:
        """Says nothing."""

    def _staged(self, identifier: tuple[str, ...], said: dict[str, Any]) -> dict[str, Any]:
        with contextlib.suppress(NoSuchTableError):
            self.catalog.load_table(identifier)
            raise TableAlreadyExistsError(str(identifier))
        schema = Schema.model_validate(said["schema"])
        spec = PartitionSpec.model_validate(said["partition-spec"])
        staged = self.catalog.create_table_transaction(
            identifier, schema, partition_spec=spec, properties=said["properties"]
        )
        return {"metadata": json.loads(staged.table_metadata.model_dump_json()), "config": {}}

    def _commit(self, identifier: tuple[str, ...], said: dict[str, Any]) -> dict[str, Any]:
        # Java's client leaves out what the path says.
        request = CommitTableRequest.model_validate({"identifier": _as_said(identifier), **said})
        status = type(self).fault()
        if status == 409:
            raise CommitFailedException("another one was faster")
        table: Any = SimpleNamespace(name=lambda: identifier)
        answer = self.catalog.commit_table(table, request.requirements, request.updates)
        if status:
            raise TimeoutError(f"{status}: stored, and not said")
        return dict(json.loads(answer.model_dump_json()))

    def _table(self, table: Any) -> dict[str, Any]:
        metadata = json.loads(table.metadata.model_dump_json())
        return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}

    def _tried(self, call: Callable[[], dict[str, Any]]) -> None:
        try:
            self._answer(200, call())
        except TimeoutError as error:
            self._answer(504, _error(error, 504))
        except tuple(ERRORS) as error:
            self._answer(ERRORS[type(error)], _error(error, ERRORS[type(error)]))

    def _answer(self, status: int, said: dict[str, Any]) -> None:
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _error(error: Exception, status: int) -> dict[str, Any]:
    return {"error": {"message": str(error), "type": type(error).__name__, "code": status}}


def _as_said(identifier: tuple[str, ...]) -> dict[str, Any]:
    return {"namespace": list(identifier[:-1]), "name": identifier[-1]}


def _names(found: re.Match[str]) -> tuple[str, ...]:
    return (unquote(found[1]), unquote(found[2]))


@contextlib.contextmanager
def rest_catalog(catalog: Catalog, fault: Callable[[], int] = lambda: 0) -> Iterator[str]:
    """The URI of a server over a catalog; `fault` gives the status of the next commit, 0: it is done and said."""
    handler = type("Handler", (RestHandler,), {"catalog": catalog, "fault": staticmethod(fault)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
