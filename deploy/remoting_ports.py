"""Which ports a stack or a cluster has for programs that speak RocketMQ's remoting protocol: its name server's and its door's.

Both are there by default. A default port that is taken is left out, by a stack, or replaced by a port of its own, by a cluster.
The default ports of one that starts are claimed, so that another one that starts at the same time finds them taken.

Claims: the claimed ports.

RemotingPorts: what was chosen, and what the services are told of it.
"""

import contextlib
import dataclasses
import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from deploy.ports import claim_port, free_ports
from services.rocketmq.address import Address, parse_named_addresses
from store.errors import InvalidArgumentError, InvalidSettingError

OFF: Literal["off"] = "off"
# Of a port that may be left out: 0 is a free one; None: its setting, or the default one if that is free.
Port = int | Literal["off"] | None
# Key in the port file -> component and setting of its address, and the default port.
REMOTING_SETTINGS = {
    "nameserver": ("nameserver", "remoting_address", 9876),
    "remoting": ("gateway", "remoting_address", 10911),
}
REMOTING_WORDS = {"nameserver": "name server", "remoting": "remoting door"}


class Claims:
    """See the top of this file."""

    def __init__(self) -> None:
        self._held = contextlib.ExitStack()

    def take(self, port: int) -> bool:
        """Claim a port of loopback until the end of this process, or `close`; False: it is taken."""
        claim = claim_port(port)
        if claim is not None:
            self._held.enter_context(claim)
        return claim is not None

    def close(self) -> None:
        """Give all of them up."""
        self._held.close()


@dataclasses.dataclass(frozen=True, slots=True)
class RemotingPorts:
    """See the top of this file.

    Attributes:
        addresses: where both listen, by key in the port file, as the services are told it; without what is left out.
        door: where the door of the stack's own shard listens; empty: it has none. A gateway with further shards has others.
        has_fast_port: doors have RocketMQ's fast port beside them, two below; not if a door's port was free by chance, because
            the one two below may be another program's next.
        told: settings of the commit log that tell clients where the own door is; empty: a setting says it, or there is none.
        leads_nowhere: clients can be told no address of the shard, so it does not register: another program may have the
            address that is the default one.
        certificate: settings by which the name server shows clients a certificate.
    """

    addresses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    door: str = ""
    has_fast_port: bool = True
    told: Mapping[str, str] = dataclasses.field(default_factory=dict)
    leads_nowhere: bool = False
    certificate: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def bound(self) -> dict[str, str]:
        """The addresses of the name server and of the own shard's door, each as `HOST:PORT`."""
        return {key: address for key, address in {**self.addresses, "remoting": self.door}.items() if address}

    @property
    def beside_gateway(self) -> tuple[str, ...]:
        """What runs in the gateway's process (deploy/beside.py)."""
        return ("nameserver",) if "nameserver" in self.addresses else ()

    def of_commitlog(self, further_nameservers: str) -> dict[str, str]:
        """Settings of the commit log, which registers the shard."""
        settings = dict(self.told)
        if self.leads_nowhere and further_nameservers:
            settings["REPUT_NAMESERVERS"] = OFF  # an empty one would leave that of a settings file
        elif not self.leads_nowhere and "nameserver" in self.addresses:
            settings["REPUT_NAMESERVERS"] = _nameservers(self.addresses, further_nameservers)
        return settings

    def of_gateway(self, nameserver_grpc: str) -> dict[str, str]:
        """Settings of the gateway and of the name server in its process, which serves gRPC at an address."""
        settings = {"REPUT_GATEWAY_REMOTING_ADDRESS": self.addresses.get("remoting", OFF)}
        if not self.has_fast_port:
            settings["REPUT_GATEWAY_REMOTING_VIP_CHANNEL"] = OFF
        if "nameserver" in self.addresses:
            settings["REPUT_NAMESERVER_REMOTING_ADDRESS"] = self.addresses["nameserver"]
            settings["REPUT_NAMESERVER_ADDRESS"] = nameserver_grpc
            settings |= self.certificate
        return settings


def values_that_are_set(environ: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """The settings of the environment or a file, by component and name, without those that have their defaults.

    Raises:
        InvalidSettingError: an unknown name, or a file that cannot be read.
    """
    from services.settings.setting_sources import DEFAULT, config_rows

    rows, _ = config_rows(environ=environ)
    return {(row.setting.component, row.setting.name): row.value for row in rows if row.origin != DEFAULT}


def choose_remoting_ports(
    ports: Mapping[str, Port],
    set_value: Callable[[str, str], str],
    say: Callable[[str], None],
    *,
    is_on: bool,
    claims: Callable[[int], bool],
    own: Mapping[str, int] | None = None,
) -> RemotingPorts:
    """Choose where the name server and the remoting door are to listen, before any service starts.

    Args:
        ports: what was asked for on loopback, by REMOTING_SETTINGS' keys; None: nothing was.
        set_value: tells a setting by component and name; empty where it has its default.
        say: told in one line which default ports are left out, and why; where clients are told another address than the
            door's; and that the shard does not register for want of one.
        is_on: what is not asked for has its default port.
        claims: claims a port; False: it is taken.
        own: ports for port 0 and instead of default ones that are taken; default: free ones, and none.

    Raises:
        InvalidSettingError: an address is none, or cannot be one of this machine.
    """
    found: dict[str, str] = {}
    left_out, free_by_chance = [], []
    door = ""
    chosen: set[int] = set()
    obstacle = _obstacle(set_value, has_door_address=bool(_asked("remoting", ports, set_value)))
    own_shard = set_value("", "broker_name") or _default_broker_name()
    for key, (component, setting, default_port) in REMOTING_SETTINGS.items():
        address = _asked(key, ports, set_value)
        if address == OFF or not (address or is_on):
            continue
        if not address:
            is_claimed = not obstacle and claims(default_port)
            if obstacle or not (is_claimed or own):
                left_out.append(key)
                continue
            address = f"127.0.0.1:{default_port if is_claimed else 0}"
        names = [own_shard] if key == "nameserver" else _shard_names(set_value, own_shard)
        places = _places(component, setting, address, names)
        if any(
            place.port == 0 for place in places.values()
        ):  # the commit log must know the port before the gateway starts
            free_by_chance.append(key)
            fixed = {own_shard: own[key]} if own else {}
            places = _with_free_ports(component, setting, places, fixed, chosen)
            address = ",".join(f"{name}={place}" if "=" in address else str(place) for name, place in places.items())
        chosen.update(place.port for place in places.values())
        found[key] = address
        if key == "remoting":
            door = str(places.get(own_shard, ""))
    if left_out:
        say(_why_left_out(left_out, obstacle))
    door_is_set = ports["remoting"] is None and bool(_asked("remoting", ports, set_value))
    is_fixed = door_is_set and "remoting" not in free_by_chance
    told = _told_already(set_value, own_shard)
    if door and told and told != door and not is_fixed:
        say(
            f"remoting clients are told {told}, as a setting says, and the door listens at {door}: where that does not lead "
            "here, set REPUT_GATEWAY_REMOTING_ADDRESS or REPUT_STORE_HOST"
        )
    has_address = bool(door or set_value("commitlog", "broker_address"))
    nameservers = _nameservers(found, set_value("", "nameservers"))
    is_meant_to_register = _nameservers({}, set_value("", "nameservers")) or "remoting" in found
    if nameservers and not has_address and is_meant_to_register:
        say(
            f"the shard does not register at {nameservers}: {own_shard} has no remoting door here; "
            "REPUT_COMMITLOG_BROKER_ADDRESS says where it has one elsewhere"
        )
    return RemotingPorts(
        found,
        door,
        has_fast_port="remoting" not in free_by_chance,
        told=_told_of(door, say) if door and not told and not set_value("commitlog", "broker_address") else {},
        leads_nowhere=not has_address,
        certificate=_certificate_of_nameserver(set_value),
    )


def _told_already(set_value: Callable[[str, str], str], own_shard: str) -> str:
    """The address that a setting tells clients, which stands in ids as well; empty: none does."""
    if listed := set_value("commitlog", "broker_address"):
        return str(_places("commitlog", "broker_address", listed, [own_shard]).get(own_shard, ""))
    return set_value("", "store_host")


def _nameservers(addresses: Mapping[str, str], further: str) -> str:
    """The own name server, as it is dialled here, and further ones."""
    own = addresses.get("nameserver", "")
    return ";".join(filter(None, (_dialled(own) or own, "" if further == OFF else further)))


def _asked(key: str, ports: Mapping[str, Port], set_value: Callable[[str, str], str]) -> str:
    """The address that a flag or a setting says, or OFF; empty where neither does."""
    port, (component, setting, _) = ports[key], REMOTING_SETTINGS[key]
    return set_value(component, setting) if port is None else port if port == OFF else f"127.0.0.1:{port}"


def _default_broker_name() -> str:
    from services.settings.setting_names import SETTINGS

    return next(str(one.default) for one in SETTINGS if (one.component, one.name) == ("", "broker_name"))


def _shard_names(set_value: Callable[[str, str], str], own_shard: str) -> list[str]:
    """The shards that the gateway knows from its settings: an address without a name is that of the only one."""
    from gateway.shards.targets import of_ordinals, parse_shards, parse_template

    try:
        shards = parse_shards(set_value("gateway", "shards"))
        if template := set_value("gateway", "shard_template"):
            shards = of_ordinals(parse_template(template), range(int(set_value("gateway", "shard_count") or 1)))
    except ValueError:  # the gateway says what is wrong
        shards = ()
    return list(dict.fromkeys(one.broker_name for one in shards)) or [own_shard]


def _places(component: str, setting: str, text: str, names: Sequence[str]) -> dict[str, Address]:
    """Where is to be listened, by the name of the shard; InvalidSettingError."""
    try:
        return parse_named_addresses(text, names, setting, port_min=0)
    except InvalidArgumentError as error:
        raise InvalidSettingError(f"settings of {component}: {setting}: {error.message}", name=setting) from error


def _with_free_ports(
    component: str, setting: str, places: Mapping[str, Address], fixed: Mapping[str, int], avoided: Collection[int]
) -> dict[str, Address]:
    """The places with a free port instead of port 0, or with a fixed one; InvalidSettingError."""
    found: dict[str, Address] = {}
    for name, place in places.items():
        found[name] = place
        if place.port == 0:
            taken = {*avoided, *(place.port for place in (*places.values(), *found.values()))}
            try:
                port = fixed.get(name) or free_ports(1, place.host, taken)[0]
            except (OSError, UnicodeError) as error:  # an empty or too long part of a name is a UnicodeError
                raise InvalidSettingError(
                    f"{component} cannot listen at {place}: {error}; set {setting} to another one",
                    name=setting,
                ) from error
            found[name] = place._replace(port=port)
    return found


def _obstacle(set_value: Callable[[str, str], str], *, has_door_address: bool) -> str:
    """Why there is neither by default, whatever ports are free, and what to do; empty where nothing is in the way."""
    shards = next((name for name in ("shards", "shards_file", "shard_template") if set_value("gateway", name)), "")
    if shards and not has_door_address:
        variable = f"REPUT_GATEWAY_{shards}".upper()
        return f"{variable} is set, and each shard needs a port: REPUT_GATEWAY_REMOTING_ADDRESS=NAME=HOST:PORT,..."
    return ""


def _certificate_of_nameserver(set_value: Callable[[str, str], str]) -> dict[str, str]:
    """Settings by which the name server shows the gateway's certificate for clients, unless it is given one of its own.

    A client of RocketMQ that uses TLS uses it for both.
    """
    names = ("public_tls_certificate", "public_tls_key")
    if any(set_value("nameserver", name) for name in names):
        return {}
    return {f"REPUT_NAMESERVER_{name}".upper(): value for name in names if (value := set_value("gateway", name))}


def _why_left_out(keys: Sequence[str], obstacle: str) -> str:
    what = " and ".join(f"no {REMOTING_WORDS[key]}" for key in keys)
    if obstacle:
        return f"{what}: {obstacle}"
    ports = [str(REMOTING_SETTINGS[key][2]) for key in keys]
    taken = f"port {ports[0]} is taken" if len(ports) == 1 else f"ports {' and '.join(ports)} are taken"
    flags = " and ".join(f"--{key}-port" for key in keys)
    return f"{what}: {taken}; {flags} choose others (0: a free one), `off` asks for none"


def _dialled(listens: str) -> str | None:
    """The `IP:PORT` at which this machine reaches what listens there; None for a name, which only DNS tells."""
    host, _, port = listens.rpartition(":")
    if host == "localhost":
        return f"127.0.0.1:{port}"
    try:
        ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return f"127.0.0.1:{port}" if ip.is_unspecified else listens


def _told_of(door: str, say: Callable[[str], None]) -> dict[str, str]:
    """Settings of the commit log that tell clients where a door listens (`HOST:PORT`).

    A name is told as it is: the commit log finds the IP for ids. An address of all interfaces cannot be dialled: then
    loopback is told, and `say` tells so.
    """
    dialled = _dialled(door)
    if dialled is None:
        return {"REPUT_COMMITLOG_BROKER_ADDRESS": door}
    if dialled != door and not door.startswith("localhost:"):
        say(f"remoting clients are told {dialled}: set REPUT_STORE_HOST to the IP and port where they reach {door}")
    return {"REPUT_STORE_HOST": dialled}
