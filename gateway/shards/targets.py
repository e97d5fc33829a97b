"""The addresses of shards, as text: a list, a file of such lists, or a template for ordinals.

list       NAME=commitlog=ADDRESS,consumequeue=ADDRESS,index=ADDRESS,consumer=ADDRESS,schedule=ADDRESS;NAME=...
           `;` or a new line ends a shard
file       the same; `#` begins a comment
template   one shard, or each of its replicas; its name and each address contain {i}, the ordinal from 0 on

The services of a shard may have any order. `consumer` may be left out: such a shard delivers nothing; and `schedule`: messages
that wait are not delivered. An older form has no service names and a fixed order: NAME=ADDRESS,ADDRESS,ADDRESS. It still works
for commitlog, consumequeue and index.

A shard with several replicas is several entries, each with the name of the replica behind the shard's:
NAME@REPLICA=commitlog=ADDRESS,... `gateway/shards/leaders.py` finds the one that leads.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

ORDINAL = "{i}"
SERVICES = ("commitlog", "consumequeue", "index")  # that each shard has; the older form has their order
OPTIONAL_SERVICES = ("consumer", "schedule")
_NAMED = re.compile(r"([a-z][a-z_]*)\s*=\s*(.*)")  # no address begins like this: a scheme ends with a colon
_FORM = "NAME=" + ",".join(f"{service}=ADDRESS" for service in (*SERVICES, *OPTIONAL_SERVICES))


@dataclass(frozen=True, slots=True)
class ShardTargets:
    """A shard's name, and the address of each of its services; those of `consumer` and `schedule` may be empty.

    `replica` is the name of the replica that these are the services of; empty for a shard without replicas.
    """

    broker_name: str
    commitlog: str
    consumequeue: str
    index: str
    consumer: str = ""
    schedule: str = ""
    replica: str = ""

    def of_ordinal(self, ordinal: int) -> "ShardTargets":
        """The shard of that number, when this is a template."""
        fields = {name: text.replace(ORDINAL, str(ordinal)) for name, text in asdict(self).items()}
        return ShardTargets(**fields)


def parse_shards(text: str) -> tuple[ShardTargets, ...]:
    """The shards of a list, each replica by itself; empty for an empty text.

    Raises:
        ValueError: a shard is incomplete or has an unknown service, or two have one name.
    """
    shards = [_parse_shard(part) for part in map(str.strip, text.replace("\n", ";").split(";")) if part]
    replicas: dict[str, list[str]] = {}
    for shard in shards:
        known = replicas.setdefault(shard.broker_name, [])
        if known and not (shard.replica and all(known)):
            raise ValueError(
                f"two shards are called {shard.broker_name!r}: give each a name of its own, or each replica of it a name "
                f"({shard.broker_name}@REPLICA=...)"
            )
        if shard.replica in known:
            raise ValueError(f"shard {shard.broker_name!r} has two replicas {shard.replica!r}: give each its own name")
        known.append(shard.replica)
    return tuple(shards)


def parse_file(text: str) -> tuple[ShardTargets, ...]:
    """The shards of a file, at least one; errors as `parse_shards`."""
    shards = parse_shards("\n".join(line.partition("#")[0] for line in text.splitlines()))
    if not shards:
        raise ValueError(f"the file names no shard: write a line {_FORM}")
    return shards


def parse_template(text: str) -> tuple[ShardTargets, ...]:
    """The template: one shard, each replica by itself.

    Raises:
        ValueError: it is not one shard, or a field has no `{i}`, so that all ordinals would share it.
    """
    replicas = parse_shards(text)
    names = {one.broker_name for one in replicas}
    if len(names) != 1:
        raise ValueError(f"a template is one shard, not {len(names)}")
    for one in replicas:
        for name, field in asdict(one).items():
            if name != "replica" and ORDINAL not in field and (field or name not in OPTIONAL_SERVICES):
                raise ValueError(f"the template's {name} {field!r} has no {ORDINAL}, so all shards would share it")
    return replicas


def of_ordinals(template: Sequence[ShardTargets], ordinals: Iterable[int]) -> tuple[ShardTargets, ...]:
    """The shards of those numbers, each replica by itself."""
    return tuple(one.of_ordinal(ordinal) for ordinal in ordinals for one in template)


def _parse_shard(text: str) -> ShardTargets:
    name, equals, targets = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise ValueError(f"{text!r} is not a shard: write {_FORM}")
    name, at, replica = (part.strip() for part in name.partition("@"))
    if not name or (at and not replica):
        raise ValueError(f"{text!r} has no name of a shard, or of a replica behind the @: write NAME@REPLICA=...")
    parts = [part.strip() for part in targets.split(",")]
    if not any(map(_NAMED.fullmatch, parts)):
        if len(parts) != len(SERVICES):
            raise ValueError(f"shard {name!r} has {len(parts)} addresses without service names: write {_FORM}")
        parts = [f"{service}={address}" for service, address in zip(SERVICES, parts, strict=True)]
    addresses: dict[str, str] = {}
    for part in parts:
        named = _NAMED.fullmatch(part)
        if named is None:
            raise ValueError(f"shard {name!r}: {part!r} has no service name: write {_FORM}")
        service, address = named.groups()
        if service not in (*SERVICES, *OPTIONAL_SERVICES):
            known = ", ".join((*SERVICES, *OPTIONAL_SERVICES))
            raise ValueError(f"shard {name!r}: there is no service {service!r}; there are {known}")
        if service in addresses:
            raise ValueError(f"shard {name!r} has two addresses of {service}: give one")
        addresses[service] = address
    for service in (*SERVICES, *addresses):
        if not addresses.get(service):
            raise ValueError(f"shard {name!r} has no address of {service}: write {_FORM}")
    return ShardTargets(name, **addresses, replica=replica)
