"""The typed RPCs: one for each row of the inner services in services/methods.py, with the classes of the protos."""

import re
from importlib import import_module
from typing import Any

import pytest

from services.methods import METHODS
from services.rpcs import Rpc

SERVICES = ("commitlog", "consumequeue", "consumer", "index", "schedule")


def rpcs_of(service: str) -> dict[str, Rpc[Any, Any]]:
    """The typed RPCs of a service, by the name of their constant."""
    module = import_module(f"services.rpcs.{service}")
    return {name: value for name, value in vars(module).items() if isinstance(value, Rpc)}


def methods_of(service: str) -> dict[str, Any]:
    """The descriptors of a service's RPCs, by path."""
    proto = import_module(f"reput.{service}.v1.{service}_service_pb2").DESCRIPTOR
    return {
        f"/{described.full_name}/{method.name}": method
        for described in proto.services_by_name.values()
        for method in described.methods
    }


@pytest.mark.parametrize("service", SERVICES)
def test_each_rpc_of_a_service_has_a_typed_value_with_the_classes_of_its_proto(service: str) -> None:
    described = methods_of(service)
    found = rpcs_of(service)

    assert {rpc.path for rpc in found.values()} == set(described)
    for name, rpc in found.items():
        method = described[rpc.path]
        assert name == re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).upper()
        assert rpc.request_class.DESCRIPTOR == method.input_type
        assert rpc.answer_class.DESCRIPTOR == method.output_type
        assert (rpc.service, rpc.name, rpc.row) == (service, method.name, METHODS[rpc.path])
