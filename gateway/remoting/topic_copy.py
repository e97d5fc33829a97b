"""TopicCopy: the topics of a shard as its commit log has them, at hand for each send and pull.

A thread asks every LOOK_SECONDS; while nothing changes the answer is small. A topic that the copy does not have is asked for at
once, by a caller that may wait.
"""

import threading
from collections.abc import Callable, Mapping

import structlog

from gateway.ports.deadline import Deadline
from gateway.ports.shard import LIST_TOPICS, Shard
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from store.errors import StoreError

# A change of a topic holds here so much later at most.
LOOK_SECONDS = 1.0
ASK_SECONDS = 5.0

Topic = log_pb.ListTopicsResponse.Topic

_log = structlog.get_logger("reput.remoting")


class TopicCopy:
    """See the top of this file; thread-safe.

    Args:
        shard: gives the shard.
    """

    def __init__(self, shard: Callable[[], Shard]) -> None:
        self._shard = shard
        self._asking = threading.Lock()
        self._version = 0
        self._topics: Mapping[str, Topic] = {}
        self._new_topic_queue_count = 0
        self._stopping = threading.Event()

    def find(self, topic: str) -> Topic | None:
        """The topic, as far as the copy knows; None: ask `find_now`."""
        return self._topics.get(topic)

    def find_now(self, topic: str) -> Topic | None:
        """The topic as the commit log has it; waits. StoreError when it does not say."""
        known = self._topics.get(topic)
        if known is None:
            self.look()
            known = self._topics.get(topic)
        return known

    def all(self) -> Mapping[str, Topic]:
        """All topics, by name."""
        return self._topics

    @property
    def new_topic_queue_count(self) -> int:
        """Queues of a topic that its first message makes; 0: messages make none."""
        return self._new_topic_queue_count

    def look(self) -> None:
        """Ask the commit log now.

        Raises:
            StoreError: it does not answer; what was known holds.
        """
        with self._asking:
            request = log_pb.ListTopicsRequest(known_version=self._version)
            answer = self._shard().call(LIST_TOPICS, request, Deadline.after(ASK_SECONDS))
            if answer.version and answer.version == self._version:
                return
            self._topics = {topic.topic: topic for topic in answer.topics}
            self._new_topic_queue_count = answer.new_topic_queue_count
            self._version = answer.version

    def start(self) -> None:
        """Look every LOOK_SECONDS, until `close`."""
        threading.Thread(target=self._run, name="remoting-topics", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
            except StoreError as error:
                _log.info("topics.not_seen", error=error.message)
            except Exception:  # it would end the thread
                _log.exception("topics.look_failed")
            self._stopping.wait(LOOK_SECONDS)
