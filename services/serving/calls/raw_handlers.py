"""Raw handlers: methods that take and give bytes, beside the generated handlers of their service.

The server would use a generated handler first, which parses every message. So no generated handler of a raw method is
registered.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    AnyHandler = grpc.RpcMethodHandler[Any, Any]
else:
    AnyHandler = grpc.RpcMethodHandler  # grpc's class takes no parameters at run time


def add_with_raw(
    add_to_server: Callable[[Any, Any], None],
    servicer: object,
    raw_handlers: Mapping[str, AnyHandler],
    server: grpc.Server,
) -> None:
    """Serve a servicer.

    Args:
        add_to_server: the generated `add_...Servicer_to_server`.
        servicer: serves all methods but the raw ones.
        raw_handlers: by method name, without serializers.
        server: the server.
    """
    generated = _Collector()
    add_to_server(servicer, generated)
    for service_name, handlers in generated.handlers_by_service.items():
        served = handlers | dict(raw_handlers)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service_name, served),))
        server.add_registered_method_handlers(service_name, served)


class _Collector:
    """Takes the place of a server and keeps the handlers that generated code registers."""

    def __init__(self) -> None:
        self.handlers_by_service: dict[str, dict[str, AnyHandler]] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Not needed: generated code registers the same handlers again, by name."""

    def add_registered_method_handlers(self, service_name: str, handlers: dict[str, AnyHandler]) -> None:
        """Keep the handlers."""
        self.handlers_by_service[service_name] = handlers
