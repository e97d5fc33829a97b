"""A grpcio whose private parts moved or changed: a service refuses to start with it and says what to install."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from services.serving.calls import grpc_private
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import InvalidSettingError

# A gateway whose grpcio has no such module.
SCRIPT = """
import sys
sys.modules["grpc._server"] = None
from gateway.__main__ import SERVICE
from services.serving.process import main
main(SERVICE)
"""


def test_a_service_does_not_start_without_a_private_module_and_says_what_to_install():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("reput: grpcio ")
    assert f"pip install 'grpcio{grpc_private.GRPCIO_RANGE}'" in ended.stderr


@pytest.mark.parametrize("name", [*grpc_private.PARAMETERS_BY_NAME, *grpc_private.OTHER_NAMES])
def test_a_part_that_is_gone_is_refused_by_its_name(monkeypatch, name):
    owner, _, last = name.rpartition(".")
    monkeypatch.delattr(getattr(grpc_private.server, owner) if owner else grpc_private.server, last)
    with pytest.raises(InvalidSettingError, match=rf"grpc\._server\.{name} "):
        ServiceServer("gateway", ServiceSettings())


@pytest.mark.parametrize("other", [lambda rpc_event, state: None, 5], ids=["other parameters", "no function"])
def test_a_function_that_is_another_one_is_refused(monkeypatch, other):
    monkeypatch.setattr(grpc_private.server, "_status", other)
    with pytest.raises(InvalidSettingError, match=r"grpc\._server\._status "):
        grpc_private.check()


def test_the_range_to_install_is_that_of_the_project():
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"grpcio{grpc_private.GRPCIO_RANGE}" in project["project"]["dependencies"]
