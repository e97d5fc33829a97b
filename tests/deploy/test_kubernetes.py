"""The manifests of deploy/kustomize and the values of the chart, checked without a cluster and without helm."""

import base64
import copy
import functools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from services.settings.certificates import parse_identities
from tests.deploy import manifests
from tests.deploy.component_settings import load_environment
from tests.deploy.manifest_rules import breaches
from tests.deploy.manifests import COMPONENTS, Document, of_kind
from tests.deploy.seeded_mistakes import MISTAKES, Mistake
from tools.render_manifests import (
    KUSTOMIZATION,
    KUSTOMIZE,
    chart_digest,
    copied_files,
    readme,
    rendered_digest,
    values_schema,
)

yaml = pytest.importorskip("yaml", reason="needs PyYAML")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "reput"
SCHEMA_VERSIONS = ("1.32", "1.35")  # the oldest that the chart allows, and the one that the cluster tests run


def _installation() -> list[Document]:
    listed = yaml.safe_load((KUSTOMIZE / KUSTOMIZATION).read_text(encoding="utf-8"))["resources"]
    return [document for name in listed for document in yaml.safe_load_all((KUSTOMIZE / name).read_text("utf-8"))]


INSTALLATION = _installation()


def _schema_refusals(documents: list[Document], version: str = SCHEMA_VERSIONS[-1]) -> list[str]:
    refusals = []
    for document in documents:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            refusals.append(f"{document['kind']} {document['metadata']['name']}: {error.path}: {error.message}")
    return refusals


def test_the_installation_keeps_every_rule() -> None:
    assert breaches(INSTALLATION) == []


@pytest.mark.parametrize("version", SCHEMA_VERSIONS)
def test_every_document_fits_its_schema(version: str) -> None:
    assert _schema_refusals(INSTALLATION, version) == []


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m.refused_by in ("rules", "schema")], ids=lambda m: m.name)
def test_a_mistake_is_refused_without_a_cluster(mistake: Mistake) -> None:
    made = mistake.made_in(INSTALLATION)
    # What the mistake did not change fits: see the test above.
    changed = [document for document in made if document not in INSTALLATION]
    refusals = breaches(made) if mistake.refused_by == "rules" else _schema_refusals(changed)
    assert mistake.says in "\n".join(refusals)


def test_the_rendering_is_that_of_the_chart_as_it_is() -> None:
    assert rendered_digest() == chart_digest(), "run python tools/render_manifests.py"
    assert (CHART / "values.schema.json").read_text(encoding="utf-8") == values_schema()
    assert (CHART / "README.md").read_text(encoding="utf-8") == readme(), "run python tools/render_manifests.py"
    for copied, source in copied_files().items():
        assert copied.read_bytes() == source.read_bytes(), "run python tools/render_manifests.py"


def test_the_kustomization_names_every_file() -> None:
    listed = yaml.safe_load((KUSTOMIZE / KUSTOMIZATION).read_text(encoding="utf-8"))["resources"]
    assert sorted(listed) == sorted(path.name for path in KUSTOMIZE.glob("*.yaml") if path.name != KUSTOMIZATION)


def test_the_default_needs_no_kind_that_a_bare_cluster_lacks() -> None:
    groups = {document["apiVersion"].rpartition("/")[0] for document in INSTALLATION}
    assert groups == {"", "apps", "autoscaling", "networking.k8s.io", "policy"}


def test_the_version_is_the_project_s() -> None:
    from cli.main import version

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == version()
    images = {container["image"] for _, _, container in manifests.containers(INSTALLATION)}
    assert images == {f"reput:{version()}"}


@functools.cache
def _defaults() -> Document:
    values: Document = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return values


def _values(**changes: Any) -> Document:
    values = copy.deepcopy(_defaults())
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = values
        for name in parents:
            place = place[name]
        place[last] = value
    return values


@functools.cache
def _validator() -> Any:
    from jsonschema import Draft7Validator

    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def _value_errors(values: Document) -> list[str]:
    return [error.message for error in _validator().iter_errors(values)]


def test_the_default_values_fit_their_schema_which_knows_each_of_them() -> None:
    assert _value_errors(_values()) == []

    def paths(values: Document, schema: Document) -> None:
        for name, value in values.items():
            known = schema["properties"][name] if "properties" in schema else {}
            if "$ref" in known:
                known = definitions[known["$ref"].rpartition("/")[2]]
            assert known, f"the schema does not know {name}"
            if isinstance(value, dict) and "properties" in known:
                paths(value, known)

    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    definitions = schema["definitions"]
    paths(_values(), schema)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("shards", 0),
        ("shards", 257),
        ("shards", "3"),
        ("shard", 3),
        ("allowFewerShards", "yes"),
        ("image__tag", "latest"),
        ("image__digest", "sha256:12"),
        ("commitlog__storage__size", "50 GB"),
        ("commitlog__resources", {"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {}}),
        ("commitlog__settings", {"REPUT_STORE": "/elsewhere"}),
        ("replicas", 0),
        ("replicas", 4),
        ("replica", 3),
        ("replication__minInsync", 2),
        ("replication__minInSync", 4),
        ("replication__antiAffinity", "firm"),
        ("networkPolicy__apiServer", {"addresses": ["10.0.0.1"], "ports": [443]}),
        # Made from `replicas` and `replication`.
        ("commitlog__settings", {"REPUT_COMMITLOG_MIN_IN_SYNC": 1}),
        ("commitlog__settings", {"REPUT_COMMITLOG_REPLICA_NAME": "r1"}),
        ("commitlog__settings", {"LOG_LEVEL": "debug"}),
        # Misspelled, which the service would refuse at its start.
        ("commitlog__settings", {"REPUT_COMMITLOG_FLUSHMODE": "sync"}),
        ("gateway__extraVolumeMounts", [{"name": "archive"}]),
        ("index__initContainers", [{"image": "x"}]),
        ("commitlog__storage__dataSource", {"kind": "VolumeSnapshot"}),
        ("gateway__archive", {"claim": "reput-archive"}),
        ("gateway__settings", {"REPUT_GATEWAY_PAGE_TOKEN_SECRET": "in the open"}),
        ("gateway__autoscaling__minReplicas", 0),
        ("gateway__autoscaling__behavior", {"scaleOut": {}}),
        ("gateway__ingress__grpc__enabled", True),  # without a host name
        ("gateway__ingress__console__host", "not a host"),
        ("gateway__route__grpc__enabled", True),  # without a parent
        ("gateway__remoting__addresses", ["messages.example.org:10911"]),  # ids have room for an IP only
        ("gateway__remoting__addresses", ["192.0.2.1:30911", "192.0.2.1:30911"]),  # one address for two shards
        ("gateway__remoting__service__type", "ExternalName"),
        ("nameserver__replicas", 0),
        ("nameserver__replicas", 9),  # a shard registers at 16 name servers at most, 8 of them external
        ("nameserver__external", ["10.0.0.9"]),
        ("nameserver__service__type", "ClusterIP"),
        # Made from `gateway.remoting` and `nameserver`.
        ("commitlog__settings", {"REPUT_NAMESERVERS": "10.0.0.9:9876"}),
        ("commitlog__settings", {"REPUT_COMMITLOG_BROKER_ADDRESS": "10.0.0.9:10911"}),
        ("gateway__settings", {"REPUT_GATEWAY_REMOTING_ADDRESS": "0.0.0.0:10911"}),
        ("gateway__route__backendTls__enabled", True),  # without an authority
        ("commitlog__storage__existingPath", "../elsewhere"),
        ("commitlog__storage__existingPath", "/absolute"),
        ("helmTest__topic", "no topic"),
        ("gateway__startupSeconds", 1),
        ("tls__certManager__issuer__kind", "Signer"),
        ("networkPolicy__clients", "everybody"),
        ("priorityClass__value", 2_000_000_000),
    ],
)
def test_a_wrong_value_is_refused(path: str, value: object) -> None:
    assert _value_errors(_values(**{path: value}))


def _secrets(directory: Path, *arguments: str) -> dict[str, dict[str, bytes]]:
    command = [ROOT / "deploy" / "make-secrets", "--ca-dir", directory, *arguments]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    documents = list(yaml.safe_load_all(made))
    assert _schema_refusals(documents) == []
    return {
        document["metadata"]["name"]: {key: base64.b64decode(text) for key, text in document["data"].items()}
        for document in documents
    }


def _openssl(*arguments: str | Path) -> str:
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True).stdout


def test_make_secrets_makes_what_the_pods_read(tmp_path: Path) -> None:
    made = _secrets(tmp_path / "ca", "--namespace", manifests.NAMESPACE)
    read = manifests.secret_references(INSTALLATION)
    assert read.keys() == made.keys()
    for name, keys in read.items():
        assert keys <= made[name].keys(), name
    assert len(made["reput-page-token"]["secret"]) >= 32


def test_certificates_have_the_names_that_are_dialled_and_the_identities_that_are_asked_for(tmp_path: Path) -> None:
    made = _secrets(tmp_path / "ca", "--namespace", manifests.NAMESPACE, "--gateway-dns", "messages.example.org")
    dialled = {component: set[str]() for component in COMPONENTS}
    dialled["gateway"] = {"messages.example.org", "reput-gateway"}
    dialled["nameserver"] = {f"reput-nameserver-1.reput-nameserver.{manifests.NAMESPACE}.svc"}
    roles: dict[str, str] = {}
    for component, _, container in manifests.containers(INSTALLATION):
        roles |= parse_identities(load_environment(component, container).allowed_identities)
        for value in manifests.environment(container).values():
            for host, called in re.findall(r"dns:///([^:,;]+\.reput-(\w+)\.[^:,;]+):\d+", value):
                dialled[called].add(host.replace("{i}", "11"))
    for component in COMPONENTS:
        for key, content in made[f"reput-tls-{component}"].items():
            (tmp_path / key).write_bytes(content)
        certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
        for purpose in ("sslserver", "sslclient"):
            assert "OK" in _openssl("verify", "-CAfile", tmp_path / "ca.crt", "-purpose", purpose, certificate)
        assert _openssl("pkey", "-in", key, "-pubout") == _openssl("x509", "-in", certificate, "-pubkey", "-noout")
        assert dialled[component]
        for host in dialled[component]:
            assert "does match" in _openssl("x509", "-in", certificate, "-noout", "-checkhost", host)
        names = _openssl("x509", "-in", certificate, "-noout", "-ext", "subjectAltName")
        (uri,) = re.findall(r"URI:([^\s,]+)", names)
        assert uri == f"spiffe://reput/{component}"
        # The name server calls no service.
        assert roles.get(uri) == (component if component != "nameserver" else None)


def test_make_secrets_renews_under_the_same_authority_and_keeps_the_page_token(tmp_path: Path) -> None:
    first, second = (_secrets(tmp_path / "ca", "--name", "store") for _ in range(2))
    other = _secrets(tmp_path / "other", "--name", "store")
    assert first["store-page-token"] == second["store-page-token"] != other["store-page-token"]
    one, two, three = (made["store-tls-index"] for made in (first, second, other))
    assert one["ca.crt"] == two["ca.crt"] != three["ca.crt"]
    assert one["tls.crt"] != two["tls.crt"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "ca").iterdir())


@pytest.mark.parametrize("arguments", [("--namespace", "No!"), ("--days", "0"), ("--nonsense",), ("--name",)])
def test_make_secrets_refuses_what_it_does_not_understand(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command = [ROOT / "deploy" / "make-secrets", "--ca-dir", tmp_path / "ca", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert arguments[0] in done.stderr


def test_the_page_names_every_component_and_no_absent_file() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    for path in re.findall(r"(?<![\w/])(?:deploy|docs|tools)/[\w./-]+\w", page):
        assert (ROOT / path).exists(), path
    assert all(f"reput-{component}" in page for component in COMPONENTS)
    assert len(of_kind(INSTALLATION, "PodDisruptionBudget")) == len(COMPONENTS)
