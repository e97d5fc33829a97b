"""Whose turn it is: the queues of a topic are taken one after the other, over all requests."""

import threading


class QueueTurns:
    """A count for each topic; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}

    def take(self, topic: str, count: int = 1) -> int:
        """The first of the next `count` turns; modulo the topic's queues each is a queue."""
        with self._lock:
            turn = self._next.get(topic, 0)
            self._next[topic] = turn + count
            return turn
