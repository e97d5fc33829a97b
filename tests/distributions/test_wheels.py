"""The two distributions, built from the checkout and installed into environments that do not know the checkout."""

import contextlib
import importlib.metadata
import json
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement

from deploy import build_kernels
from store.compiled import built
from tests.support.stack import NO_REMOTING, SMALL_LOG_FILES
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
CLIENT, REPUT = f"reput_client-{VERSION}", f"reput-{VERSION}"


def run(*command: object, cwd: pathlib.Path) -> str:
    environ = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("REPUT_")
    }
    finished = subprocess.run(
        [str(each) for each in command], cwd=cwd, env=environ, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    return finished.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("dist")
    for source in (ROOT, ROOT / "distributions" / "reput-client"):
        run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", directory, cwd=source)
    return directory


def wheel(directory: pathlib.Path, name: str) -> pathlib.Path:
    """The one wheel of a distribution, whatever machine it is for."""
    (found,) = directory.glob(f"{name}-*.whl")
    return found


class Environment:
    """A virtual environment, empty but for what a test puts there.

    Attributes:
        python: its interpreter.
        libraries: its site-packages.
    """

    def __init__(self, root: pathlib.Path) -> None:
        venv.create(root, with_pip=False)
        self.root = root
        self.python = root / "bin" / "python"
        self.libraries = pathlib.Path(sysconfig.get_path("purelib", "venv", {"base": str(root), "platbase": str(root)}))

    def install(self, *wheels: pathlib.Path) -> None:
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-deps", "--no-index")
        run(*pip, *wheels, cwd=self.root)

    def link(self, distribution: importlib.metadata.Distribution) -> None:
        """Make the files of a distribution of this process's environment visible in this one."""
        for file in distribution.files or ():
            target = self.libraries / file
            if ".." not in file.parts and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(distribution.locate_file(file))


def requirements_of(wheel: pathlib.Path) -> list[Requirement]:
    """What an installation without extras requires on this Python."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    required = [
        Requirement(line.removeprefix("Requires-Dist: ")) for line in lines if line.startswith("Requires-Dist: ")
    ]
    return [each for each in required if each.marker is None or each.marker.evaluate({"extra": ""})]


def closure_of(required: list[Requirement]) -> dict[str, importlib.metadata.Distribution]:
    """The distributions that requirements bring, from this process's environment."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(required)
    while waiting:
        name = waiting.pop().name
        if name not in found:
            found[name] = importlib.metadata.distribution(name)
            each = map(Requirement, found[name].requires or ())
            waiting += [one for one in each if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def names_in(wheel: pathlib.Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_no_file_is_in_both_wheels_and_together_they_are_the_packages_of_the_checkout(wheels: pathlib.Path) -> None:
    client, reput = names_in(wheel(wheels, CLIENT)), names_in(wheel(wheels, REPUT))

    assert not client & reput
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.pyi", "*.html", "*.css", "*.js", "*.jsonl"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    left_out = ("tests/", "benchmarks/", "tools/", "docs/")
    expected = {name.removeprefix("protos/") for name in tracked if not name.startswith(left_out)}
    assert expected - {"cli/submit.py"} <= client | reput


def test_the_client_brings_no_name_but_its_own_and_its_contracts_to_the_top_level(wheels: pathlib.Path) -> None:
    assert {name.partition("/")[0] for name in names_in(wheel(wheels, CLIENT))} == {"apache", "reput", "reput_client"}
    # `apache` is shared with whoever has a part of that namespace.
    assert not {"apache/__init__.py", "apache/rocketmq/__init__.py"} & names_in(wheel(wheels, CLIENT))
    assert "reput_client/py.typed" in names_in(wheel(wheels, CLIENT))
    assert "reput_embedded/py.typed" in names_in(wheel(wheels, REPUT))


def test_the_wheel_of_a_machine_that_can_compile_has_its_kernels_compiled(wheels: pathlib.Path) -> None:
    files = {built.binary_of(name) for name in build_kernels.kernel_names()}
    if not all(file.exists() for file in files):
        pytest.skip(f"kernels are not compiled: {built.HOW_TO_BUILD}")

    assert {str(file.relative_to(ROOT)) for file in files} <= names_in(wheel(wheels, REPUT))
    tag = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    assert wheel(wheels, REPUT).name == f"{REPUT}-{tag}.whl"
    assert wheel(wheels, CLIENT).name == f"{CLIENT}-py3-none-any.whl"


@pytest.mark.parametrize("name", [CLIENT, REPUT])
def test_a_wheel_has_the_version_and_the_licence(wheels: pathlib.Path, name: str) -> None:
    with zipfile.ZipFile(wheel(wheels, name)) as archive:
        info = f"{name}.dist-info"
        licence = archive.read(f"{info}/licenses/LICENSE")
        assert archive.read(f"{info}/licenses/NOTICE")

    assert licence == (ROOT / "LICENSE").read_bytes()
    assert b"Apache License" in licence


def test_reput_requires_the_client_of_its_own_version(wheels: pathlib.Path) -> None:
    (client,) = [each for each in requirements_of(wheel(wheels, REPUT)) if each.name == "reput-client"]

    assert str(client.specifier) == f"=={VERSION}"


def test_the_client_works_with_nothing_but_what_it_requires(wheels: pathlib.Path, tmp_path: pathlib.Path) -> None:
    required = requirements_of(wheel(wheels, CLIENT))
    assert {each.name for each in required} == {"googleapis-common-protos", "grpcio", "protobuf"}
    environment = Environment(tmp_path / "env")
    for distribution in closure_of(required).values():
        environment.link(distribution)
    environment.install(wheel(wheels, CLIENT))
    code = f"""
import importlib.util, sys
assert not any(path.startswith({str(ROOT)!r}) for path in sys.path), sys.path
import reput_client
for name in reput_client.__all__:
    getattr(reput_client, name)
with reput_client.QueryClient("127.0.0.1:1", retry=reput_client.RetryPolicy(attempt_count_max=2)) as client:
    try:
        client.status()
    except reput_client.UnavailableError as error:
        print(type(error).__name__)
unwanted = "store services cli gateway numpy pydantic typer".split()
print([name for name in unwanted if importlib.util.find_spec(name)])
"""
    assert run(environment.python, "-c", code, cwd=tmp_path).splitlines() == ["ServiceUnavailableError", "[]"]


@contextlib.contextmanager
def served(environment: Environment, directory: pathlib.Path) -> Iterator[dict[str, str]]:
    """The addresses of `reput serve`."""
    port_file = directory / "ports.json"
    command = (environment.root / "bin" / "reput", "serve", "--store", directory / "store", "--gateway-port", "0")
    environ = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("REPUT_")
    }
    with (directory / "log").open("wb") as log:
        child = subprocess.Popen(
            [*command, "--console-port", "0", "--port-file", port_file],
            cwd=directory,
            env={**environ, **SMALL_LOG_FILES, **NO_REMOTING},
            stderr=log,
            stdout=log,
        )
    try:
        wait_until(lambda: port_file.exists() or child.poll() is not None, "reput serve")
        assert child.poll() is None, (directory / "log").read_text()
        yield json.loads(port_file.read_text())
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT_SECONDS_MAX) == 0


@pytest.mark.long
def test_reput_serves_and_has_its_pipeline_where_both_are_installed(
    wheels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    environment = Environment(tmp_path / "env")
    environment.install(wheel(wheels, CLIENT), wheel(wheels, REPUT))
    # Libraries of third parties are those of this process's environment. Its own .pth files are not read through this one, so
    # the checkout is not on the path.
    (environment.libraries / "third_parties.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    reput = environment.root / "bin" / "reput"

    assert run(reput, "--version", cwd=tmp_path) == f"reput {VERSION}\n"
    code = f"""
import sys
assert not any(path.startswith({str(ROOT)!r}) and "site-packages" not in path for path in sys.path), sys.path
import pipeline, pipeline.rebuild.rebuild, reput.commitlog.v1.commitlog_service_pb2, reput.gateway.v1.gateway_service_pb2
print(pipeline.__file__)
"""
    assert str(environment.libraries) in run(environment.python, "-c", code, cwd=tmp_path)
    embedded = """
import reput_embedded
with reput_embedded.open("embedded") as store:
    store.append("Orders", b"hello", keys=["k"])
    print([message.body for message in store.by_key("Orders", "k")])
"""
    assert run(environment.python, "-c", embedded, cwd=tmp_path) == "[b'hello']\n"
    with served(environment, tmp_path) as addresses:
        gateway = ("--address", addresses["gateway"])
        run(reput, "send", "-t", "Orders", "-b", "hello", "-k", "order-1", "--sync", *gateway, cwd=tmp_path)
        assert "Orders" in run(reput, "topics", *gateway, cwd=tmp_path)
