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
    generated = Registry()
    add_to_server(servicer, generated)
    for service_name, handlers in generated.by_service.items():
        served = handlers | dict(raw_handlers)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service_name, served),))
        server.add_registered_method_handlers(service_name, served)


class Registry:
    """Takes the place of a server for generated code and keeps the handlers.

    Args:
        server: gets them, too; None: no server does.

    Attributes:
        by_service: the handlers by full name of their service and by name of their method.
    """

    def __init__(self, server: grpc.Server | None = None) -> None:
        self._server = server
        self.by_service: dict[str, dict[str, AnyHandler]] = {}

    def of(self, path: str) -> AnyHandler | None:
        """The handler of `/package.Service/Method`."""
        service_name, _, name = path.removeprefix("/").partition("/")
        return self.by_service.get(service_name, {}).get(name)

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """See grpc.Server. Generated code registers the same handlers again, by name."""
        if self._server is not None:
            self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service_name: str, handlers: dict[str, AnyHandler]) -> None:
        """See grpc.Server."""
        self.by_service[service_name] = handlers
        if self._server is not None:
            self._server.add_registered_method_handlers(service_name, handlers)
