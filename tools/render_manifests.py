"""Render the Helm chart with its defaults into deploy/kustomize, for those who install without Helm.

    python tools/render_manifests.py           write
    python tools/render_manifests.py --check   exit 1 when what is committed differs from what would be written

Each template becomes a file of the same name. The two labels that only an installation by Helm may have are left out.
kustomization.yaml carries a digest of the chart's files, so that tests notice a stale rendering also where there is no
helm. Alert rules and dashboards, which a chart can only take from its own directory, are copied into it first, what the
services take as settings is written into the schema of its values, and its README.md is made from its values.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tools.chart_readme import chart_readme

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "reput"
KUSTOMIZE = ROOT / "deploy" / "kustomize"
RELEASE = "reput"
KUBERNETES_VERSION = "1.35.4"
KUSTOMIZATION = "kustomization.yaml"
VALUES_SCHEMA = "values.schema.json"
README = "README.md"
# What the chart takes from elsewhere in the repository: source pattern below deploy/, directory in the chart.
COPIED = (("alerts/reput.rules.yaml", "files/alerts"), ("dashboards/*.json", "files/dashboards"))
_SOURCE = re.compile(r"^# Source: reput/templates/(\S+)$", re.MULTILINE)
_HELM_LABELS = re.compile(r"^ +(app\.kubernetes\.io/managed-by: Helm|helm\.sh/chart: .*)\n", re.MULTILINE)
# The schema's last member: what each component's `settings` takes.
_SETTINGS = '\n  "allOf": ['
_DIGEST = re.compile(r"^# chart sha256:([0-9a-f]{64})$", re.MULTILINE)


def find_helm() -> str:
    """Helm's path: the one that tools/control_plane_build.py made, or one on the PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    built = ROOT / ".tools" / "control-plane" / "bin" / "helm"
    found = str(built) if os.access(built, os.X_OK) else shutil.which("helm")
    if found is None:
        raise FileNotFoundError("helm is needed: run python tools/control_plane_build.py, or put it on the PATH")
    return found


def chart_digest(chart: pathlib.Path = CHART) -> str:
    """SHA-256 over the names and contents of the chart's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in chart.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(chart)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def rendered_digest() -> str:
    """The digest of the chart that deploy/kustomize was rendered from; empty when it says none."""
    found = _DIGEST.search((KUSTOMIZE / KUSTOMIZATION).read_text(encoding="utf-8"))
    return found[1] if found else ""


def copied_files() -> dict[pathlib.Path, pathlib.Path]:
    """Each copy inside the chart and its source."""
    return {
        CHART / directory / source.name: source
        for pattern, directory in COPIED
        for source in sorted((ROOT / "deploy").glob(pattern))
    }


def values_schema() -> str:
    """The schema of the chart's values; the part about `settings` is made from the services' own settings."""
    from tools.settings_schema import MODELS, settings_schema

    parts = []
    for component in MODELS:
        schema = settings_schema(component)
        rows = ",\n".join(
            f"        {json.dumps(name)}: {json.dumps(row)}" for name, row in schema.pop("properties").items()
        )
        inner = json.dumps(schema)[:-1] + f', "properties": {{\n{rows}\n      }}}}'
        parts.append(
            f'\n    {{"properties": {{{json.dumps(component)}: {{"properties": {{"settings":\n      {inner}}}}}}}}}'
        )
    schema_text = (CHART / VALUES_SCHEMA).read_text(encoding="utf-8")
    return schema_text.partition(_SETTINGS)[0] + _SETTINGS + ",".join(parts) + "\n  ]\n}\n"


def readme() -> str:
    """The chart's README, made from its values."""
    return chart_readme((CHART / "values.yaml").read_text(encoding="utf-8"))


def template(*arguments: str) -> str:
    """What `helm template` prints for the chart."""
    # Without a cluster, helm takes a version that its build was given; a plain build has an old one.
    command = [
        find_helm(),
        "template",
        RELEASE,
        str(CHART),
        "--skip-tests",
        "--kube-version",
        KUBERNETES_VERSION,
        *arguments,
    ]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def split_by_template(manifests: str) -> dict[str, str]:
    """File name -> the documents of that template, as a kustomization takes them."""
    files: dict[str, str] = {}
    for document in re.split(r"^---\n", manifests, flags=re.MULTILINE):
        source = _SOURCE.match(document)
        body = _SOURCE.sub("", document, count=1).strip("\n")
        if source is not None and body.strip():
            files.setdefault(source[1], "")
            files[source[1]] += f"---\n{_HELM_LABELS.sub('', body + chr(10))}"
    return {name: "# Rendered by tools/render_manifests.py; edit the chart.\n" + text for name, text in files.items()}


def render(target: pathlib.Path) -> None:
    """Write the kustomization and its files into `target`."""
    files = split_by_template(template())
    lines = [
        "# The whole default installation, rendered from deploy/helm/reput by tools/render_manifests.py; edit the chart.",
        "# docs/kubernetes.md says how it is installed, deploy/examples how it is changed.",
        f"# chart sha256:{chart_digest()}",
        "apiVersion: kustomize.config.k8s.io/v1beta1",
        "kind: Kustomization",
        "resources:",
        *(f"  - {name}" for name in sorted(files)),
    ]
    (target / KUSTOMIZATION).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")


def differences(target: pathlib.Path) -> list[str]:
    """Names of the files that differ between a fresh rendering and `target`, or that only one of them has."""
    stale = [str(copy) for copy, source in copied_files().items() if not _same(copy, source)]
    stale += [VALUES_SCHEMA] if (CHART / VALUES_SCHEMA).read_text(encoding="utf-8") != values_schema() else []
    stale += [README] if (CHART / README).read_text(encoding="utf-8") != readme() else []
    with tempfile.TemporaryDirectory() as scratch:
        fresh = pathlib.Path(scratch)
        render(fresh)
        names = {path.name for directory in (fresh, target) for path in directory.glob("*.yaml")}
        return stale + sorted(name for name in names if not _same(fresh / name, target / name))


def _same(one: pathlib.Path, other: pathlib.Path) -> bool:
    return one.exists() and other.exists() and one.read_bytes() == other.read_bytes()


def main() -> int:
    """Parse the arguments, then write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something is stale")
    args = parser.parse_args()
    if args.check:
        stale = differences(KUSTOMIZE)
        for name in stale:
            print(f"{name} is not what the chart renders to; run python tools/render_manifests.py")
        return 1 if stale else 0
    for copy, source in copied_files().items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    (CHART / VALUES_SCHEMA).write_text(values_schema(), encoding="utf-8")
    (CHART / README).write_text(readme(), encoding="utf-8")
    KUSTOMIZE.mkdir(exist_ok=True)
    for old in KUSTOMIZE.glob("*.yaml"):
        old.unlink()
    render(KUSTOMIZE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
