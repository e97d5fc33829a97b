"""Where the remoting doors of a gateway listen, as its setting says."""

from collections.abc import Sequence

from services.rocketmq.address import Address, parse_address
from store.errors import InvalidArgumentError


def parse_doors(text: str, broker_names: Sequence[str]) -> dict[str, Address]:
    """Where the door of each shard listens, from `HOST:PORT` for the only shard or `NAME=HOST:PORT,...`.

    Raises:
        InvalidArgumentError: an address is none, or it is not clear which shard is meant.
    """
    doors: dict[str, Address] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, address = part.rpartition("=")
        if not equals:
            if len(broker_names) != 1:
                raise InvalidArgumentError(
                    f"{part!r} names no shard, and there are {len(broker_names)}: write NAME=HOST:PORT for each",
                    field="remoting_address",
                )
            name = broker_names[0]
        doors[name] = parse_address(address, port_min=0)
    return doors
