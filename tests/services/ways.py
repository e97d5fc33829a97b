"""Calls both ways: as gRPC does it, and with fewer threads, as far as its inside is what it was."""

import pytest

from services.serving.calls import grpc_private


@pytest.fixture(params=["early thread", "late thread"], autouse=True)
def way(request, monkeypatch):
    """Every test of a module that imports this runs twice."""
    assert grpc_private.is_usable, "this grpcio is different inside: see services/serving/calls/grpc_private.py"
    monkeypatch.setattr(grpc_private, "is_usable", request.param == "late thread")
    return request.param
