"""Pages of queues over a real socket."""

import contextlib
import threading
from collections.abc import Iterator

from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as pb_grpc
from services.calling.client import ServiceClient
from services.calling.consumequeue import list_queues
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings

QUEUES = [pb.Queue(topic="orders", queue_id=number, max_offset=number) for number in range(5)]


class TwoAPage(pb_grpc.ConsumeQueueServiceServicer):
    """Lists two queues a page."""

    def ListQueues(self, request, context):
        first = int(request.page_token or 0)
        more = str(first + 2) if first + 2 < len(QUEUES) else ""
        return pb.ListQueuesResponse(queues=QUEUES[first : first + 2], next_page_token=more)


@contextlib.contextmanager
def client() -> Iterator[ServiceClient]:
    server = ServiceServer("consumequeue", ServiceSettings())
    server.add(
        "reput.consumequeue.v1.ConsumeQueueService", pb_grpc.add_ConsumeQueueServiceServicer_to_server, TwoAPage()
    )
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    yield ServiceClient("consumequeue", server.address)
    server.stop()
    ended.join()


def test_queues_of_all_pages_are_listed():
    with client() as queues:
        assert list_queues(queues) == QUEUES
