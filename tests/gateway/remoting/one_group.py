"""Members of one group over three doors, and what they have seen; for tests."""

import contextlib
import json
import random
import threading
from collections import Counter
from dataclasses import dataclass

from deploy.hosts import ThisProcess
from reput_client import ConsumerSettings, PullConsumer, PullConsumerSettings, ReputClientError
from reput_client.consuming.consumer import Consumer
from reput_client.consuming.pulling.allocation import averagely
from services.rocketmq.codes import RequestCode, ResponseCode
from tests.gateway.remoting.requests import DoorClient, heartbeat, pull_fields, records
from tests.support.waiting import WAIT_SECONDS_MAX

IDLE_SECONDS = 0.02
QUICK = PullConsumerSettings(members_seconds=0.2, commit_seconds=0.2, rebalance_seconds=0.5)


class NearGateway:
    """The gateway of a stack, as members know gateways."""

    def __init__(self, stack):
        self.target = stack.store.target
        self.client = stack.client


class AnotherGateway:
    """A second gateway in front of the services of stores, with a door of its own for each.

    Args:
        directory: a new one.
        stores: embedded ones, by the name of their shard.
    """

    def __init__(self, directory, **stores):
        address_file = directory / "address"
        self.target = f"unix:{directory / 'gateway.sock'}"
        services = ("commitlog", "consumequeue", "index", "consumer", "schedule")
        shards = {
            name.replace("_", "-"): ",".join(f"{service}={store._stack.addresses[service]}" for service in services)
            for name, store in stores.items()
        }
        environ = {
            "REPUT_GATEWAY_SHARDS": ";".join(f"{name}={targets}" for name, targets in shards.items()),
            "REPUT_GATEWAY_ADDRESS": self.target,
            "REPUT_GATEWAY_CONSOLE": "off",
            "REPUT_GATEWAY_REMOTING_ADDRESS": ",".join(f"{name}=127.0.0.1:0" for name in shards),
            "REPUT_GATEWAY_REMOTING_ADDRESS_FILE": str(address_file),
        }
        self._service = ThisProcess().start("gateway", environ)
        bound = [line.rpartition("=")[2] for line in address_file.read_text().split()]
        self.addresses = dict(zip(shards, bound, strict=True))

    def door(self, shard):
        """That of a shard, as members know gateways."""
        return DoorOfShard(self.target, self.addresses[shard])

    def client(self, **options):
        (address,) = self.addresses.values()
        return DoorClient(address, **options)

    def close(self):
        self._service.terminate()
        assert self._service.wait(WAIT_SECONDS_MAX) == 0


@dataclass(frozen=True)
class DoorOfShard:
    """The door of a shard, at a gateway with several."""

    target: str
    address: str

    def client(self, **options):
        return DoorClient(self.address, **options)


class Seen:
    """What the members of a group have processed; thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self.processed = Counter()
        self.by_door = Counter()

    def note(self, door, body):
        with self._lock:
            self.processed[bytes(body)] += 1
            self.by_door[door] += 1

    def missing(self, sent):
        with self._lock:
            return sorted(set(sent) - self.processed.keys())


class Member:
    """A member with a thread; `stop` ends it in order."""

    def __init__(self, seen, seed):
        self.seen = seen
        self.dice = random.Random(seed)
        self._stopping = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self._stopping.set()
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _guarded(self):
        try:
            self.run()
        except Exception as error:  # it is raised by `stop`
            self._error = error

    def fails(self):
        return self.dice.random() < 0.1


class RemotingMember(Member):
    """As DefaultMQPushConsumer: it divides the queues when it is told of members, pulls, stores positions, and sends back."""

    def __init__(self, gateway, group, topic, queue_count, client_id, seen, seed):
        super().__init__(seen, seed)
        self._client = gateway.client()
        self._names = group, topic, client_id
        self._queues = [(topic, queue_id) for queue_id in range(queue_count)], [(f"%RETRY%{group}", 0)]
        self._positions = {}
        self.notice_count = 0
        self.beat()

    def beat(self):
        group, topic, client_id = self._names
        said = json.loads(heartbeat(client_id, group, topic=topic))
        (consumer,) = said["consumerDataSet"]
        (wanted,) = consumer["subscriptionDataSet"]
        consumer["subscriptionDataSet"].append(wanted | {"topic": f"%RETRY%{group}"})
        assert self._ask(RequestCode.HEART_BEAT, json.dumps(said).encode()).code == 0

    def run(self):
        with contextlib.closing(self._client):
            self._rebalance()
            while not self._stopping.is_set():
                has_found = sum(self._pull(queue) for queue in list(self._positions)) > 0
                if self._is_told():
                    self._rebalance()
                if not has_found:
                    self._ask(
                        RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=self._names[0]
                    )  # notices come with it
                    self._stopping.wait(IDLE_SECONDS)
            for queue in self._positions:
                self._store(queue)

    def _ask(self, code, body=b"", **fields):
        return self._client.call(code, body, **fields)

    def _is_told(self):
        return any(told.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for told in self._client.told)

    def _members(self):
        answer = self._ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=self._names[0])
        return json.loads(answer.body)["consumerIdList"]

    def _rebalance(self):
        client_id = self._names[2]
        self.notice_count += len(self._client.told)
        self._client.told.clear()
        members = self._members()
        mine = {each for queues in self._queues for each in averagely(members.index(client_id), members, queues)}
        for queue in self._positions.keys() - mine:
            self._store(queue)
            self._let_go(queue)
            del self._positions[queue]
        for queue in mine - self._positions.keys():
            if self._takes(queue):
                self._positions[queue] = self._position(queue)

    def _takes(self, queue):
        """Whether it may pull from a queue that is its share."""
        return True

    def _let_go(self, queue):
        """A queue is the share of another one."""

    def _position(self, queue):
        topic, queue_id = queue
        fields = {"consumerGroup": self._names[0], "topic": topic, "queueId": queue_id}
        answer = self._ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields)
        assert answer.code in (0, ResponseCode.QUERY_NOT_FOUND), answer
        return int(answer.fields.get("offset", "0"))

    def _pull(self, queue):
        group, _, _ = self._names
        topic, queue_id = queue
        fields = pull_fields(topic, self._positions[queue], queueId=queue_id, maxMsgNums=4, consumerGroup=group)
        answer = self._ask(RequestCode.PULL_MESSAGE, **fields)
        if answer.code not in (0, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED):
            return False  # the queue is being built: a client pauses and asks again
        self._positions[queue] = int(answer.fields["nextBeginOffset"])
        found = records(answer.body)
        for record in found:
            if self.fails():
                back = self._ask(
                    RequestCode.CONSUMER_SEND_MSG_BACK,
                    offset=record.commit_log_offset,
                    group=group,
                    delayLevel=1,
                    originTopic=topic,
                    unitMode="false",
                    maxReconsumeTimes=16,
                )
                assert back.code == 0, back
            else:
                self._process(record)
        if found and self.dice.random() < 0.5:
            self._store(queue)
        return bool(found)

    def _process(self, record):
        self.seen.note("remoting", record.body)

    def _store(self, queue):
        group, _, _ = self._names
        topic, queue_id = queue
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": self._positions[queue]}
        assert self._ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields).code == 0


class PoppingMember(Member):
    """A consumer of RocketMQ's gRPC protocol."""

    def __init__(self, gateway, group, topic, seen, seed):
        super().__init__(seen, seed)
        self._consumer = Consumer(gateway.target, group, {topic: "*"}, settings=ConsumerSettings())

    def run(self):
        with contextlib.closing(self._consumer):
            while not self._stopping.is_set():
                delivery = self._consumer.take(0.1)
                if delivery is None:
                    continue
                if self.fails():
                    delivery.nack()
                    continue
                self.seen.note("grpc", delivery.message.body)
                delivery.ack()


class PullingMember(Member):
    """A PullConsumer."""

    def __init__(self, gateway, group, topic, seen, seed):
        super().__init__(seen, seed)
        self._consumer = PullConsumer(gateway.target, group, {topic: "*"}, settings=QUICK)

    def run(self):
        with contextlib.closing(self._consumer):
            while not self._stopping.is_set():
                try:
                    for message in self._consumer.poll(max_messages=4, timeout_seconds=0.1):
                        self.seen.note("pull", message.body)
                except ReputClientError:  # while a queue is built
                    self._stopping.wait(IDLE_SECONDS)
