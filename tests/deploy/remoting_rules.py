"""What the manifests must keep to for clients of RocketMQ's remoting protocol: doors, Services, name servers (ADR 0136)."""

import ipaddress
import re
from collections.abc import Iterator

from services.rocketmq.address import Address, parse_address
from tests.deploy.component_settings import load_environment
from tests.deploy.manifests import NAMESPACE, Document, environment, labels_of, of_kind, replicated_shards, workloads


def _container(documents: list[Document], component: str) -> Document:
    (container,) = workloads(documents)[component]["spec"]["template"]["spec"]["containers"]
    found: Document = container
    return found


def doors_lead_to_their_shards(documents: list[Document]) -> Iterator[str]:
    """Name servers are told an address for each shard; at it the gateways serve that shard and no other."""
    if not {"gateway", "commitlog"} <= workloads(documents).keys():
        return
    gateway = _container(documents, "gateway")
    if "REPUT_GATEWAY_REMOTING_ADDRESS" not in environment(gateway):
        yield from _nothing_leads_to_a_door(documents)
        return
    doors = load_environment("gateway", gateway).doors()
    ports = {port["name"]: port["containerPort"] for port in gateway["ports"]}
    of_part = replicated_shards(documents)
    count = int(environment(gateway)["REPUT_GATEWAY_SHARD_COUNT"])
    for shard in of_part or map(str, range(count)):
        name = f"broker-{shard}"
        told = load_environment("commitlog", _container(documents, "commitlog"), int(shard)).door()
        if told is None or name not in doors:
            yield f"{name}: its door is {doors.get(name)}, and name servers are told {told}"
            continue
        service = _dialled(documents, told, name)
        if service is None:
            yield f"{name}: nothing is called {told}"
            continue
        led = {port["port"]: ports.get(port["targetPort"]) for port in service["spec"]["ports"]}
        if led.get(told.port) != doors[name].port:
            yield f"{name}: {told} leads to the port {led.get(told.port)}, its door is at {doors[name]}"
        has_fast_port = load_environment("gateway", gateway).remoting_vip_channel == "on"
        if led.get(told.port - 2) != (doors[name].port - 2 if has_fast_port else None):
            yield f"{name}: the fast port of {told} leads to {led.get(told.port - 2)}"
        if not service["spec"]["selector"].items() <= labels_of(workloads(documents)["gateway"]).items():
            yield f"{name}: {told} does not lead to the gateways"
    if not of_part:
        yield from _a_shard_that_was_added_by_hand_tells_no_address_of_another(documents, count)


def _a_shard_that_was_added_by_hand_tells_no_address_of_another(
    documents: list[Document], ordinal: int
) -> Iterator[str]:
    """It has no Service: it may be told a name that DNS does not know, with which it does not register, or nothing."""
    container = _container(documents, "commitlog")
    told = load_environment("commitlog", container, ordinal).door()
    of_others = {load_environment("commitlog", container, other).door() for other in range(ordinal)}
    services = {f"{item['metadata']['name']}.{NAMESPACE}.svc" for item in of_kind(documents, "Service")}
    if told is not None and (told in of_others or told.host in services):
        yield f"broker-{ordinal}: it has no Service, and it is told {told}"


def _dialled(documents: list[Document], told: Address, name: str) -> Document | None:
    """The Service of a shard's door; None if that is not what is dialled."""
    suffix = name.removeprefix("broker-")
    (service,) = [
        item for item in of_kind(documents, "Service") if item["metadata"]["name"].endswith(f"-broker-{suffix}")
    ] or [None]
    if service is None:
        return None
    try:
        ipaddress.ip_address(told.host)
    except ValueError:
        return service if told.host == f"{service['metadata']['name']}.{NAMESPACE}.svc" else None
    is_at_nodes = all(port["nodePort"] == port["port"] for port in service["spec"]["ports"] if "nodePort" in port)
    return service if is_at_nodes else None


def _nothing_leads_to_a_door(documents: list[Document]) -> Iterator[str]:
    for item in of_kind(documents, "Service"):
        if re.search(r"-broker-\d+$", item["metadata"]["name"]):
            yield f"Service {item['metadata']['name']}: there are no doors"
    settings = load_environment("commitlog", _container(documents, "commitlog"))
    if settings.nameservers or settings.broker_address:
        yield f"commitlog: without doors it registers {settings.broker_address!r} at {settings.nameservers!r}"


def shards_register_at_every_name_server(documents: list[Document]) -> Iterator[str]:
    """Each name server of the installation is listed, by a name of its own."""
    if "nameserver" not in workloads(documents) or "commitlog" not in workloads(documents):
        return
    workload = workloads(documents)["nameserver"]
    service, name = workload["spec"]["serviceName"], workload["metadata"]["name"]
    ports = {
        port["port"]: port["targetPort"]
        for item in of_kind(documents, "Service")
        if item["metadata"]["name"] == service
        for port in item["spec"]["ports"]
    }
    settings = load_environment("commitlog", _container(documents, "commitlog"))
    if not settings.broker_address:
        return
    listed = [parse_address(text) for text in settings.nameservers.split(";") if text]
    wanted = [f"{name}-{ordinal}.{service}.{NAMESPACE}.svc" for ordinal in range(workload["spec"]["replicas"])]
    if [address.host for address in listed][: len(wanted)] != wanted:
        yield f"commitlog: it registers at {settings.nameservers}, the name servers are {wanted}"
    bound = load_environment("nameserver", _container(documents, "nameserver")).remoting_address.rpartition(":")[2]
    inside = {port["name"]: str(port["containerPort"]) for port in _container(documents, "nameserver")["ports"]}
    for address in listed[: len(wanted)]:
        if inside.get(ports.get(address.port, ""), "") != bound:
            yield f"nameserver: {address} leads to {ports.get(address.port)}, it listens at {bound}"
