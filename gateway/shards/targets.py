"""The addresses of shards, as text: a list, a file of such lists, or a template for ordinals.

list       NAME=commitlog=ADDRESS,consumequeue=ADDRESS,index=ADDRESS;NAME=...    `;` or a new line ends a shard
file       the same; `#` begins a comment
template   one shard; its name and each address contain {i}, the ordinal from 0 on

The services of a shard may have any order. An older form has no service names and a fixed order:
NAME=ADDRESS,ADDRESS,ADDRESS. It still works for commitlog, consumequeue and index.
"""

import re
from dataclasses import asdict, dataclass

ORDINAL = "{i}"
SERVICES = ("commitlog", "consumequeue", "index")  # the fields of ShardTargets; the older form has their order
_NAMED = re.compile(r"([a-z][a-z_]*)\s*=\s*(.*)")  # no address begins like this: a scheme ends with a colon
_FORM = "NAME=" + ",".join(f"{service}=ADDRESS" for service in SERVICES)


@dataclass(frozen=True, slots=True)
class ShardTargets:
    """A shard's name, and the address of each of its services."""

    broker_name: str
    commitlog: str
    consumequeue: str
    index: str

    def of_ordinal(self, ordinal: int) -> "ShardTargets":
        """The shard of that number, when this is a template."""
        fields = {name: text.replace(ORDINAL, str(ordinal)) for name, text in asdict(self).items()}
        return ShardTargets(**fields)


def parse_shards(text: str) -> tuple[ShardTargets, ...]:
    """The shards of a list; empty for an empty text.

    Raises:
        ValueError: a shard is incomplete or has an unknown service, or two have one name.
    """
    shards = [_parse_shard(part) for part in map(str.strip, text.replace("\n", ";").split(";")) if part]
    names = [shard.broker_name for shard in shards]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two shards are called {twice!r}: give each a name of its own")
    return tuple(shards)


def parse_file(text: str) -> tuple[ShardTargets, ...]:
    """The shards of a file, at least one; errors as `parse_shards`."""
    shards = parse_shards("\n".join(line.partition("#")[0] for line in text.splitlines()))
    if not shards:
        raise ValueError(f"the file names no shard: write a line {_FORM}")
    return shards


def parse_template(text: str) -> ShardTargets:
    """The template.

    Raises:
        ValueError: it is not one shard, or a field has no `{i}`, so that all ordinals would share it.
    """
    shards = parse_shards(text)
    if len(shards) != 1:
        raise ValueError(f"a template is one shard, not {len(shards)}")
    (shard,) = shards
    for name, field in asdict(shard).items():
        if ORDINAL not in field:
            raise ValueError(f"the template's {name} {field!r} has no {ORDINAL}, so all shards would share it")
    return shard


def _parse_shard(text: str) -> ShardTargets:
    name, equals, targets = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise ValueError(f"{text!r} is not a shard: write {_FORM}")
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
        if service not in SERVICES:
            raise ValueError(f"shard {name!r}: there is no service {service!r}; there are {', '.join(SERVICES)}")
        if service in addresses:
            raise ValueError(f"shard {name!r} has two addresses of {service}: give one")
        addresses[service] = address
    for service in SERVICES:
        if not addresses.get(service):
            raise ValueError(f"shard {name!r} has no address of {service}: write {_FORM}")
    return ShardTargets(name, **addresses)
