"""Where shards are, as text: a list, a file of such lists, or a template for ordinals.

list       name=commitlog,consumequeue,index;name=...        `;` or a new line ends one; `#` begins a comment in a file
template   name-{i}=commitlog-{i}...,consumequeue-{i}...,index-{i}...        {i} is the ordinal, from 0
"""

from dataclasses import dataclass

ORDINAL = "{i}"
SERVICE_COUNT = 3


@dataclass(frozen=True, slots=True)
class ShardTargets:
    """A shard's name and where its three services are."""

    broker_name: str
    commitlog: str
    consumequeue: str
    index: str

    def of_ordinal(self, ordinal: int) -> "ShardTargets":
        """The shard of that number, when this is a template."""
        number = str(ordinal)
        fields = (self.broker_name, self.commitlog, self.consumequeue, self.index)
        return ShardTargets(*(field.replace(ORDINAL, number) for field in fields))


def parse_shards(text: str) -> tuple[ShardTargets, ...]:
    """The shards of a list, none of an empty one.

    Raises:
        ValueError: it is no such list, or two have one name.
    """
    shards: list[ShardTargets] = []
    for part in filter(None, (part.strip() for part in text.replace("\n", ";").split(";"))):
        name, equals, targets = part.partition("=")
        addresses = [address.strip() for address in targets.split(",")]
        if not equals or not name.strip() or len(addresses) != SERVICE_COUNT or not all(addresses):
            raise ValueError(f"{part!r} is not name=commitlog,consumequeue,index")
        shards.append(ShardTargets(name.strip(), *addresses))
    names = [shard.broker_name for shard in shards]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two shards are called {twice!r}")
    return tuple(shards)


def parse_file(text: str) -> tuple[ShardTargets, ...]:
    """The shards of a file, at least one; errors as `parse_shards`."""
    shards = parse_shards("\n".join(line.partition("#")[0] for line in text.splitlines()))
    if not shards:
        raise ValueError("the file names no shard")
    return shards


def parse_template(text: str) -> ShardTargets:
    """The template.

    Raises:
        ValueError: it is none: not one shard, or a field without `{i}`, which all ordinals would share.
    """
    shards = parse_shards(text)
    if len(shards) != 1:
        raise ValueError(f"a template is one shard, not {len(shards)}")
    (shard,) = shards
    for field in (shard.broker_name, shard.commitlog, shard.consumequeue, shard.index):
        if ORDINAL not in field:
            raise ValueError(f"{field!r} has no {ORDINAL}, so all shards would share it")
    return shard
