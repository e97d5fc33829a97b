"""What the ports over gRPC send."""

from gateway.groups.administration import UPDATE_GROUP
from gateway.ports.chain import MethodTable
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard
from gateway.shards.remote import serve_consumer
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.serving.admission.callers import WorkingFor
from services.serving.admission.shares import client_of_peer


class Client:
    """Notes the requests."""

    def __init__(self) -> None:
        self.sent: list[pb.UpdateGroupRequest] = []

    def call(self, rpc: object, request: pb.UpdateGroupRequest, seconds: float) -> pb.UpdateGroupResponse:
        self.sent.append(request)
        return pb.UpdateGroupResponse()


def test_a_request_that_several_shards_get_is_not_changed_by_one_of_them() -> None:
    """It was, by all of them at once: the caller of a shard was overwritten by another thread."""
    client, table = Client(), MethodTable()
    serve_consumer(table, client)  # type: ignore[arg-type]
    request = pb.UpdateGroupRequest(if_unset=True)
    with WorkingFor(client_of_peer("ipv4:10.0.0.7:1")):
        Shard("a", table).call(UPDATE_GROUP, request, Deadline.after(1.0))
    assert request.caller == ""
    assert (client.sent[0].caller, client.sent[0].if_unset) == ("ipv4:10.0.0.7:1", True)
