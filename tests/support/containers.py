"""Images and containers for tests: built with buildah, run by podman with runc, without a daemon; all gone afterwards.

runc and explicit limits of descriptors: crun asks for control groups that a container in a container does not have, and the
usual limits are higher than a caller without CAP_SYS_RESOURCE may set.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from tests.support.waiting import one_at_a_time, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What tools/base_image makes now, so that none is used that it made before it was changed.
MAKER = ROOT / "tools" / "base_image"
BASE_IMAGE = f"localhost/python:3.11-slim-bookworm-{hashlib.sha256(MAKER.read_bytes()).hexdigest()[:12]}"
PROGRAMS = ("podman", "buildah", "runc", "debootstrap")
BUILD_SECONDS_MAX = 900
# Stages of the Dockerfile that change with pins and kernels only, and those of them that the others are part of.
KEPT, NAMED = ("libraries", "libraries-pipeline", "kernels"), ("libraries-pipeline", "kernels")
STAGE_OR_LAYER = re.compile(r"FROM .* AS (\S+)$|^--> ([0-9a-f]+)$", re.MULTILINE)  # in what buildah prints
CALL_SECONDS_MAX = 240  # longer than what a command waits for
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
# What every container of the chart has, as podman says it.
HARDENED = (
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--ulimit=nofile=20000:20000",
    "--ulimit=nproc=1024:1024",
)


def missing_programs() -> list[str]:
    """What has to be installed first."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def podman(*arguments: str, check: bool = True) -> str:
    """What a call of podman printed, without the last line end."""
    runtime = shutil.which("runc", path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")
    command = ["podman", "--log-level=error", f"--runtime={runtime}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS_MAX)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout.rstrip("\n")


def _images_alone() -> AbstractContextManager[None]:
    """No other test builds or removes an image: with one go its parents, also those that a build is about to go on from."""
    return one_at_a_time(pathlib.Path(tempfile.gettempdir()) / f"reput-images-{os.getuid()}.lock")


def base_image() -> str:
    """The image that ours is built on here, made if need be."""
    with _images_alone():
        if subprocess.run(["podman", "image", "exists", BASE_IMAGE]).returncode:
            subprocess.run([MAKER, BASE_IMAGE], check=True, timeout=BUILD_SECONDS_MAX)
    return BASE_IMAGE


def build(target: str, tag: str, scratch: pathlib.Path) -> list[str]:
    """Build one target of the Dockerfile, from the checkout as it is; the ids of layers that have no use afterwards.

    Libraries and kernels are the same for many checkouts: they get a name, and stay on this machine.
    Where this machine has its packages by way of an authority of its own, the build's pip is told of it.
    """
    base = base_image()
    with _images_alone():
        layers = [*_build_named(base), *_build(target, tag, base, scratch)]
    return list(dict.fromkeys(reversed(layers)))  # one that another goes on from is removed after it


@functools.cache
def _build_named(base: str) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as scratch:
        built = [_build(name, f"localhost/reput-test-{name}", base, pathlib.Path(scratch)) for name in NAMED]
    return tuple(itertools.chain.from_iterable(built))


def _build(target: str, tag: str, base: str, scratch: pathlib.Path) -> list[str]:
    before = podman("images", "--quiet", "--no-trunc", tag)
    pip_conf = scratch / "pip.conf"
    pip_conf.write_text(f"[global]\ncert = {CERTIFICATES}\n")
    volumes = [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro", f"--volume={pip_conf}:/etc/pip.conf:ro"]
    command = ["buildah", "bud", "--isolation=chroot", "--network=host", "--pull-never", "--layers", *volumes]
    command += ["--build-arg", f"PYTHON_IMAGE={base}", "--target", target, "--tag", tag]
    log = scratch / f"build-{target}.log"
    with log.open("wb") as out:
        done = subprocess.run(
            [*command, "--file", "deploy/Dockerfile", "."], cwd=ROOT, stdout=out, stderr=out, timeout=BUILD_SECONDS_MAX
        )
    if done.returncode:
        raise RuntimeError(f"the image cannot be built:\n{log.read_text()[-4000:]}")
    if before and before != podman("images", "--quiet", "--no-trunc", tag):
        podman("image", "rm", before, check=False)  # that of other pins
    stage, layers = "", []
    for name, layer in STAGE_OR_LAYER.findall(log.read_text()):
        stage = name or stage
        layers += [layer] * (layer != "" and stage not in KEPT)
    return layers


class Container:
    """One container that runs on in the background.

    Args:
        name: of it, also its host name on the bridge.
        image: what it runs.
        flags: for `podman run`.
        command: what runs in it.
    """

    def __init__(self, name: str, image: str, flags: Sequence[str], *command: str) -> None:
        self.name = name
        podman("run", "--detach", f"--name={name}", f"--hostname={name}", *HARDENED, *flags, image, *command)

    def inspect(self) -> dict[str, object]:
        """What podman knows of it."""
        described: list[dict[str, object]] = json.loads(podman("inspect", self.name))
        return described[0]

    def logs(self) -> str:
        """What it printed."""
        runtime = podman("logs", self.name, check=False)
        return runtime[-4000:]

    def run(self, *command: str) -> str:
        """What a further command in it prints."""
        return podman("exec", self.name, *command)

    def kill(self) -> None:
        """SIGKILL to its first process."""
        podman("kill", "--signal=KILL", self.name)
        podman("wait", self.name)

    def start(self) -> None:
        """Again, with the same command and volumes."""
        podman("start", self.name)


@contextlib.contextmanager
def removed_afterwards(*kinds_and_names: tuple[str, str]) -> Iterator[None]:
    """Containers, networks, volumes and images of these names are gone after the block, also when it failed."""
    try:
        yield
    finally:
        for kind in dict.fromkeys(kind for kind, _ in kinds_and_names):
            names = [name for other, name in kinds_and_names if other == kind]
            at_once = ["--time=0"] if kind == "container" else []
            with _images_alone() if kind == "image" else contextlib.nullcontext():
                podman(kind, "rm", "--force", *at_once, *names, check=False)


def wait_for(is_true: object, what: str) -> float:
    """The seconds until a function gives something true, looked at every 50 ms.

    Raises:
        AssertionError: it never did.
    """
    assert callable(is_true)
    return wait_until(is_true, what, poll_seconds=0.05)
