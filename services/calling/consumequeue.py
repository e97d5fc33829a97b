"""What is more than one call to a consumequeue service."""

from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.rpcs import Calls
from services.rpcs import consumequeue as rpc
from services.serving.deadline import SECONDS_DEFAULT

PAGE_SIZE = 1_000


def list_queues(
    client: Calls, topic: str = "", *, of_namespaces: bool = False, timeout_seconds: float = SECONDS_DEFAULT
) -> list[pb.Queue]:
    """All queues with their ranges, by topic and number, from all pages.

    Args:
        client: calls the service.
        topic: only this topic's; empty = all topics.
        of_namespaces: only those of topics of a namespace, with their stored bytes.
        timeout_seconds: for each page.
    """
    queues: list[pb.Queue] = []
    page_token = ""
    while True:
        request = pb.ListQueuesRequest(
            topic=topic, page_size=PAGE_SIZE, page_token=page_token, of_namespaces=of_namespaces
        )
        response = client.call(rpc.LIST_QUEUES, request, timeout_seconds)
        queues.extend(response.queues)
        page_token = response.next_page_token
        if not page_token:
            return queues
