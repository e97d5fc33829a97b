"""Calls both ways: as gRPC does it, and with fewer threads, as far as its inside is what it was."""

import pytest

from services import append_pump, unary_call


@pytest.fixture(params=["early thread", "late thread"], autouse=True)
def way(request, monkeypatch):
    """Every test of a module that imports this runs twice."""
    assert unary_call.is_possible, "this grpcio is different inside: see services/unary_call.py"
    assert append_pump.is_possible, "this grpcio is different inside: see services/append_pump.py"
    monkeypatch.setattr(unary_call, "is_possible", request.param == "late thread")
    monkeypatch.setattr(append_pump, "is_possible", request.param == "late thread")
    return request.param
