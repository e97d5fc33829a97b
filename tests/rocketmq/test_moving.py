"""A fleet of Java programs moves from a real broker to Reput and back without a stop, as docs/moving.md says.

All that the programs know is a name server. They send and consume from the begin to the end.
"""

import contextlib
import pathlib
import time
from collections.abc import Iterator

import pytest

from benchmarks.sides import remoting
from cli.exits import Exit
from cli.moving import copy_settings, drained
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.rocketmq.codes import RequestCode
from tests.rocketmq import broker_calls, real_broker
from tests.rocketmq.fleet import TOPICS, Fleet, Seen
from tests.support.stack import hosted_stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

CLIENT_VERSIONS = ("4.9.8", real_broker.VERSION)
QUEUE_COUNT = 4
LOG_FILE_BYTES = 64 << 20
QUIET_SECONDS = 3.0  # clients of the tests ask for routes each second
BROKER = {
    "mappedFileSizeCommitLog": LOG_FILE_BYTES,
    "transactionCheckInterval": 2_000,
}


class RealAtOtherNames(real_broker.RealRocketMQ):
    """The real broker at a name server that is another one's."""

    def is_registered(self) -> bool:
        return remoting.has_broker(self.namesrv_port, str(self.settings.get("brokerName", "broker-a")))

    def set_topic(self, topic: str, perm: int) -> None:
        """What `mqadmin updateTopic -p` does."""
        count = str(QUEUE_COUNT)
        fields = {"topic": topic, "readQueueNums": count, "writeQueueNums": count, "perm": str(perm)}
        fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        remoting.call(self.broker_port, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


class Move:
    """A name server, a broker, and a fleet at work.

    Args:
        directory: a new one.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.seen = Seen()
        self.names = RealAtOtherNames(directory / "unused", directory / "names")
        self.old = self.broker("broker-a")
        self.fleets: list[Fleet] = []
        self._began = time.monotonic()

    def broker(self, name: str) -> RealAtOtherNames:
        """A broker of the name server."""
        made = RealAtOtherNames(self.directory / name, self.directory / f"{name}-work", **BROKER, brokerName=name)
        made.work.mkdir()
        made.namesrv_port = self.names.namesrv_port
        return made

    def settings(self, broker_name: str) -> dict[str, str]:
        """Of a shard at the name server."""
        return {
            "REPUT_NAMESERVERS": self.names.namesrv,
            "REPUT_BROKER_NAME": broker_name,
            "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(LOG_FILE_BYTES),
            "REPUT_SCHEDULE_TRANSACTION_CHECK_INTERVAL_SECONDS": "2",
        }

    def start(self) -> None:
        """Until the fleet has sent and consumed messages of each kind."""
        self.names.start_name_server()
        self.old.start_broker()
        for topic in TOPICS:
            group = f"{topic}-readers"
            remoting.create_topic(self.old.broker_port, topic, QUEUE_COUNT)
            remoting.create_group(self.old.broker_port, group, ordered=topic == "Ordered", delivery_attempts_max=17)
            # A group that begins at an empty queue of a broker may pass over its first message (docs/adr/0146).
            for queue_id in range(QUEUE_COUNT):
                broker_calls.update_consumer_offset(self.old.broker_port, group, topic, queue_id, 0)
        self.fleets += [Fleet(each, self.names.namesrv, self.seen, self.directory / each) for each in CLIENT_VERSIONS]
        self.goes_on("broker-a")

    def stop(self) -> None:
        """Whatever became of it."""
        for fleet in self.fleets:
            fleet.kill()
        self.old.stop()
        self.names.stop()

    def note(self, step: str) -> None:
        """Print how long it took so far, for a failure."""
        print(f"{time.monotonic() - self._began:6.1f} s {step}")

    def goes_on(self, broker_name: str, count: int = 30) -> None:
        """Until messages of each kind were stored at a broker, and consumed from there unless they may not yet be read."""
        before = {topic: self._at(topic, broker_name) for topic in TOPICS}
        wanted = {"Plain": count, "Ordered": count, "Late": count // 8, "Sold": count // 10}
        wait_until(
            lambda: all(self._at(topic, broker_name) >= before[topic] + wanted[topic] for topic in TOPICS),
            lambda: f"{broker_name}: {self.seen.brokers_of_sends()}, {self.seen.failed[-5:]}",
        )
        self.note(f"the fleet sends to {broker_name}")

    def _at(self, topic: str, broker_name: str) -> int:
        return sum(name == broker_name for name in list(self.seen.sent[topic].values()))

    def wipe(self, broker_name: str) -> None:
        """What `mqadmin wipeWritePerm` does; until no producer sends there any more."""
        fields = {"brokerName": broker_name}
        remoting.call(self.names.namesrv_port, RequestCode.WIPE_WRITE_PERM_OF_BROKER, fields)
        counts = [-1]

        def is_quiet() -> bool:
            counts.append(self.seen.brokers_of_sends()[broker_name])
            return counts[-1] == counts[-2]

        wait_until(is_quiet, lambda: f"{broker_name} is still sent to: {counts}", poll_seconds=QUIET_SECONDS)
        self.note(f"nobody sends to {broker_name}")

    def is_consumed(self) -> None:
        """Until all that was sent so far was consumed."""
        sent = {(topic, body) for topic, bodies in list(self.seen.sent.items()) for body in list(bodies)}

        def left() -> set[tuple[str, str]]:
            return sent - {(topic, each.body) for topic in TOPICS for each in list(self.seen.got[topic])}

        wait_until(lambda: not left(), lambda: f"not consumed: {sorted(left())[:20]}")
        self.note("all is consumed")

    def end(self) -> None:
        """All is quiet, and everything was consumed, in order."""
        for fleet in self.fleets:
            fleet.quiet()
        wait_until(lambda: not self.seen.missing(), lambda: f"lost: {self.seen.missing()}")
        for fleet in self.fleets:
            fleet.end()
        self.note(f"the end: {self.seen.brokers_of_sends()}; again: {self.seen.again()}; failed: {self.seen.failed}")
        assert self.seen.out_of_order() == []


@pytest.fixture
def move(tmp_path: pathlib.Path) -> Iterator[Move]:
    made = Move(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def wait_until_drained(**where: str) -> None:
    wait_until(lambda: drained(**where) is Exit.FOUND, "it is drained", poll_seconds=0.5)  # type: ignore[arg-type]


def test_a_fleet_moves_to_a_new_shard_and_to_a_new_broker_without_a_stop(move: Move) -> None:
    old = move.old
    with contextlib.ExitStack() as stack:
        at_broker = f"127.0.0.1:{old.broker_port}"
        mirror_settings = {
            "REPUT_MIRROR": f"rocketmq://127.0.0.1:{old.broker_port + 1}",
            "REPUT_MIRROR_BROKER": at_broker,
        }
        mirror = stack.enter_context(hosted_stack(move.directory / "mirror", settings=mirror_settings))
        wait_until((mirror.store / "config" / "consumerOffset.json").exists, "the mirror has asked the broker")
        new_store = move.directory / "reput"
        assert copy_settings(source=mirror.store, target=new_store, write_only=True) == Exit.FOUND
        new = stack.enter_context(running_stack(new_store, "--remoting-port", "0", settings=move.settings("reput-a")))
        move.goes_on("reput-a")
        move.wipe("broker-a")
        remoting.call(old.broker_port, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
        wait_until_drained(broker=at_broker)
        move.note("broker-a is drained")
        for topic in TOPICS:
            new.gateway.UpdateTopic(pb.UpdateTopicRequest(topic=topic, perm=6), timeout=WAIT_SECONDS_MAX)
        move.is_consumed()
        mirror.stop()
        old.stop()
        move.goes_on("reput-a")

        back = move.broker("broker-b")
        stack.callback(back.stop)
        assert copy_settings(source=new_store, target=back.store, write_only=True) == Exit.FOUND
        back.start_broker()
        move.goes_on("broker-b")
        move.wipe("reput-a")
        for topic in TOPICS:
            new.gateway.UpdateTopic(pb.UpdateTopicRequest(topic=topic, perm=4), timeout=WAIT_SECONDS_MAX)
        wait_until_drained(address=new.addresses["gateway"])
        move.note("reput-a is drained")
        for topic in TOPICS:
            back.set_topic(topic, 6)
        move.is_consumed()
        assert new.stop() == 0
        move.goes_on("broker-b")
        move.end()
        # A machine that is slow makes clients wait for too long, and send again.
        assert [each for each in move.seen.failed if "timeout" not in each[2].lower()] == []
        # A broker may commit a transaction twice: the client's verdict and its answer to a check.
        assert [each for each in move.seen.again() if each.broker_name == "reput-a"] == []


def test_reput_takes_the_place_of_a_broker_on_its_files_and_gives_it_back_while_a_fleet_works(move: Move) -> None:
    old = move.old
    door = str(old.broker_port)
    old.stop()
    move.note("broker-a has stopped")
    settings = move.settings("broker-a")
    with running_stack(old.store, "--remoting-port", door, settings=settings) as shard:
        move.note("Reput serves")
        move.goes_on("broker-a")
        move.is_consumed()
        assert shard.stop() == 0
    move.note("Reput has stopped")
    old.start_broker()
    move.note("broker-a serves")
    move.goes_on("broker-a")
    move.end()
