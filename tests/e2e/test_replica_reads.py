"""Queries and pulls from replicas of a running cluster: complete only when they are, and stale by no more than they say.

One cluster serves all tests; each begins when all replicas are in sync.
"""

import contextlib
import os
import pathlib
import random
import shutil
import threading
import time
from collections.abc import Iterator

import pytest

from reput_client import (
    AppendClient,
    Completeness,
    FlushMode,
    NewMessage,
    PullConsumer,
    PullConsumerSettings,
    QueryClient,
    ReadChoice,
    ReadFrom,
    ReputClientError,
    RetryPolicy,
    UnavailableError,
    queries,
)
from reput_client.querying.answers import Page
from tests.support.cluster import Cluster, Load, running_cluster
from tests.support.halting import halt, resume
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd (Debian: etcd-server)"),
    pytest.mark.timeout(600),
]

ONE_ATTEMPT = RetryPolicy(attempt_count_max=1)
READ_ANY, READ_REPLICA = ReadChoice(ReadFrom.ANY), ReadChoice(ReadFrom.REPLICA)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Everything is cold, so that READ_FROM_ANY reads all records from replicas.
    settings = {"REPUT_COMMITLOG_ACCESS_MESSAGE_IN_MEMORY_MAX_RATIO": "0"}
    with running_cluster(tmp_path_factory.mktemp("reads") / "c", settings=settings) as running:
        yield running


def client_of(cluster: Cluster, read: ReadChoice | None, timeout_seconds: float = 10.0) -> QueryClient:
    return QueryClient(cluster.status()["gateway"], read=read, retry=ONE_ATTEMPT, timeout_seconds=timeout_seconds)


def first_page(client: QueryClient, topic: str, key: str) -> Page:
    return next(iter(client.by_key(topic, key).pages()))


def append(cluster: Cluster, topic: str, count: int) -> list[str]:
    keys = [f"{topic}-{number:05}" for number in range(count)]
    with AppendClient(cluster.status()["gateway"], timeout_seconds=60.0) as client:
        for begin in range(0, count, 100):
            messages = [
                NewMessage(topic, key.encode(), unique_key=key, keys=[key], queue_id=0)
                for key in keys[begin : begin + 100]
            ]
            client.append(messages, flush_mode=FlushMode.REPLICATED, deduplicate=True)
    return keys


def process_of(name: str, directory: object) -> int:
    """The process with a name in its command, and a directory in its own or in its parent's."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = pathlib.Path("/proc") / (process / "stat").read_text().rpartition(")")[2].split()[1]
            own, above = ((each / "cmdline").read_bytes().decode() for each in (process, parent))
            words = [word.rpartition("/")[2] for word in own.split("\0")]
            if name in words and str(directory) in own + above:
                return int(process.name)
    raise AssertionError(f"no {name} of {directory} runs")


@contextlib.contextmanager
def without_a_leader(cluster: Cluster) -> Iterator[None]:
    """Inside the block nobody can lead: the coordinator is frozen, and the leader was killed, which makes it a follower."""
    leader, etcd = cluster.wait_until_whole(), process_of("etcd", cluster.directory)
    halt(etcd)
    try:
        cluster.kill(leader)
        wait_until(lambda: cluster.leader() is None, lambda: f"{cluster.replicas()}")
        yield
    finally:
        resume(etcd)


@pytest.mark.parametrize("read", [READ_ANY, READ_REPLICA], ids=["any", "replica"])
def test_a_replica_beside_a_leader_misses_nothing_that_was_just_acknowledged(
    cluster: Cluster, read: ReadChoice
) -> None:
    cluster.wait_until_whole()
    topic = f"Beside{read.read_from.name}"
    by_replica = 0
    with client_of(cluster, read) as client:
        (first,) = append(cluster, f"{topic}First", 1)

        def is_answered_by_a_replica() -> bool:
            return bool(first_page(client, f"{topic}First", first).shards[0].replicas)

        # The gateway asks how far replicas are once a second; their index services start beside their logs.
        if read is READ_REPLICA:
            wait_until(is_answered_by_a_replica, "the gateway knows a replica that has everything")
        for key in append(cluster, topic, 50):
            page = first_page(client, topic, key)
            by_replica += bool(page.shards[0].replicas)
            found = [message.body for message in page.items]
            assert found == [key.encode()] or page.completeness is Completeness.PARTIAL, (key, page.shards)
    if read is READ_REPLICA:
        assert by_replica > 25


def test_without_a_leader_queries_are_answered_and_say_how_stale_they_may_be(cluster: Cluster) -> None:
    cluster.wait_until_whole()
    keys = append(cluster, "Headless", 300)
    appended_at = time.monotonic()

    def is_built_by_a_replica() -> bool:
        # The index service of a replica starts beside its log, and may not serve yet.
        with client_of(cluster, READ_REPLICA) as client, contextlib.suppress(UnavailableError):
            return bool(first_page(client, "Headless", keys[-1]).items)
        return False

    wait_until(is_built_by_a_replica, "a replica has built all")
    with without_a_leader(cluster), client_of(cluster, READ_ANY) as client:
        left_at = time.monotonic()
        ages = []
        for key in (keys[0], keys[150], keys[-1]):
            asked_at = time.monotonic()
            page = first_page(client, "Headless", key)
            assert [message.body for message in page.items] == [key.encode()]
            (shard,) = page.shards
            assert page.completeness is Completeness.PARTIAL
            assert shard.replicas
            assert shard.error is not None
            if shard.staleness is not None:
                ages.append(shard.staleness.total_seconds())
                # No replica knows more than what the leader confirmed while there was one.
                assert asked_at - left_at < ages[-1] < asked_at - appended_at + 60
        assert ages, "no answer said how stale it may be"

        # What is not there is not said to be absent, and nobody says that a queue ends.
        with pytest.raises(UnavailableError):
            first_page(client, "NeverSent", "nothing")
        pulled: list[str] = []
        with pytest.raises(UnavailableError, match="not known"):
            for batch in client.pull("Headless", 0, max_messages=64):
                pulled += [message.body.decode() for message in batch.messages]
        assert pulled == keys
        page = next(iter(client.by_offset("Headless", 0, 10, page_size=20).pages()))
        assert [message.body.decode() for message in page.items] == keys[10:30]

        topics = client.topics(topic="Headless")
        assert [sum(queue.max_offset for queue in each.queues) for each in topics] == [len(keys)]
        assert topics.completeness is Completeness.PARTIAL
        explained = client.explain(queries.by_key("Headless", keys[0]))
        assert (explained.message_count, explained.completeness) == (1, Completeness.PARTIAL)
        assert explained.shards[0].replicas

        # A caller that wants the leader, as by default, or none that is so stale, gets no answer.
        for read in (None, ReadChoice(ReadFrom.LEADER)):
            with client_of(cluster, read, 3.0) as strict, contextlib.suppress(ReputClientError):
                assert first_page(strict, "Headless", keys[-1]).completeness is Completeness.PARTIAL

    cluster.wait_until_whole()
    with client_of(cluster, READ_ANY) as client:
        wait_until(
            lambda: first_page(client, "Headless", keys[-1]).completeness is Completeness.COMPLETE, "there is a leader"
        )


def test_pulls_from_a_replica_have_every_message_in_order_and_end_where_the_leader_says(cluster: Cluster) -> None:
    cluster.wait_until_whole()
    keys = append(cluster, "Pulled", 500)
    for read in (READ_REPLICA, READ_ANY, None):
        with client_of(cluster, read) as client:
            batches = list(client.pull("Pulled", 0, max_messages=50))
        assert [message.body.decode() for batch in batches for message in batch.messages] == keys
        assert batches[-1].max_offset == len(keys)


@contextlib.contextmanager
def without_the_leaders_consumer_service(cluster: Cluster) -> Iterator[None]:
    leader = cluster.replicas()[cluster.wait_until_whole()]
    consumer = process_of("consumer", leader["store"])  # the other followers are in its process, and hang as well
    halt(consumer)
    try:
        yield
    finally:
        resume(consumer)


def test_a_member_of_a_group_reads_replicas_while_the_consumer_service_of_the_leader_hangs(cluster: Cluster) -> None:
    cluster.wait_until_whole()
    keys = append(cluster, "Member", 2_000)
    quick = PullConsumerSettings(cache_count_max=100)
    with PullConsumer(
        cluster.status()["gateway"], "readers", {"Member": "*"}, read=READ_REPLICA, settings=quick
    ) as consumer:
        bodies: list[str] = []

        def poll(count: int) -> None:
            wait_until(
                lambda: bodies.extend(one.body.decode() for one in consumer.poll(100, 0.5)) or len(bodies) >= count,
                lambda: len(bodies),
            )

        poll(1)
        with without_the_leaders_consumer_service(cluster):
            poll(1_000)
        poll(len(keys))
    assert bodies == keys


def test_no_answer_is_staler_than_it_says_while_leaders_are_killed_under_load(cluster: Cluster) -> None:
    cluster.wait_until_whole()
    seed = int(os.environ.get("REPUT_SEED", random.randrange(1 << 32)))
    print(f"REPUT_SEED={seed}")
    faults: list[str] = []
    counts = {"complete": 0, "partial": 0, "by replica": 0, "failed": 0, "missing": 0}
    stopping = threading.Event()
    with Load(cluster.status()["gateway"], "Stale") as load:

        def read(number: int, choice: ReadChoice) -> None:
            rng = random.Random(seed + number)
            seen: list[tuple[float, str]] = []
            with client_of(cluster, choice, 5.0) as client:
                while not stopping.is_set():
                    newest = load.acknowledged[-1]
                    seen.append((time.monotonic(), newest))
                    acknowledged_at, key = rng.choice(seen[-200:]) if rng.random() < 0.5 else seen[-1]
                    asked_at = time.monotonic()
                    try:
                        page = first_page(client, "Stale", key)
                    except ReputClientError:
                        counts["failed"] += 1
                        continue
                    (shard,) = page.shards
                    counts["by replica"] += bool(shard.replicas)
                    counts["partial" if page.completeness is Completeness.PARTIAL else "complete"] += 1
                    if page.items:
                        continue
                    counts["missing"] += 1
                    age = asked_at - acknowledged_at
                    if page.completeness is not Completeness.PARTIAL:
                        faults.append(
                            f"{key}, acknowledged {age:.3f} s before, is missing: {page.completeness} {shard}"
                        )
                    elif shard.staleness is not None and shard.staleness.total_seconds() < age:
                        faults.append(f"{key}, acknowledged {age:.3f} s before, is missing: {shard}")

        load.wait_for(50)
        readers = [threading.Thread(target=read, args=(n, choice)) for n, choice in enumerate((READ_ANY, READ_REPLICA))]
        for reader in readers:
            reader.start()
        try:
            for _ in range(2):
                load.wait_for(100)
                cluster.kill(cluster.wait_for_leader())
                load.wait_for(100)
        finally:
            stopping.set()
            for reader in readers:
                reader.join(WAIT_SECONDS_MAX)
    print(counts)
    assert faults == []
    assert counts["by replica"] > 20
    assert counts["complete"] > 20
