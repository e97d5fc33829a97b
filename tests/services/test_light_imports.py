"""What a service loads when it starts: each library here is seconds and megabytes in six processes."""

import functools
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICES = ["commitlog_svc", "consumequeue_svc", "index_svc", "consumer_svc", "schedule_svc", "gateway"]
NOT_NEEDED = {
    "rich",
    "greenlet",
    "importlib.metadata",
    "typer",
    "prometheus_client",
    "opentelemetry",
    "grpc_reflection.v1alpha",
    "services.serving.commented_reflection",
}


@functools.cache
def loaded_by(statements: str) -> frozenset[str]:
    code = f"{statements}\nimport sys; print(' '.join(name for name, module in sys.modules.items() if module))"
    return frozenset(printed_by(code).split())


def printed_by(code: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'protos'}"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return finished.stdout


def loaded_at_a_start(name: str) -> frozenset[str]:
    """What the service has loaded, beside the module of asyncio that tells whether it has found ssl."""
    has_ssl = "import asyncio.sslproto; assert (asyncio.sslproto.ssl is not None) == ('ssl' in sys.modules)"
    return loaded_by(f"{in_its_process(name)}\n{has_ssl}")


def in_its_process(name: str) -> str:
    """Statements that run the service as `python -m` does, up to its flags."""
    return f"""
import contextlib, io, runpy, sys
sys.argv = [{name!r}, "--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    runpy.run_module({name!r}, run_name="__main__")
"""


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_that_is_imported_leaves_asyncio_its_tls_and_the_program_its_environment(name):
    loaded = loaded_by(f"""
import os
before = dict(os.environ)
import {name}.__main__, asyncio.sslproto
assert asyncio.sslproto.ssl is not None
assert dict(os.environ) == before, set(os.environ) - set(before)
""")

    assert "services.light_imports" not in loaded


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_starts_without_what_only_some_need(name):
    loaded = loaded_at_a_start(name)

    assert "grpc" in loaded
    assert not NOT_NEEDED & loaded


def test_a_service_looks_for_no_garbage_while_it_is_imported_and_then_only_among_what_came_later():
    found = printed_by(
        f"{in_its_process('commitlog_svc')}\nimport gc; print(gc.isenabled(), gc.get_freeze_count(), gc.get_stats()[2])"
    )
    is_enabled, frozen_count, oldest = found.split(maxsplit=2)

    assert is_enabled == "True"
    assert int(frozen_count) > 50_000
    assert "'collections': 0" in oldest


@pytest.mark.parametrize("name", ["consumequeue_svc", "consumer_svc", "gateway"])
def test_a_service_that_has_no_columns_yet_starts_without_numpy(name):
    assert "numpy" not in loaded_at_a_start(name)


@pytest.mark.parametrize("name", SERVICES)
def test_only_the_gateway_whose_console_serves_tls_with_asyncio_loads_ssl(name):
    assert ("ssl" in loaded_at_a_start(name)) == (name == "gateway")


def test_what_starts_the_services_speaks_no_grpc_and_checks_no_settings():
    loaded = loaded_by(
        "import cli.serving, deploy.local; deploy.local.LocalStack.__init__; import services.settings.setting_sources"
    )

    assert not {"grpc", "pydantic", "numpy", "structlog", "typer"} & loaded


def test_a_verb_loads_no_other_verb():
    loaded = loaded_by("import cli.main; cli.main.main(['queryMsgById', '-i', '00', '-f', 'no-such-charset'])")

    assert "cli.mqadmin.messages" in loaded
    assert not {"cli.fsck", "cli.demo", "cli.send", "deploy.local"} & loaded


@pytest.mark.parametrize(
    "start",
    [
        "import services.light_imports",
        "import cli.main; cli.main.main(['queryMsgById', '-i', '00', '-f', 'no-such-charset'])",
    ],
    ids=["service", "command"],
)
def test_no_process_of_ours_starts_threads_of_numpy_unless_its_environment_asks_for_them(start):
    """They spun for 60 ms of CPU in each."""
    count = "import os, numpy; print(len(os.listdir('/proc/self/task')))"

    assert printed_by(f"import os; del os.environ['OPENBLAS_NUM_THREADS']\n{start}\n{count}").split() == ["1"]
    asked = printed_by(f"import os; os.environ['OPENBLAS_NUM_THREADS'] = '2'\n{start}\n{count}")
    assert int(asked) == min(os.cpu_count() or 1, 2)


def test_rich_can_be_loaded_behind_it():
    assert "rich.table" in loaded_by("import services.light_imports, structlog, rich.table")
