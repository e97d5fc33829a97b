"""The gateway's settings."""

from dataclasses import dataclass
from pathlib import Path

import pydantic

from services.settings import ServiceSettings


@dataclass(frozen=True, slots=True)
class ShardTargets:
    """A shard's name and where its three services are."""

    broker_name: str
    commitlog: str
    consumequeue: str
    index: str


class GatewaySettings(ServiceSettings):
    """Settings of the gateway.

    Attributes:
        broker_name: the name of the shard, when `shards` is empty.
        commitlog_target: its commitlog service, likewise.
        consumequeue_target: its consumequeue service, likewise.
        index_target: its index service, likewise.
        shards: `name=commitlog,consumequeue,index;...`, for several shards (or one).
        page_token_secret: what page tokens are sealed with. The default is public, which is enough against mistakes;
            set one where clients must not be able to make tokens up. The same on every gateway of the same clients.
        archive: what `reput pipeline archive` has written of these shards; None: none. Answers go on in it where the
            log ends at its front.
    """

    address: str = "127.0.0.1:8081"
    broker_name: str = pydantic.Field("broker-a", min_length=1)
    commitlog_target: str = "127.0.0.1:8082"
    consumequeue_target: str = "127.0.0.1:8083"
    index_target: str = "127.0.0.1:8084"
    shards: str = ""
    page_token_secret: str = pydantic.Field("reput", min_length=1)
    archive: Path | None = None

    @pydantic.field_validator("shards")
    @classmethod
    def _are_shards(cls, value: str) -> str:
        names = [shard.broker_name for shard in _parse_shards(value)]
        if len(set(names)) != len(names):
            raise ValueError("two shards have the same name")
        return value

    def shard_targets(self) -> tuple[ShardTargets, ...]:
        """The shards, at least one."""
        one = ShardTargets(self.broker_name, self.commitlog_target, self.consumequeue_target, self.index_target)
        return _parse_shards(self.shards) or (one,)


def _parse_shards(text: str) -> tuple[ShardTargets, ...]:
    shards = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, targets = part.partition("=")
        addresses = [address.strip() for address in targets.split(",")]
        if not equals or not name.strip() or len(addresses) != 3 or not all(addresses):
            raise ValueError(f"{part!r} is not name=commitlog,consumequeue,index")
        shards.append(ShardTargets(name.strip(), *addresses))
    return tuple(shards)
