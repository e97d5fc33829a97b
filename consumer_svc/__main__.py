"""Runs the consumer service: `python -m consumer_svc`."""

if __name__ == "__main__":
    import services.light_imports  # noqa: F401  # before the others, and in a process of its own only

# isort: split

import secrets
import time
from functools import partial
from pathlib import Path

from consumer_svc.arrivals import Arrivals
from consumer_svc.figures import Figures
from consumer_svc.follower import ConsumerPart
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.queue_locks import QueueLocks
from consumer_svc.servicer import ConsumerServicer, add_to_server
from consumer_svc.settings import ConsumerSettings
from consumer_svc.state_topic import FOLLOWER
from services.calling.client import ServiceClient
from services.calling.commitlog import CommitLogClient
from services.following.follower_progress import FollowerProgress
from services.following.follower_service import follow
from services.local.server import serve_local
from services.local.wire import DELIVERIES, TAILS
from services.serving.process import main
from services.serving.server import Service, ServiceServer
from services.settings.service_settings import Origins
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import read_bytes, write_bytes_atomic
from store.format.paths import own_state_dir

SECRET_SIZE_BYTES = 32


def serve(server: ServiceServer, settings: ConsumerSettings, origins: Origins) -> None:
    """Puts the service onto a server."""
    commitlog = CommitLogClient(settings.commitlog_target, tls=server.tls)
    consumequeue = ServiceClient("consumequeue", settings.consumequeue_target, tls=server.tls)
    progress, arrivals = FollowerProgress(), Arrivals()
    clients = LiveConsumers(time.monotonic, changed=arrivals.note_members)
    figures = Figures()
    locks = QueueLocks(time.monotonic)
    servicer = ConsumerServicer(progress, clients, locks, arrivals, server.stopping.is_set, figures)
    server.add("reput.consumer.v1.ConsumerService", add_to_server, servicer)
    if settings.group_metrics:
        server.meters.gauge(
            "reput_consumer_lag_messages",
            "Messages of a topic that a group has not consumed.",
            servicer.lag_counts,
            ("consumer_group", "topic"),
        )
    part = ConsumerPart(
        settings,
        partial(secret_of, settings, RealFileSystem()),
        servicer,
        progress,
        commitlog,
        consumequeue,
        clients,
        arrivals,
        figures,
    )
    server.on_drain(arrivals.end)
    server.on_stop(consumequeue.close)  # after the follower has stopped
    follow(FOLLOWER, server, settings, commitlog, progress, part, servicer, follows_role=True)
    serve_local(DELIVERIES, settings.address, servicer.local_calls(), server)
    serve_local(TAILS, settings.address, servicer.local_tails(), server)


def secret_of(settings: ConsumerSettings, fs: FileSystem) -> bytes:
    """The secret that signs receipt handles: the setting's, or one of the store root, made when there is none."""
    if settings.receipt_secret:
        return settings.receipt_secret.encode()
    if settings.writes_no_records:
        return secrets.token_bytes(SECRET_SIZE_BYTES)  # nothing is handed out
    path = Path(own_state_dir(str(settings.store), FOLLOWER)) / "secret"
    secret = read_bytes(fs, path)
    if not secret:
        secret = secrets.token_bytes(SECRET_SIZE_BYTES)
        write_bytes_atomic(fs, path, secret)
    return secret


SERVICE = Service(FOLLOWER, ConsumerSettings, serve)

if __name__ == "__main__":
    main(SERVICE)
