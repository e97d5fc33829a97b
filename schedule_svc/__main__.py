"""Runs the schedule service: `python -m schedule_svc`."""

if __name__ == "__main__":
    import services.light_imports  # noqa: F401  # before the others, and in a process of its own only

# isort: split

from reput.schedule.v1 import schedule_service_pb2 as pb
from reput.schedule.v1 import schedule_service_pb2_grpc as pb_grpc
from schedule_svc.follower import FOLLOWER, GATHER_MILLIS, SchedulePart
from schedule_svc.servicer import ScheduleServicer
from schedule_svc.settings import ScheduleSettings
from schedule_svc.transactions.kind import LastingTransactions
from services.calling.client import ServiceClient
from services.calling.commitlog import CommitLogClient
from services.following.follower_progress import FollowerProgress
from services.following.follower_service import follow
from services.local.server import over_bytes, serve_local
from services.local.wire import VERDICTS, LocalMethod
from services.serving.process import main
from services.serving.server import Service, ServiceServer
from services.settings.service_settings import Origins


def serve(server: ServiceServer, settings: ScheduleSettings, origins: Origins) -> None:
    """Puts the service onto a server."""
    commitlog = CommitLogClient(settings.commitlog_target, tls=server.tls)
    consumequeue = ServiceClient("consumequeue", settings.consumequeue_target, tls=server.tls)
    progress = FollowerProgress()
    lasting = LastingTransactions()
    servicer = ScheduleServicer(progress, lasting.gateways, server.stopping.is_set)
    server.add("reput.schedule.v1.ScheduleService", pb_grpc.add_ScheduleServiceServicer_to_server, servicer)
    part = SchedulePart(settings, servicer, progress, commitlog, consumequeue, lasting)
    server.on_drain(lasting.gateways.end)
    server.on_stop(consumequeue.close)  # after the follower has stopped
    follow(
        FOLLOWER, server, settings, commitlog, progress, part, servicer, follows_role=True, gather_millis=GATHER_MILLIS
    )
    verdicts = {LocalMethod.END_TRANSACTIONS: over_bytes(pb.EndTransactionsRequest, servicer.EndTransactions)}
    serve_local(VERDICTS, settings.address, verdicts, server)


SERVICE = Service(FOLLOWER, ScheduleSettings, serve)

if __name__ == "__main__":
    main(SERVICE)
