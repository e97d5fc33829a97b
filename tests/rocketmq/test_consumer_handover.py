"""Consumer groups go from here to the real broker and back: nothing is skipped, nothing acknowledged comes again."""

import contextlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from benchmarks.sides import rocketmq_side
from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.clients.programs import Program
from tests.clients.servers import RealServer, ReputServer, wait_until_routed
from tests.clients.stage import Stage, acknowledge, message, opened, receive_until, send
from tests.rocketmq import real_broker
from tests.support.stack import running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

BROKER_SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 4000}
OUR_SIZES = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20), "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000"}
LONG_SECONDS = 600
SHORT_SECONDS = 45  # a busy machine acknowledges in this time


class Site:
    """A store root that Reput and the real broker open in turn.

    Args:
        work: a directory.
        version: RocketMQ's.
    """

    def __init__(self, work: pathlib.Path, version: str) -> None:
        self.work = work
        self.version = version
        self.store = work / "store"
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"run-{self._count}"

    @contextlib.contextmanager
    def reput(self, *, killed: bool = False) -> Iterator[tuple[Stage, Any]]:
        """Reput on the store: where its clients play, and the stub of its gateway."""
        name = self._name()
        with running_stack(self.store, settings=OUR_SIZES) as stack:
            with opened(ReputServer(stack), "python", name, self.work / name) as stage:
                yield stage, stack.gateway
            if killed:
                stack.kill()

    @contextlib.contextmanager
    def rocketmq(self, **settings: object) -> Iterator[tuple[Stage, rocketmq_side.RocketMQ]]:
        """The real broker and its proxy on the store."""
        name = self._name()
        with (
            rocketmq_side.running_rocketmq(
                self.store,
                self.work / f"{name}-rocketmq",
                rocketmq_side.ShortLivedRocketMQ,
                proxy=True,
                version=self.version,
                **BROKER_SIZES,
                **settings,
            ) as rocketmq,
            opened(RealServer(rocketmq), "python", name, self.work / name) as stage,
        ):
            yield stage, rocketmq

    def file(self, name: str) -> dict[str, Any]:
        """A file of `config/` that Reput wrote."""
        document: dict[str, Any] = json.loads((self.store / "config" / name).read_text())
        return document


def received(consumer: Program, count: int, invisible_seconds: int) -> dict[str, dict[str, Any]]:
    """The first messages that a simple consumer receives, by body; it holds them."""
    messages: dict[str, dict[str, Any]] = {}

    def more(so_far: Sequence[dict[str, Any]]) -> bool:
        messages.update((each["body"], each) for each in so_far)
        return len(messages) >= count

    receive_until(consumer, more, invisible_seconds)
    return messages


def bodies(count: int, first: int = 0) -> list[str]:
    return [f"m{number}" for number in range(first, first + count)]


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_what_is_open_here_comes_again_at_the_broker_and_back(tmp_path: pathlib.Path, version: str) -> None:
    site = Site(tmp_path, version)
    with site.reput() as (stage, _):
        stage.server.create_topic("T", 1, "NORMAL")
        stage.server.create_group("G", ordered=False, delivery_attempts_max=17)
        send(stage.producer("T"), *map(message, bodies(10)))
        consumer = stage.simple("T", "G")
        held = received(consumer, 10, LONG_SECONDS)
        acknowledge(consumer, *(held[body] for body in bodies(10)[::2]))
    with site.rocketmq() as (stage, _):
        wait_until_routed(stage.server, "T")
        consumer = stage.simple("T", "G")
        came = received(consumer, 5, LONG_SECONDS)
        assert set(came) == set(bodies(10)[1::2])
        acknowledge(consumer, came["m1"], came["m3"])
        send(stage.producer("T"), *map(message, bodies(4, 10)))
        held = received(consumer, 4, SHORT_SECONDS)
        assert set(held) == set(bodies(4, 10))
        acknowledge(consumer, held["m11"])
    with site.reput() as (stage, _):
        consumer = stage.simple("T", "G")
        again = received(consumer, 3, LONG_SECONDS)
        assert set(again) == {"m10", "m12", "m13"}
        acknowledge(consumer, *again.values())


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_groups_of_every_kind_go_on_after_a_kill(tmp_path: pathlib.Path, version: str) -> None:
    site = Site(tmp_path, version)
    with site.reput(killed=True) as (stage, gateway):
        for topic, kind in (("T", "NORMAL"), ("D", "NORMAL"), ("F", "FIFO")):
            stage.server.create_topic(topic, 1, kind)
        stage.server.create_group("G", ordered=False, delivery_attempts_max=17)
        stage.server.create_group("DG", ordered=False, delivery_attempts_max=2)
        stage.server.create_group("FG", ordered=True, delivery_attempts_max=5)
        send(stage.producer("D"), message("bad"))
        failing = stage.simple("D", "DG")
        for attempt in (1, 2):
            bad = received(failing, 1, LONG_SECONDS)["bad"]
            assert bad["attempt"] == attempt
            failing.ask(do="change", message_id=bad["message_id"], invisible_seconds=1)
        wait_until_routed(stage.server, "%DLQ%DG")
        send(stage.producer("D"), message("worse"))
        worse = received(failing, 1, LONG_SECONDS)["worse"]
        failing.ask(do="change", message_id=worse["message_id"], invisible_seconds=0)
        send(stage.producer("F"), *(message(body, message_group="one") for body in bodies(3)))
        ordered = stage.simple("F", "FG")
        acknowledge(ordered, received(ordered, 1, LONG_SECONDS)["m0"])
        send(stage.producer("T"), *map(message, bodies(10)))
        consumer = stage.simple("T", "G")
        held = received(consumer, 10, LONG_SECONDS)
        acknowledge(consumer, *(held[body] for body in bodies(10)[::2]))
        position = pb.QueuePosition(topic="T", queue_id=0, consumer_offset=3, broker_name="broker-a")
        gateway.CommitOffsets(
            pb.CommitOffsetsRequest(consumer_group="Pull", positions=[position]), timeout=WAIT_SECONDS_MAX
        )

        def is_written() -> bool:
            if not (site.store / "config" / "consumerOffset.json").exists():
                return False  # it is written every few seconds
            table: dict[str, object] = site.file("consumerOffset.json")["offsetTable"]
            return table.get("T@G") == {"0": 9} and table.get("T@Pull") == {"0": 3} and table.get("F@FG") == {"0": 1}

        wait_until(is_written, "the file has the positions")
        acknowledge(consumer, held["m1"])  # since the file was written: it may come again
    with site.rocketmq() as (stage, rocketmq):
        config = "".join(rocketmq.mqadmin("getConsumerConfig", "-g", "FG").split())
        assert "consumeMessageOrderly=true" in config
        assert "retryMaxTimes=4" in config
        for topic in ("T", "D", "F", "%DLQ%DG"):
            wait_until_routed(stage.server, topic)
        consumer = stage.simple("T", "G")
        came = set(received(consumer, 4, LONG_SECONDS))
        assert set(bodies(10)[3::2]) <= came <= set(bodies(10)[1::2])
        (letter,) = received(stage.simple("%DLQ%DG", "Undertaker"), 1, LONG_SECONDS).values()
        assert letter["body"] == "bad"
        worse = received(stage.simple("D", "DG"), 1, LONG_SECONDS)["worse"]
        assert worse["attempt"] == 2
        ordered = stage.simple("F", "FG")
        in_order = received(ordered, 2, SHORT_SECONDS)
        assert list(in_order) == ["m1", "m2"]
        acknowledge(ordered, in_order["m1"])
        stage.server.create_group("Theirs", ordered=True, delivery_attempts_max=3)
    table = (site.store / "config" / "consumerOffset.json").read_text()
    assert '"T@Pull":{0:3' in "".join(table.split())
    with site.reput() as (stage, gateway):
        ordered = stage.simple("F", "FG")
        assert list(received(ordered, 1, LONG_SECONDS)) == ["m2"]
        groups = gateway.ListConsumerGroups(pb.ListConsumerGroupsRequest(), timeout=WAIT_SECONDS_MAX)
        theirs = next(group for group in groups.groups if group.consumer_group == "Theirs")
        assert (theirs.ordered, theirs.delivery_attempts_max) == (True, 3)
        names = {group.consumer_group for group in groups.groups}
        assert names >= {"G", "DG", "FG", "Pull", "Undertaker"}
        assert "CID_RMQ_SYS_REVIVE_GROUP" not in names
        positions = gateway.GetOffsets(pb.GetOffsetsRequest(consumer_group="Pull"), timeout=WAIT_SECONDS_MAX).positions
        assert [(one.topic, one.consumer_offset) for one in positions] == [("T", 3)]
