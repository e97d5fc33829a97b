"""Names of files and folders in a store root; strings only.

    commitlog/00000000000000000000            first commit-log offset, 20 digits
    consumequeue/TOPIC/QUEUE/000...           first byte of the queue's files laid end to end, 20 digits
    consumequeue_ext/TOPIC/QUEUE/000...       likewise, of what ConsumeQueueExt adds to the queue
    index/20261121102912255                   time of its creation, local time yyyyMMddHHmmssSSS
    config/topics.json   checkpoint   abort   lock
    reput/{commitlog,consumequeue,index,consumer,schedule,gateway}/    this project's own state, which RocketMQ ignores

Source: `StorePathConfigHelper` and `UtilAll`, RocketMQ 5.3.3.
"""

import posixpath
import re
from datetime import datetime

from store.errors import InvalidArgumentError

OWN_COMPONENTS = ("commitlog", "consumequeue", "index", "consumer", "schedule", "gateway")
CONSUME_QUEUE_EXT = "consumequeue_ext"
# What a file system of Linux takes as one name.
FOLDER_NAME_BYTES_MAX = 255
# Queue ids are 32-bit in records; a number beyond it names no queue.
QUEUE_ID_MAX = (1 << 31) - 1
OFFSET_MAX = (1 << 63) - 1
_OFFSET_NAME = re.compile(r"[0-9]{20}")
_INDEX_NAME = re.compile(r"[0-9]{17}")


def log_file_name(first_offset: int) -> str:
    """Name of the log or queue file whose first byte has this offset."""
    assert first_offset >= 0, first_offset
    return f"{first_offset:020d}"


def parse_log_file_name(name: str) -> int | None:
    """The first offset that a name says; None for other names, also for numbers that no offset of 63 bits is."""
    return int(name) if _OFFSET_NAME.fullmatch(name) and int(name) <= OFFSET_MAX else None


def has_log_file_form(name: str) -> bool:
    """Whether a name is 20 digits, as those of log files are, whatever number they are."""
    return _OFFSET_NAME.fullmatch(name) is not None


def commit_log_dir(root: str) -> str:
    """Folder of the log files."""
    return posixpath.join(root, "commitlog")


def consume_queue_dir(root: str) -> str:
    """Folder of all topics' queues."""
    return posixpath.join(root, "consumequeue")


def batch_queue_dir(root: str) -> str:
    """Folder of the queues of topics with `queue.type=BatchCQ`, which only a broker writes."""
    return posixpath.join(root, "batchconsumequeue")


def queue_dir(root: str, topic: str, queue_id: int) -> str:
    """Folder of one queue's files.

    Raises:
        InvalidArgumentError: the topic is not the name of one folder (a damaged or hostile record could say `../..`, or
            have thousands of bytes), or the queue id is negative.
    """
    if not is_topic_folder_name(topic):
        shown = topic[:64]
        raise InvalidArgumentError(f"Topic {shown!r} cannot name a folder.", field="topic", topic=shown)
    if not 0 <= queue_id <= QUEUE_ID_MAX:
        raise InvalidArgumentError(
            f"Queue id {queue_id} is negative, or above {QUEUE_ID_MAX}.", field="queue_id", queueId=queue_id
        )
    return posixpath.join(root, "consumequeue", topic, str(queue_id))


def is_topic_folder_name(topic: str) -> bool:
    """Whether a topic can name a folder in `consumequeue/`, so that its queues can have files; its bytes count, as UTF-8."""
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic or len(topic) > FOLDER_NAME_BYTES_MAX:
        return False
    try:
        return len(topic.encode()) <= FOLDER_NAME_BYTES_MAX
    except UnicodeEncodeError:  # a folder whose name is not UTF-8; no message field can hold it
        return False


def parse_queue_folder_name(name: str) -> int | None:
    """The queue id that the name of a folder says; None for other names."""
    if not (name.isascii() and name.isdecimal() and len(name) <= 10) or str(int(name)) != name:
        return None
    return int(name) if int(name) <= QUEUE_ID_MAX else None


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


def config_dir(root: str) -> str:
    """Folder of RocketMQ's tables."""
    return posixpath.join(root, "config")


def topics_file(root: str) -> str:
    """The topic table."""
    return posixpath.join(config_dir(root), "topics.json")


def own_state_dir(root: str, component: str) -> str:
    """Folder of one component's own state."""
    assert component in OWN_COMPONENTS, component
    return posixpath.join(root, "reput", component)
