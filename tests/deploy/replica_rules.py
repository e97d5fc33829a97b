"""What the manifests of shards with replicas must keep to besides (manifest_rules.py)."""

import re
from collections.abc import Iterator

from services.coordination.access import SERVICE_ACCOUNT, KubernetesAddress, parse_address
from tests.deploy.component_settings import load_environment
from tests.deploy.manifests import (
    NAMESPACE,
    OF_SHARD,
    ORDINAL,
    Document,
    containers,
    environment,
    labels_of,
    matches,
    of_kind,
    replicated_shards,
    shard_sets,
    workloads,
)


def replica_ordinals(documents: list[Document]) -> range:
    """The ordinals of the replicas of a shard."""
    return range(max(item["spec"]["replicas"] for item in shard_sets(documents)))


def shards_are_counted(documents: list[Document]) -> Iterator[str]:
    """The gateway counts all shards and all replicas; to be asked of all documents together."""
    if "gateway" not in workloads(documents):
        return
    (gateway,) = workloads(documents)["gateway"]["spec"]["template"]["spec"]["containers"]
    count = environment(gateway).get("REPUT_GATEWAY_SHARD_COUNT")
    sets = shard_sets(documents)
    replicas = {item["spec"]["replicas"] for item in sets}
    shards = replicated_shards(documents)
    if not shards:
        if {str(number) for number in replicas} != {count}:
            yield f"the gateway counts {count} shards, the StatefulSets have {replicas} replicas"
        return
    if shards != [str(number) for number in range(int(count or 0))] or len(sets) != len(shards) * len(OF_SHARD):
        yield f"the gateway counts {count} shards, there are {len(sets)} StatefulSets of {shards}"
    named = sorted(set(re.findall(r"@(\w+)=", environment(gateway)["REPUT_GATEWAY_SHARD_TEMPLATE"])))
    if len(replicas) != 1 or named != [f"r{number}" for number in replica_ordinals(documents)]:
        yield f"the gateway knows the replicas {named}, the StatefulSets have {replicas} replicas"


def replicas_stand_apart_and_hand_over(documents: list[Document]) -> Iterator[str]:
    """Replicas of a shard are on different nodes, where that is possible, and a leader that is stopped hands over before."""
    if not replicated_shards(documents):
        return
    workload = workloads(documents)["commitlog"]
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    apart = (pod.get("affinity") or {}).get("podAntiAffinity", {})
    terms = apart.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    terms += [one["podAffinityTerm"] for one in apart.get("preferredDuringSchedulingIgnoredDuringExecution", [])]
    if not any(matches(term["labelSelector"], labels_of(workload)) for term in terms):
        yield "commitlog: the replicas of a shard may all be on one node"
    command = " ".join(container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", []))
    if "reput lead --leave" not in command:
        yield "commitlog: a leader that is stopped does not hand over before"
    settings = load_environment("commitlog", container)
    if settings.replica_name != f"r{ORDINAL}" or not settings.coordinator.startswith(f"kubernetes://{NAMESPACE}/"):
        yield f"commitlog: it is replica {settings.replica_name!r} at {settings.coordinator!r}"
    if not 1 <= settings.min_in_sync <= workload["spec"]["replicas"]:
        yield f"commitlog: {settings.min_in_sync} in-sync replicas of {workload['spec']['replicas']} are needed"


def accounts_may_only_keep_their_leases(documents: list[Document]) -> Iterator[str]:
    """No account may do anything; with replicas, commit logs may keep the Leases of their shards, by name."""
    shards = replicated_shards(documents)
    accounts = {item["metadata"]["name"]: item for item in of_kind(documents, "ServiceAccount")}
    for component, workload in workloads(documents).items():
        account = accounts.get(workload["spec"]["template"]["spec"].get("serviceAccountName", ""), {})
        if account.get("automountServiceAccountToken") is not False:
            yield f"{component}: its account is missing, or its token is mounted"
    for component, pod, container in containers(documents):
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        tokens = [volume["name"] for volume in pod["volumes"] if "projected" in volume]
        if tokens != (["lease-token"] if shards and component == "commitlog" else []):
            yield f"{component}: it has the tokens {tokens}"
        for name in tokens:
            if mounts.get(name) != {"name": name, "mountPath": str(SERVICE_ACCOUNT), "readOnly": True}:
                yield f"{component}: the token is not where it is looked for: {mounts.get(name)}"
    if not shards:
        for item in of_kind(documents, "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
            yield f"{item['kind']} {item['metadata']['name']}: nothing here speaks to the API server"
        return
    for item in of_kind(documents, "ClusterRole", "ClusterRoleBinding"):
        yield f"{item['kind']} {item['metadata']['name']}: more than the namespace"
    allowed = {
        (group, resource, verb, *rule.get("resourceNames", ["any"]))
        for role in of_kind(documents, "Role")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    (gateway,) = workloads(documents)["gateway"]["spec"]["template"]["spec"]["containers"]
    every = [f"broker-{number}" for number in range(int(environment(gateway)["REPUT_GATEWAY_SHARD_COUNT"]))]
    (container,) = workloads(documents)["commitlog"]["spec"]["template"]["spec"]["containers"]
    address = parse_address(load_environment("commitlog", container).coordinator)
    assert isinstance(address, KubernetesAddress)
    leases = [address.lease_name(shard) for shard in every]
    group = "coordination.k8s.io"
    if allowed != {(group, "leases", verb, *leases) for verb in ("get", "update")} | {
        (group, "leases", "create", "any")
    }:
        yield f"the roles allow {sorted(allowed)}, the Leases are {leases}"
    subjects = [subject["name"] for item in of_kind(documents, "RoleBinding") for subject in item["subjects"]]
    if subjects != [workloads(documents)["commitlog"]["spec"]["template"]["spec"]["serviceAccountName"]]:
        yield f"the Leases are kept by {subjects}"
