"""OpenedLog: the parts of a recovered log, which callers use directly."""

from dataclasses import dataclass

from commitlog_svc.append.append_path import AppendPath
from commitlog_svc.append.appender import Appender
from commitlog_svc.append.topics.topic_commands import TopicCommands
from commitlog_svc.config_files import ConfigFiles
from commitlog_svc.lookup import LogReads
from commitlog_svc.recovery.recovery import RecoveredLog
from commitlog_svc.retention.retention import Retention


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """What a log has once it is recovered.

    Attributes:
        found: what the recovery found.
        appends: takes append requests.
        reads: reads single records.
        appender: the one writer; has the end of the log.
        retention: removes old files; None on a read-only log.
        topic_commands: creates, changes and deletes topics.
        config_files: RocketMQ's files that services send.
    """

    found: RecoveredLog
    appends: AppendPath
    reads: LogReads
    appender: Appender
    retention: Retention | None
    topic_commands: TopicCommands
    config_files: ConfigFiles
