"""Network policies, evaluated: which connections between the services pass, and which must."""

from collections.abc import Iterator

from tests.deploy.manifests import Document, labels_of, matches, of_kind, replicated_shards, workloads

# Caller -> called: the only edges between services over gRPC. docs/security.md has the same, RPC by RPC.
EDGES = {
    ("gateway", "commitlog"),
    ("gateway", "consumequeue"),
    ("gateway", "index"),
    ("consumequeue", "commitlog"),
    ("index", "commitlog"),
    ("gateway", "consumer"),
    ("consumer", "commitlog"),
    ("consumer", "consumequeue"),
    ("gateway", "schedule"),
    ("schedule", "commitlog"),
    ("schedule", "consumequeue"),
}


def only_needed_edges_are_open(documents: list[Document]) -> Iterator[str]:
    """What is open and not needed, or needed and closed."""
    policies = of_kind(documents, "NetworkPolicy")
    by_component = workloads(documents)
    for component, workload in by_component.items():
        chosen = [item for item in policies if matches(item["spec"]["podSelector"], labels_of(workload))]
        if not any(set(item["spec"]["policyTypes"]) == {"Ingress", "Egress"} for item in chosen):
            yield f"{component}: no policy denies what is not allowed"
    # The replicas of a shard copy the log from one another.
    edges = EDGES | ({("commitlog", "commitlog")} if replicated_shards(documents) else set())
    ports = {
        "gateway": 8081,
        "commitlog": 8082,
        "consumequeue": 8083,
        "index": 8084,
        "consumer": 8085,
        "schedule": 8086,
        "nameserver": 9876,
    }
    (gateway,) = (
        by_component["gateway"]["spec"]["template"]["spec"]["containers"] if "gateway" in by_component else [{}]
    )
    doors = {entry["containerPort"] for entry in gateway.get("ports", []) if entry["name"].startswith("door-")}
    if "nameserver" in by_component and doors:
        edges |= {("commitlog", "nameserver"), ("gateway", "nameserver")}
    for caller in by_component:
        for called in by_component:
            for port in (*ports.values(), *doors, 8087, 8090, 9090):
                is_open = _is_open(policies, by_component[caller], by_component[called], port)
                is_needed = (caller, called) in edges and port == ports[called]
                if is_open != is_needed:
                    yield f"{caller} -> {called}:{port} is {'open' if is_open else 'closed'}"
    for called in by_component:
        for port in (*ports.values(), *doors, 8087):
            is_open = _is_open_to_clients(policies, by_component[called], port)
            is_needed = (called in ("gateway", "nameserver") and port == ports[called]) or (
                called == "gateway" and port in doors
            )
            if is_open != is_needed:
                yield f"a client -> {called}:{port} is {'open' if is_open else 'closed'}"
    resolvers = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}
    for component in {caller for caller, _ in edges}:
        rules = [
            rule
            for item in policies
            if matches(item["spec"]["podSelector"], labels_of(by_component[component]))
            for rule in item["spec"].get("egress") or []
        ]
        if not any(
            rule.get("to") == [resolvers] and {"protocol": "UDP", "port": 53} in rule["ports"] for rule in rules
        ):
            yield f"{component}: may not ask for names"


def _is_open(policies: list[Document], caller: Document, called: Document, port: int) -> bool:
    """Whether both ends' policies let a connection pass: what no policy selects is open."""

    def passes(here: Document, other: Document, direction: str, peers: str) -> bool:
        chosen = [
            item["spec"]
            for item in policies
            if matches(item["spec"]["podSelector"], labels_of(here))
            and direction.title() in item["spec"]["policyTypes"]
        ]
        rules = [rule for spec in chosen for rule in spec.get(direction) or []]
        return not chosen or any(
            (peers not in rule or any(_is_peer(peer, other) for peer in rule[peers]))
            and ("ports" not in rule or any(_has_port(entry, port) for entry in rule["ports"]))
            for rule in rules
        )

    return passes(caller, called, "egress", "to") and passes(called, caller, "ingress", "from")


def _has_port(entry: Document, port: int) -> bool:
    first: int = entry["port"]
    return first <= port <= int(entry.get("endPort", first))


def _is_open_to_clients(policies: list[Document], called: Document, port: int) -> bool:
    """Whether a pod of the namespace that is none of ours may connect."""
    rules = [
        rule
        for item in policies
        if matches(item["spec"]["podSelector"], labels_of(called))
        for rule in item["spec"].get("ingress") or []
    ]
    return any(
        any(_has_port(entry, port) for entry in rule.get("ports", []))
        and (
            "from" not in rule
            or any(matches(peer.get("podSelector", {"matchLabels": {"?": "?"}}), {}) for peer in rule["from"])
        )
        for rule in rules
    )


def _is_peer(peer: Document, workload: Document) -> bool:
    # Namespaces other than the installation's own are not looked into; DNS's pods are none of ours.
    return "podSelector" in peer and matches(peer["podSelector"], labels_of(workload))
