"""Keeps append routes up to date: asks every shard regularly which topics it has."""

import threading

import structlog

from gateway.appends.routes import AppendRoutes
from gateway.ports.deadline import Deadline
from gateway.ports.shard import LIST_TOPICS, Shard
from gateway.ports.shards import ShardsSource
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from store.errors import StoreError

# As long as RocketMQ's clients keep a route. Until then a commitlog without the topic refuses the append, and another
# shard is tried.
ROUTE_SECONDS = 30.0
ASK_SECONDS = 5.0

_log = structlog.get_logger("reput.gateway")


class RouteWatch:
    """Asks in its own thread; with one shard it asks nothing.

    Args:
        source: gives the shards.
        routes: gets the topics.
        seconds: the pause between two rounds.
    """

    def __init__(self, source: ShardsSource, routes: AppendRoutes, seconds: float = ROUTE_SECONDS) -> None:
        self._source = source
        self._routes = routes
        self._seconds = seconds
        self._woken = threading.Event()
        self._is_stopped = False

    def start(self) -> None:
        """Ask from now on until `stop`."""
        threading.Thread(target=self._run, name="gateway-routes", daemon=True).start()

    def wake(self) -> None:
        """Ask now, because there is a new shard."""
        self._woken.set()

    def stop(self) -> None:
        """Ask no more."""
        self._is_stopped = True
        self._woken.set()

    def look(self) -> None:
        """One round. The last answer of a shard that does not answer stays valid."""
        shards = self._source.now()
        if len(shards) < 2:
            return
        deadline = Deadline.after(ASK_SECONDS)
        answers = shards.fan_out.ask(shards, lambda shard: _topics_of(shard, deadline))
        self._routes.tell(
            {
                shard.broker_name: answer
                for shard, answer in zip(shards, answers, strict=True)
                if not isinstance(answer, StoreError)
            }
        )

    def _run(self) -> None:
        while not self._is_stopped:
            self._woken.clear()
            try:
                self.look()
            except Exception:
                _log.exception("routes.look_failed")  # the next round tries again
            self._woken.wait(self._seconds)


def _topics_of(shard: Shard, deadline: Deadline) -> frozenset[str] | None:
    """The topics that a shard accepts; None: all, because it creates missing topics."""
    answer = shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), deadline)
    return None if answer.new_topic_queue_count else frozenset(topic.topic for topic in answer.topics)
