"""The private parts of gRPC that Reput uses, imported here and nowhere else.

`unary_call.py`, `streamed_later.py`, `append_pump.py` and `woken_requests.py` need them, and gRPC offers no public way to do
the same. A service does not start with a grpcio that moved or changed them: `check` says which one to install. The upper bound
in pyproject.toml keeps such a release out until the tests have run with it.
"""

import importlib
import inspect
from types import ModuleType

import grpc

from store.errors import InvalidSettingError

# As pyproject.toml has it.
GRPCIO_RANGE = ">=1.80,<1.86"
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
    "_RequestIterator._raise_or_start_receive_message": ("self",),
    "_RequestIterator._look_for_request": ("self",),
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


def check() -> None:
    """Return if all names exist and all functions take the parameters that they are given.

    Raises:
        InvalidSettingError: this grpcio is different inside.
    """
    for name, parameters in PARAMETERS_BY_NAME.items():
        owner, _, last = name.rpartition(".")
        function = getattr(getattr(server, owner, None) if owner else server, last, None)
        if not inspect.isfunction(function) or tuple(inspect.signature(function).parameters) != parameters:
            raise _unfit(f"grpc._server.{name}")
    for module, names in ((server, OTHER_NAMES), (cygrpc, CYTHON_NAMES)):
        for name in names:
            if not hasattr(module, name):
                raise _unfit(f"{module.__name__}.{name}")


def _unfit(part: str) -> InvalidSettingError:
    return InvalidSettingError(
        f"grpcio {grpc.__version__} has no {part} as Reput uses it: "
        f"pip install 'grpcio{GRPCIO_RANGE}' in the environment of this service",
        name="grpcio",
        source="installed",
    )
