"""The consumequeue client over a real socket."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as pb_grpc
from services.calling.consumequeue import ConsumeQueueClient
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import QueueNotFoundError

QUEUES = [pb.Queue(topic="orders", queue_id=number, max_offset=number) for number in range(5)]


class TwoAPage(pb_grpc.ConsumeQueueServiceServicer):
    """Lists two queues a page; has units and times of queue 0 only."""

    def ListQueues(self, request, context):
        first = int(request.page_token or 0)
        more = str(first + 2) if first + 2 < len(QUEUES) else ""
        return pb.ListQueuesResponse(queues=QUEUES[first : first + 2], next_page_token=more)

    def GetQueueUnits(self, request, context):
        if request.queue_id:
            raise QueueNotFoundError("no such queue", topic=request.topic, queueId=request.queue_id)
        units = [pb.QueueUnit(queue_offset=request.queue_offset + at) for at in range(request.max_units)]
        return pb.GetQueueUnitsResponse(units=units, max_offset=99)

    def SearchOffset(self, request, context):
        return pb.SearchOffsetResponse(queue_offset=request.time.ToMilliseconds() + request.boundary)


@contextlib.contextmanager
def client() -> Iterator[ConsumeQueueClient]:
    server = ServiceServer("consumequeue", ServiceSettings())
    server.add(
        "reput.consumequeue.v1.ConsumeQueueService", pb_grpc.add_ConsumeQueueServiceServicer_to_server, TwoAPage()
    )
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    yield ConsumeQueueClient(server.address)
    server.stop()
    ended.join()


def test_queues_of_all_pages_are_listed():
    with client() as queues:
        assert queues.list_queues() == QUEUES


def test_units_come_with_the_range_of_their_queue():
    with client() as queues:
        response = queues.get_units("orders", 0, 7, 3)

    assert [unit.queue_offset for unit in response.units] == [7, 8, 9]
    assert response.max_offset == 99


def test_an_unknown_queue_is_the_typed_error():
    with client() as queues, pytest.raises(QueueNotFoundError) as caught:
        queues.get_units("orders", 4, 0, 1)

    assert caught.value.metadata == {"topic": "orders", "queueId": "4"}


def test_a_time_is_passed_on_to_the_millisecond():
    with client() as queues:
        assert queues.search_offset("orders", 0, 1_234, pb.BOUNDARY_UPPER).queue_offset == 1_236
