"""The private parts of gRPC that Reput uses, imported here and nowhere else.

`unary_call.py` and `append_pump.py` need them, and gRPC offers no public way to do the same. A grpcio that moved or changed
them leaves `is_usable` False. Services then start all the same and serve calls in gRPC's own way, which costs more CPU.
The upper bound of grpcio in pyproject.toml keeps such a release out until the tests have run with it.
"""

import importlib
import inspect
from types import ModuleType

# What is called, with its parameters.
PARAMETERS_BY_NAME = {
    "_unary_response_in_pool": (
        *("rpc_event", "state", "behavior", "argument_thunk", "request_deserializer", "response_serializer"),
    ),
    "_stream_response_in_pool": (
        *("rpc_event", "state", "behavior", "argument_thunk", "request_deserializer", "response_serializer"),
    ),
    "_receive_message": ("state", "call", "request_deserializer"),
    "_send_message": ("state", "token"),
    "_get_initial_metadata_operation": ("state", "metadata"),
    "_status": ("rpc_event", "state", "serialized_response"),
    "_is_rpc_state_active": ("state",),
}
OTHER_NAMES = ("_CANCELLED", "_RECEIVE_MESSAGE_TOKEN", "_Context")
CYTHON_NAMES = ("ReceiveMessageOperation", "SendMessageOperation")


def _import(name: str) -> ModuleType:
    """The module; an empty one where this grpcio has none of that name."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return ModuleType(name)


server = _import("grpc._server")
cygrpc = _import("grpc._cython.cygrpc")


def looks_as_expected() -> bool:
    """Whether all names exist and all functions take the parameters that they are given."""
    for name, parameters in PARAMETERS_BY_NAME.items():
        function = getattr(server, name, None)
        if not inspect.isfunction(function) or tuple(inspect.signature(function).parameters) != parameters:
            return False
    return all(hasattr(server, name) for name in OTHER_NAMES) and all(hasattr(cygrpc, name) for name in CYTHON_NAMES)


is_usable = looks_as_expected()
