"""One log behind every implementation of the gateway's ports: memory, one process, an archive, real services."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from gateway.ports.shard import Shard
from gateway.shards.remote import open_shard as open_remote
from gateway.shards.targets import ShardTargets
from store.format.topic import TopicConfig, encode_topic_table
from tests.gateway.search.searching import TaggedShard
from tests.gateway.shards.archived.archived_shard import TOPIC, archived_orders, shard_of
from tests.gateway.shards.archived.cold_shard import cold_shard_of
from tests.support.archives import BROKER, Archived
from tests.support.stack import hosted_stack
from tests.torture import local_shard

CONFIGURED = "configured"
CONFIGURED_QUEUE_COUNT = 3


def make_log(root: Path) -> Archived:
    """A store with a log of two topics, 60 messages in several files, and `CONFIGURED`, a topic without messages."""
    made = archived_orders(root)
    topics = {
        CONFIGURED: TopicConfig(CONFIGURED, CONFIGURED_QUEUE_COUNT, CONFIGURED_QUEUE_COUNT),
        TOPIC: TopicConfig(TOPIC, 2, 2),
    }
    (made.store / "config").mkdir()
    (made.store / "config" / "topics.json").write_bytes(encode_topic_table(topics, None, time_millis=1))
    return made


@contextlib.contextmanager
def memory(made: Archived, scratch: Path) -> "Iterator[Shard]":
    """Brute force over decoded records."""
    yield TaggedShard(made.records, {CONFIGURED: CONFIGURED_QUEUE_COUNT, TOPIC: 2}).shard(BROKER)


@contextlib.contextmanager
def one_process(made: Archived, scratch: Path) -> "Iterator[Shard]":
    """The real log and builders in this process."""
    with local_shard.open_shard(shutil.copytree(made.store, scratch / "store"), file_size_bytes=1 << 16) as local:
        yield local.shard(BROKER)


@contextlib.contextmanager
def archive(made: Archived, scratch: Path) -> "Iterator[Shard]":
    """A log in memory that has lost its first files, and the archive of all of it."""
    yield shard_of(made, topics={CONFIGURED: CONFIGURED_QUEUE_COUNT, TOPIC: 2})


@contextlib.contextmanager
def cold(made: Archived, scratch: Path) -> "Iterator[Shard]":
    """A log in memory that has lost its first files, which are in a cold tier."""
    yield cold_shard_of(made, scratch, topics={CONFIGURED: CONFIGURED_QUEUE_COUNT, TOPIC: 2})


@contextlib.contextmanager
def services(made: Archived, scratch: Path) -> "Iterator[Shard]":
    """Three services in processes of their own, by the gateway's clients."""
    with hosted_stack(shutil.copytree(made.store, scratch / "store")) as stack:
        stack.wait_until_built()
        addresses = stack.addresses
        targets = ShardTargets(BROKER, addresses["commitlog"], addresses["consumequeue"], addresses["index"])
        remote = open_remote(targets)
        try:
            yield remote.shard
        finally:
            remote.close()


Opening = Callable[[Archived, Path], "AbstractContextManager[Shard]"]
KINDS: dict[str, Opening] = {
    "memory": memory,
    "one_process": one_process,
    "archive": archive,
    "cold": cold,
    "services": services,
}
