"""BrokerState: what a slave asks its master for besides the log, as SlaveSynchronize of RocketMQ 5.3.3 does.

    topics                      config/topics.json
    consumer groups             config/subscriptionGroup.json
    positions of the groups     config/consumerOffset.json
    delay levels                config/delayOffset.json
    where its log ends          the lag of the mirror

So a broker that opens this store knows what the other one knew some seconds before. The files are the broker's: none says that
this project wrote it, and the consumer service reads the groups from them.
"""

import threading
from collections.abc import Callable

import structlog

from commitlog_svc.append.topics.topics import TopicTable
from commitlog_svc.config_files import ConfigFiles
from commitlog_svc.log_status import MirrorState
from services.rocketmq.codes import RequestCode
from services.rocketmq.remoting import Broker
from store.errors import StoreError
from store.format.config_json import dump_document, load_document

LOOK_SECONDS = 5.0  # a broker writes its own files as often
CONFIG_FILES = {
    "subscriptionGroup.json": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "consumerOffset.json": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "delayOffset.json": RequestCode.GET_ALL_DELAY_OFFSET,
}
TOPIC_MEMBERS = ("dataVersion", "topicConfigTable")  # the rest of the answer belongs into other files

_log = structlog.get_logger("reput.commitlog")


class BrokerState:
    """Asks the broker until it is closed.

    Args:
        broker: the broker.
        topics: gets its topics.
        config_files: get its groups and positions.
        state: gets the end of its log, and what is wrong.
        look_seconds: between two looks.
    """

    def __init__(
        self,
        broker: Broker,
        topics: TopicTable,
        config_files: ConfigFiles,
        state: MirrorState,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._config_files = config_files
        self._state = state
        self._look_seconds = look_seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror-broker", daemon=True)

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            problems = [problem for look in (self._look_at_end, self._look_at_files) if (problem := _problem(look))]
            problem = problems[0] if problems else ""
            if problem != self._state.broker_problem:
                _log.warning("mirror.broker", problem=problem)
            self._state.broker_problem = problem
            self._closing.wait(self._look_seconds)

    def _look_at_end(self) -> None:
        self._state.source_end_offset = None
        self._state.source_end_offset = int(self._broker.runtime_info()["commitLogMaxOffset"])

    def _look_at_files(self) -> None:
        answer = load_document(self._broker.call(RequestCode.GET_ALL_TOPIC_CONFIG))
        topics = {name: answer[name] for name in TOPIC_MEMBERS if name in answer}
        self._topics.replace(dump_document(topics))
        for name, code in CONFIG_FILES.items():
            document = load_document(self._broker.call(code))
            self._config_files.copy(name, dump_document(document))


def _problem(look: Callable[[], None]) -> str:
    try:
        look()
    except Exception as error:  # an answer may have any shape, a disk any fault: the next look may find it in order
        words = str(error) if isinstance(error, StoreError) else repr(error)
        return f"topics and groups of the broker are as they were: {words}"
    return ""
