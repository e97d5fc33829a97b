"""Tells the schedule services which topics and groups producers serve here: at changes, and every few seconds."""

import threading

import structlog

from gateway.ports.waiting import SchedulingSource
from gateway.waiting.producers import KEEP_CALL_SECONDS, KEEP_SECONDS, Producers
from store.errors import StoreError

# Changes come in crowds, when clients start and stop.
PAUSE_SECONDS = 0.1

_log = structlog.get_logger("reput.gateway")


class ProducerKeeping:
    """Tells in a thread of its own, from `start` to `close`.

    Args:
        producers: whose topics.
        source: the schedule services.
        gateway_id: names this gateway to the services.
    """

    def __init__(self, producers: Producers, source: SchedulingSource, gateway_id: str) -> None:
        self._producers = producers
        self._source = source
        self._gateway_id = gateway_id
        self._stopping = threading.Event()
        self._has_told = False
        self._thread = threading.Thread(target=self._run, name="keep-producers", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop it; the services learn that this gateway asks no producers any more."""
        self._stopping.set()
        self._producers.wake()
        if self._thread.is_alive():
            self._thread.join(KEEP_CALL_SECONDS)  # what it tells now would undo what is told here
        if self._has_told:
            self._tell([], [])

    def keep(self) -> None:
        """Tell every shard now, if there is or was something to tell: also the checks that reached no producer."""
        topics, groups = self._producers.topics(), self._producers.groups()
        if topics or groups or self._has_told:
            self._tell(topics, groups)
            self._has_told = bool(topics or groups)

    def _tell(self, topics: list[str], groups: list[str]) -> None:
        for scheduling in self._source.all():
            try:
                unasked = self._producers.take_unasked(scheduling.broker_name)
                scheduling.keep_producers(self._gateway_id, topics, groups, KEEP_CALL_SECONDS, unasked)
            except StoreError as error:
                _log.info("transactions.keep_failed", broker_name=scheduling.broker_name, error=error.message)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._producers.wait_for_change(KEEP_SECONDS)
            if self._stopping.wait(PAUSE_SECONDS):
                return
            try:
                self.keep()
            except Exception:  # it would end the thread, and no producer would be asked any more
                _log.exception("transactions.keep_failed")
