"""Methods whose handlers take and give bytes, beside the generated ones of their service.

A generated handler that got to the server would be asked first, and parse every message; so none of those does.
"""

from collections.abc import Callable, Mapping
from typing import Any

import grpc


def add_with_raw(
    add_to_server: Callable[[Any, Any], None],
    servicer: object,
    raw_handlers: Mapping[str, grpc.RpcMethodHandler],
    server: grpc.Server,
) -> None:
    """Serve a servicer.

    Args:
        add_to_server: the generated `add_...Servicer_to_server`.
        servicer: serves all methods but the raw ones.
        raw_handlers: by method name, without serializers.
        server: who serves.
    """
    generated = _Collector()
    add_to_server(servicer, generated)
    for service_name, handlers in generated.handlers_by_service.items():
        served = handlers | dict(raw_handlers)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service_name, served),))
        server.add_registered_method_handlers(service_name, served)


class _Collector:
    """Stands in for a server and keeps the handlers that generated code registers."""

    def __init__(self) -> None:
        self.handlers_by_service: dict[str, dict[str, grpc.RpcMethodHandler]] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Generated code registers the same handlers in two ways; the other one says their names."""

    def add_registered_method_handlers(self, service_name: str, handlers: dict[str, grpc.RpcMethodHandler]) -> None:
        """Keeps them."""
        self.handlers_by_service[service_name] = handlers
