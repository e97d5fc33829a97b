"""Unary calls both ways: with a thread from the beginning as gRPC does it, and with one once the request is there."""

import pytest

from services import unary_call


@pytest.fixture(params=["early thread", "late thread"], autouse=True)
def way(request, monkeypatch):
    """Every test of a module that imports this runs twice."""
    assert unary_call.is_possible, "this grpcio is different inside: see services/unary_call.py"
    monkeypatch.setattr(unary_call, "is_possible", request.param == "late thread")
    return request.param
