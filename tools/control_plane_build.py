"""Build a real Kubernetes control plane, kubectl, helm and kwok from Go modules, for the tests marked `kubernetes`.

    python tools/control_plane_build.py              build what is missing into .tools/control-plane
    python tools/control_plane_build.py --check      exit 1 when a program is missing or of another version

Nothing but the Go module proxy is needed: no container registry, no download of binaries. The checksum database
that Go asks by itself pins what is fetched. Each program is moved into place when it is whole, so that a build that
was interrupted goes on with the next program. Times on two cores are in docs/kubernetes.md.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / ".tools" / "control-plane"
VERSIONS_FILE = "versions.json"

KUBERNETES_VERSION = "1.35.4"
KWOK_VERSION = "0.7.0"
HELM_VERSION = "3.19.2"

# Program -> the package that it is built from. The first group shares one build, which compiles their common parts once.
KUBERNETES_PROGRAMS = {
    name: f"k8s.io/kubernetes/cmd/{name}"
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
}
# etcd comes from the module graph of Kubernetes itself: the version that it was tested with.
ETCD_PACKAGE = "go.etcd.io/etcd/server/v3"
INSTALLED_PROGRAMS = {
    "kwok": f"sigs.k8s.io/kwok/cmd/kwok@v{KWOK_VERSION}",
    "helm": f"helm.sh/helm/v3/cmd/helm@v{HELM_VERSION}",
}
PROGRAM_VERSIONS = {
    **dict.fromkeys((*KUBERNETES_PROGRAMS, "etcd"), KUBERNETES_VERSION),
    "kwok": KWOK_VERSION,
    "helm": HELM_VERSION,
}
STRIP = "-s -w"


def missing_programs(target: pathlib.Path = TARGET) -> list[str]:
    """Return the programs that `target` lacks or has in another version than this file names."""
    versions_path = target / VERSIONS_FILE
    built = json.loads(versions_path.read_text()) if versions_path.exists() else {}
    return [
        name
        for name, version in PROGRAM_VERSIONS.items()
        if built.get(name) != version or not os.access(target / "bin" / name, os.X_OK)
    ]


class _Go:
    """Runs go in a scratch module, with the settings that every build here shares."""

    def __init__(self, scratch: pathlib.Path) -> None:
        self.scratch = scratch
        self.program = shutil.which("go") or "/usr/local/go/bin/go"
        self.env = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(scratch)}

    def __call__(self, *args: str, **env: str) -> str:
        done = subprocess.run(
            [self.program, *args],
            cwd=self.scratch,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout


def _make_kubernetes_module(go: _Go) -> None:
    """Write a go.mod that requires Kubernetes.

    Its own go.mod replaces each staging module by the directory ./staging, which a dependent module does not inherit.
    Each was published as well, as v0.MINOR.PATCH, and that is put in place of the directory.
    """
    published = "v0." + KUBERNETES_VERSION.removeprefix("1.")
    described = json.loads(go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES_VERSION}"))
    go_mod = pathlib.Path(described["GoMod"]).read_text()
    staged = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", go_mod, re.MULTILINE)
    language = re.findall(r"^go (\S+)", go_mod, re.MULTILINE)[0]
    go("mod", "init", "control-plane")
    replaces = [f"-replace={name}={name}@{published}" for name in staged]
    go("mod", "edit", f"-go={language}", f"-require=k8s.io/kubernetes@v{KUBERNETES_VERSION}", *replaces)


def _build_kubernetes(go: _Go, names: list[str]) -> None:
    _make_kubernetes_module(go)
    minor = KUBERNETES_VERSION.split(".")[1]
    version = "k8s.io/component-base/version"
    stamp = f"-X {version}.gitVersion=v{KUBERNETES_VERSION} -X {version}.gitMajor=1 -X {version}.gitMinor={minor}"
    wanted = [KUBERNETES_PROGRAMS[name] for name in names if name in KUBERNETES_PROGRAMS]
    flags = ("build", "-mod=mod", "-trimpath")
    if wanted:
        go(*flags, "-ldflags", f"{STRIP} {stamp}", "-o", f"{go.scratch}/", *wanted)
    if "etcd" in names:
        go(*flags, "-ldflags", STRIP, "-o", str(go.scratch / "etcd"), ETCD_PACKAGE)


def build(target: pathlib.Path = TARGET) -> None:
    """Build what `missing_programs` names and move it into `target`/bin."""
    names = missing_programs(target)
    bin_dir = target / "bin"
    bin_dir.mkdir(parents=True, exist_ok=True)
    groups = [[name for name in names if name in KUBERNETES_PROGRAMS or name == "etcd"]]
    groups += [[name] for name in names if name in INSTALLED_PROGRAMS]
    for group in filter(None, groups):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="build-", dir=target) as scratch:
            go = _Go(pathlib.Path(scratch))
            if group[0] in INSTALLED_PROGRAMS:
                go("install", "-trimpath", "-ldflags", STRIP, INSTALLED_PROGRAMS[group[0]])
            else:
                _build_kubernetes(go, group)
            for name in group:
                shutil.move(go.scratch / name, bin_dir / name)
                _note_version(target, name)
        print(f"{', '.join(group)}: {time.monotonic() - started:.0f} s", flush=True)


def _note_version(target: pathlib.Path, name: str) -> None:
    path = target / VERSIONS_FILE
    built = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**built, name: PROGRAM_VERSIONS[name]}, indent=1) + "\n")


def main() -> int:
    """Parse the arguments, then build or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="build nothing; exit 1 when something is missing")
    parser.add_argument("--target", type=pathlib.Path, default=TARGET, help="a directory for bin/ and versions.json")
    args = parser.parse_args()
    if not args.check:
        args.target.mkdir(parents=True, exist_ok=True)
        build(args.target)
    missing = missing_programs(args.target)
    if missing:
        print(f"missing in {args.target}: {', '.join(missing)}; run python tools/control_plane_build.py")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
