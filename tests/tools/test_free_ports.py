"""A taken port is named before anything is set up."""

import pathlib
import socket
import subprocess
import sys

import pytest

from tools import free_ports

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_port_where_a_program_listens_is_refused_with_the_variable_to_set(tmp_path: pathlib.Path) -> None:
    """As `make run` calls it: with the machine's own Python, and nothing that setup installs."""
    tool = [sys.executable, "-S", ROOT / "tools/free_ports.py"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [*tool, "GATEWAY_PORT=0", f"CONSOLE_PORT={port}"]
        refused = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert refused.returncode == 2
    assert f"port {port} is taken" in refused.stderr
    assert "make run CONSOLE_PORT=n" in refused.stderr
    assert free_ports.main([f"CONSOLE_PORT={port}"]) == 0


@pytest.mark.parametrize(
    "argument", ["CONSOLE_PORT=http", "CONSOLE_PORT=70000", "CONSOLE_PORT=-1", "GATEWAY_PORT=off", "REMOTING_PORT=on"]
)
def test_what_is_no_port_is_refused(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert free_ports.main([argument]) == 2
    assert "a port is a number up to 65535" in capsys.readouterr().err  # 70000 was called taken


def test_make_run_looks_at_its_ports_before_it_sets_up() -> None:
    """A defect: a taken port was reported after two minutes of setup."""
    planned = subprocess.run(
        [
            *("make", "--no-print-directory", "--dry-run", "--always-make", "run", "GATEWAY_PORT=18081", "CONSOLE_PORT=18080"),
            *("NAMESERVER_PORT=19876", "REMOTING_PORT=off"),
        ],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip

    ports = ["GATEWAY_PORT=18081", "CONSOLE_PORT=18080", "NAMESERVER_PORT=19876", "REMOTING_PORT=off"]
    assert planned[0].split()[1:] == ["tools/free_ports.py", *ports]
    assert free_ports.main(["REMOTING_PORT=off"]) == 0
    assert any("pip install" in line for line in planned[1:])
    assert "--gateway-port 18081" in planned[-1]
    assert "--console-port 18080" in planned[-1]
    assert "--nameserver-port 19876 --remoting-port off" in planned[-1]
