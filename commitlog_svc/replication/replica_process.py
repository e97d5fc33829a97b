"""ReplicaProcess: makes a process of commitlog_svc one of the replicas of a shard. Loaded only with replicas."""

from pathlib import Path

import structlog

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.replication.cut import put_aside_bytes
from commitlog_svc.replication.leading.leadership import ElectedLeadership
from commitlog_svc.replication.leading.leadership_rules import LeaseTimes, Purpose
from commitlog_svc.replication.replica import Replica
from commitlog_svc.settings import CommitLogSettings
from services.calling.channel import open_channel
from services.coordination.opening import open_record_store
from services.serving.server import IN_SYNC_NAME, ServiceServer
from store.format.paths import own_state_dir

EXIT_CODE_REPLICA_RESTART = 4
# A replica that is far behind takes as much as comes; two messages are under way while one is written.
REPLICA_WINDOW_BYTES = 2 << 20
LISTEN_SECONDS = 1.0  # a server that does not listen by then is asked again whether it stops


class ReplicaProcess:
    """The replication of the log of one process.

    Args:
        log: the log, not recovered yet.
        settings: they name a coordinator.
        server: has the address, and ends the process.
    """

    def __init__(self, log: CommitLog, settings: CommitLogSettings, server: ServiceServer) -> None:
        self._log = log
        self._settings = settings
        self._server = server
        self._store = open_record_store(settings.coordinator, settings.broker_name, settings.coordinator_access)
        self._logger = structlog.get_logger("reput.commitlog")
        self._last_failure = ""
        self.replica = Replica(
            settings.replica_name,
            settings.broker_name,
            log,
            settings.replica_limits,
            lambda address: open_channel(address, server.tls, window_bytes=REPLICA_WINDOW_BYTES),
            lambda why: server.fail(EXIT_CODE_REPLICA_RESTART),
            settings.coordinator,
            lambda is_in_sync: server.set_health(IN_SYNC_NAME, is_in_sync),
        )
        server.set_health(IN_SYNC_NAME, False)
        own_directory = Path(own_state_dir(str(settings.store), "commitlog"))
        server.meters.number(
            "reput_replicas_in_sync_min", "In-sync replicas that an append needs.", lambda: settings.min_in_sync
        )
        server.meters.number(
            "reput_replica_put_aside_bytes",
            "What was cut from this log because the leader did not have it.",
            lambda: put_aside_bytes(own_directory),
        )

    def start(self) -> None:
        """Take part; the log is recovered. Waits until the server listens."""
        while not self._server.listening.wait(LISTEN_SECONDS):
            if self._server.stopping.is_set():
                return
        settings = self._settings
        leadership = ElectedLeadership(
            settings.replica_name,
            {"commitlog": settings.replica_address or self._server.address},
            self._store,
            lambda: self._log.epochs.last,
            may_create=settings.coordinator_creates_shard,
            times=LeaseTimes(lease_seconds=settings.lease_seconds, renew_seconds=settings.renew_seconds),
            observed=self._observed,
            store_id=self._log.store_id,
        )
        self._server.on_stop(leadership.close)
        self._server.on_stop(self._stop)
        leadership.start()
        self.replica.start(leadership)

    def _stop(self) -> None:
        self.replica.leave()
        self.replica.close()

    def _observed(self, purpose: Purpose, error: Exception | None) -> None:
        """Log what the coordinator did not do, once as long as it fails in the same way."""
        words = "" if error is None else f"{purpose.value}: {error}"
        if words and words != self._last_failure:
            self._logger.warning("coordinator.failed", purpose=purpose.value, error=str(error))
        self._last_failure = words
