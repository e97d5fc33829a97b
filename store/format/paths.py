"""Names of files and folders in a store root; strings only.

    commitlog/00000000000000000000            first commit-log offset, 20 digits
    consumequeue/TOPIC/QUEUE/000...           first byte of the queue's files laid end to end, 20 digits
    index/20261121102912255                   time of its creation, local time yyyyMMddHHmmssSSS
    config/topics.json   checkpoint   abort   lock
    reput/{commitlog,consumequeue,index,gateway}/    this project's own state, which RocketMQ ignores

Source: `StorePathConfigHelper` and `UtilAll`, RocketMQ 5.3.3.
"""

import posixpath
import re
from datetime import datetime

from store.errors import InvalidArgumentError

OWN_COMPONENTS = ("commitlog", "consumequeue", "index", "gateway")
_OFFSET_NAME = re.compile(r"[0-9]{20}")
_INDEX_NAME = re.compile(r"[0-9]{17}")


def log_file_name(first_offset: int) -> str:
    """Name of the log or queue file whose first byte has this offset."""
    assert first_offset >= 0, first_offset
    return f"{first_offset:020d}"


def parse_log_file_name(name: str) -> int | None:
    """The first offset that a name says; None for other names."""
    return int(name) if _OFFSET_NAME.fullmatch(name) else None


def commit_log_dir(root: str) -> str:
    """Folder of the log files."""
    return posixpath.join(root, "commitlog")


def consume_queue_dir(root: str) -> str:
    """Folder of all topics' queues."""
    return posixpath.join(root, "consumequeue")


def queue_dir(root: str, topic: str, queue_id: int) -> str:
    """Folder of one queue's files.

    Raises:
        InvalidArgumentError: the topic is not the name of one folder (a damaged or hostile record could say `../..`),
            or the queue id is negative.
    """
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        raise InvalidArgumentError(f"Topic {topic!r} cannot name a folder.", field="topic", topic=topic)
    if queue_id < 0:
        raise InvalidArgumentError(f"Queue id {queue_id} is negative.", field="queue_id", queueId=queue_id)
    return posixpath.join(root, "consumequeue", topic, str(queue_id))


def index_dir(root: str) -> str:
    """Folder of the index files."""
    return posixpath.join(root, "index")


def index_file_name(time_millis: int) -> str:
    """Name of an index file made at a time, in this machine's zone as RocketMQ does."""
    seconds, millis = divmod(time_millis, 1000)
    return f"{datetime.fromtimestamp(seconds):%Y%m%d%H%M%S}{millis:03d}"


def is_index_file_name(name: str) -> bool:
    """Whether a file in `index/` is an index file."""
    return bool(_INDEX_NAME.fullmatch(name))


def checkpoint_file(root: str) -> str:
    """RocketMQ's checkpoint."""
    return posixpath.join(root, "checkpoint")


def abort_file(root: str) -> str:
    """The file that exists while a store is open."""
    return posixpath.join(root, "abort")


def lock_file(root: str) -> str:
    """The file that a broker locks."""
    return posixpath.join(root, "lock")


def topics_file(root: str) -> str:
    """The topic table."""
    return posixpath.join(root, "config", "topics.json")


def own_state_dir(root: str, component: str) -> str:
    """Folder of one component's own state."""
    assert component in OWN_COMPONENTS, component
    return posixpath.join(root, "reput", component)
