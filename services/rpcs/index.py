"""The RPCs of the index service; see protos/reput/index/v1."""

from reput.index.v1 import index_service_pb2 as pb
from services.methods import INDEX_SERVICE as PREFIX
from services.rpcs import Rpc

SEARCH_KEY = Rpc(PREFIX + "SearchKey", pb.SearchKeyRequest, pb.SearchKeyResponse)
GET_FILTER_PAGES = Rpc(PREFIX + "GetFilterPages", pb.GetFilterPagesRequest, pb.GetFilterPagesResponse)
GET_STATUS = Rpc(PREFIX + "GetStatus", pb.GetStatusRequest, pb.GetStatusResponse)
