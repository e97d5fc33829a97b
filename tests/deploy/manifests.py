"""Reading the manifests of an installation: workloads by component, and what the kubelet would give a container."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from tools.render_manifests import template

Document = dict[str, Any]

STORES = ("commitlog", "consumequeue", "index")  # with a volume each
OF_SHARD = (*STORES, "consumer", "schedule")
COMPONENTS = ("gateway", *OF_SHARD, "nameserver")
ORDINAL = 7
NAMESPACE = "somewhere"
SHARD_LABEL = "reput.io/shard"  # of what belongs to one shard with replicas


def parsed(manifests: str) -> list[Document]:
    """The documents of a text."""
    # libyaml's parser takes an eighth of the time of the plain one.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(manifests, loader) if document is not None]


def rendered(*arguments: str) -> list[Document]:
    """What `helm template` makes of the chart."""
    return parsed(template(*arguments))


def of_kind(documents: Iterable[Document], *kinds: str) -> list[Document]:
    """The documents of those kinds."""
    return [document for document in documents if document["kind"] in kinds]


def workloads(documents: Iterable[Document]) -> dict[str, Document]:
    """Component -> its Deployment or StatefulSet."""
    return {
        workload["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: workload
        for workload in of_kind(documents, "Deployment", "StatefulSet")
    }


def replicated_shards(documents: Iterable[Document]) -> list[str]:
    """The numbers of the shards that have replicas, as texts; empty where an ordinal is a shard."""
    return sorted({labels_of(load).get(SHARD_LABEL, "") for load in of_kind(documents, "StatefulSet")} - {""})


def shard_sets(documents: Iterable[Document]) -> list[Document]:
    """The StatefulSets of the shards' services."""
    return [
        item for item in of_kind(documents, "StatefulSet") if labels_of(item)["app.kubernetes.io/component"] in OF_SHARD
    ]


def without_other_shards(documents: Iterable[Document], shard: str) -> list[Document]:
    """The documents but those that belong to other shards with replicas."""
    return [item for item in documents if item["metadata"]["labels"].get(SHARD_LABEL, shard) == shard]


def containers(documents: Iterable[Document]) -> Iterator[tuple[str, Document, Document]]:
    """(component, pod spec, container) of each container."""
    for component, workload in workloads(documents).items():
        pod = workload["spec"]["template"]["spec"]
        for container in pod.get("initContainers", []) + pod["containers"]:
            yield component, pod, container


def environment(container: Document, ordinal: int = ORDINAL) -> dict[str, str]:
    """A container's variables as the kubelet would make them for an ordinal; those from Secrets get a text."""
    values: dict[str, str] = {}
    for variable in container["env"]:
        source = variable.get("valueFrom", {})
        path = source.get("fieldRef", {}).get("fieldPath", "")
        if "secretKeyRef" in source:
            text = "from-a-secret"
        elif path:
            text = {"metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal), "metadata.namespace": NAMESPACE}[
                path
            ]
        else:
            text = variable["value"]
        # A reference to what stands further down, or nowhere, stays as it is.
        values[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), text)
    return values


def matches(selector: Document, labels: Document) -> bool:
    """Whether a selector of labels chooses these."""
    wanted = selector.get("matchLabels", {})
    return wanted.items() <= labels.items() and not selector.get("matchExpressions")


def labels_of(workload: Document) -> Document:
    """The labels of its pods."""
    labels: Document = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def secret_references(documents: Iterable[Document]) -> dict[str, set[str]]:
    """Secret name -> the keys of it that are read; for a mounted Secret, the files that the settings name."""
    found: dict[str, set[str]] = {}
    for _, pod, container in containers(documents):
        for variable in container["env"]:
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                found.setdefault(reference["name"], set()).add(reference["key"])
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        for volume in pod["volumes"]:
            if "secret" in volume:
                prefix = mounts[volume["name"]] + "/"
                files = [text for text in environment(container).values() if text.startswith(prefix)]
                found.setdefault(volume["secret"]["secretName"], set()).update(
                    name.removeprefix(prefix) for name in files
                )
    return found
