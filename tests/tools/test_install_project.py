"""The installation that `make setup` writes: importable, with a command, seen by the standard tools, and repeatable."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys

from tools.install_project import ROOT, install


def test_an_installed_checkout_runs_and_is_seen_and_installs_again(tmp_path: pathlib.Path) -> None:
    site_packages, scripts = tmp_path / "site-packages", tmp_path / "bin"
    site_packages.mkdir()
    scripts.mkdir()
    stale = site_packages / "reput-0.0.1.dist-info"
    stale.mkdir()
    for _ in range(2):
        install(ROOT, site_packages, scripts, sys.executable)

    found = [item for item in importlib.metadata.distributions(path=[str(site_packages)]) if item.name == "reput"]
    assert len(found) == 1
    assert not stale.exists()
    assert [(point.name, point.value) for point in found[0].entry_points] == [("reput", "cli.main:main")]
    assert any(requirement.startswith("grpcio>=") for requirement in found[0].requires or ())
    roots = (site_packages / "reput_checkout.pth").read_text().splitlines()
    assert [str(ROOT), str(ROOT / "protos")] == roots
    printed = subprocess.run(
        [scripts / "reput", "--version"], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)}
    ).stdout
    assert printed.startswith("reput ")


def test_the_interpreter_of_the_whole_machine_is_left_alone() -> None:
    base = pathlib.Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not base.exists():
        base = pathlib.Path(sys._base_executable)  # type: ignore[attr-defined]
    refused = subprocess.run([base, ROOT / "tools" / "install_project.py"], capture_output=True, text=True, check=False)

    assert refused.returncode == 2
    assert "virtual environment" in refused.stderr


def test_a_clone_beside_a_script_does_not_shadow_the_contracts(tmp_path: pathlib.Path) -> None:
    """A clone of the project is named `reput` and has a folder `gateway`, as the contract's package has."""
    (tmp_path / "reput" / "gateway").mkdir(parents=True)
    (tmp_path / "reput" / "gateway" / "__init__.py").touch()
    script = tmp_path / "script.py"
    script.write_text("import reput.gateway.v1.gateway_service_pb2 as pb\nprint(pb.__file__)\n")

    roots = f"{ROOT}{os.pathsep}{ROOT / 'protos'}"
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, env={"PYTHONPATH": roots})

    assert ran.stdout.strip() == str(ROOT / "protos/reput/gateway/v1/gateway_service_pb2.py"), ran.stderr
