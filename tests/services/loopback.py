"""A real server on loopback with a small commitlog service, whose answers a test writes as plain functions."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings

SERVICE_NAME = "reput.commitlog.v1.CommitLogService"


class ScriptedCommitLog(pb_grpc.CommitLogServiceServicer):
    """Answers each RPC with the function of the same name, written in snake case."""

    def __init__(self, **behaviours: Callable[[Any, grpc.ServicerContext], Any]) -> None:
        self.behaviours = behaviours

    def AppendMessages(self, request, context):
        return self.behaviours["append_messages"](request, context)

    def AppendMessageStream(self, request_iterator, context):
        yield from self.behaviours["append_message_stream"](request_iterator, context)

    def GetMessage(self, request, context):
        return self.behaviours["get_message"](request, context)

    def BatchGetMessages(self, request, context):
        return self.behaviours["batch_get_messages"](request, context)

    def Reput(self, request, context):
        yield from self.behaviours["reput"](request, context)

    def ReportProgress(self, request, context):
        return self.behaviours["report_progress"](request, context)

    def RemoveFollower(self, request, context):
        return self.behaviours["remove_follower"](request, context)

    def GetStatus(self, request, context):
        return self.behaviours["get_status"](request, context)


@contextlib.contextmanager
def commit_log_server(address: str = "127.0.0.1:0", **behaviours: Any) -> Iterator[ServiceServer]:
    """A serving server, ended cleanly with the block unless the test did so."""
    server = ServiceServer("commitlog", ServiceSettings(address=address, worker_count=8))
    server.add(SERVICE_NAME, pb_grpc.add_CommitLogServiceServicer_to_server, ScriptedCommitLog(**behaviours))
    server.start()
    server.set_serving(True)
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    try:
        yield server
    finally:
        server.stop()
        ended.join()


def stub(server: ServiceServer) -> pb_grpc.CommitLogServiceStub:
    """A bare stub, without any of our client code."""
    return pb_grpc.CommitLogServiceStub(grpc.insecure_channel(server.address))


def get_request(commit_log_offset: int = 0) -> pb.GetMessageRequest:
    return pb.GetMessageRequest(commit_log_offset=commit_log_offset)
