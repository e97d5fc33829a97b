"""What ends a wait, over a schedule service; the lists of what waits are in remote.py."""

from collections.abc import Sequence

from gateway.ports.delivery import Then
from reput.schedule.v1 import schedule_service_pb2 as pb
from services.calling.client import EndlessStream, ServiceClient
from services.calling.verdict_batches import batches_over
from services.rpcs import schedule as rpc


class RemoteScheduling:
    """Scheduling.

    Args:
        broker_name: the shard's name.
        client: calls its schedule service.
    """

    def __init__(self, broker_name: str, client: ServiceClient) -> None:
        self.broker_name = broker_name
        self._client = client
        self._verdicts = batches_over(client)

    def end_transaction(
        self, request: pb.EndTransactionRequest, seconds: float, then: Then[pb.EndTransactionResponse]
    ) -> None:
        """See the port."""
        self._verdicts.end(request, seconds, then)

    def recall(self, request: pb.RecallMessageRequest, seconds: float, then: Then[pb.RecallMessageResponse]) -> None:
        """See the port."""
        self._client.later(rpc.RECALL_MESSAGE, request, seconds, then)

    def keep_producers(
        self,
        gateway_id: str,
        topics: Sequence[str],
        producer_groups: Sequence[str],
        seconds: float,
        unasked: Sequence[str] = (),
    ) -> None:
        """See the port."""
        request = pb.KeepProducersRequest(
            gateway_id=gateway_id, topics=topics, producer_groups=producer_groups, unasked_transaction_ids=unasked
        )
        self._client.call(rpc.KEEP_PRODUCERS, request, seconds)

    def checks(self, gateway_id: str) -> EndlessStream[pb.WatchChecksResponse]:
        """See the port."""
        return self._client.follow(rpc.WATCH_CHECKS, pb.WatchChecksRequest(gateway_id=gateway_id))
