"""The index client over a real socket."""

import threading

from reput.index.v1 import index_service_pb2 as pb
from reput.index.v1 import index_service_pb2_grpc as pb_grpc
from services.calling.index import IndexClient
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings


def test_a_search_carries_only_the_limits_that_were_given():
    requests = []

    class Index(pb_grpc.IndexServiceServicer):
        def SearchKey(self, request, context):
            requests.append(request)
            return pb.SearchKeyResponse(commit_log_offsets=[9, 5], next_page_token="5")

    server = ServiceServer("index", ServiceSettings())
    server.add("reput.index.v1.IndexService", pb_grpc.add_IndexServiceServicer_to_server, Index())
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    index = IndexClient(server.address)
    page = index.search_key("orders", "k")
    index.search_key(
        "orders", "k", begin_time_millis=0, end_time_millis=7, page_size=3, page_token=page.next_page_token
    )
    server.stop()
    ended.join()

    assert list(page.commit_log_offsets) == [9, 5]
    assert not requests[0].HasField("begin_time")
    assert not requests[0].HasField("end_time")
    assert (requests[1].begin_time.ToMilliseconds(), requests[1].end_time.ToMilliseconds()) == (0, 7)
    assert (requests[1].page_size, requests[1].page_token) == (3, "5")
