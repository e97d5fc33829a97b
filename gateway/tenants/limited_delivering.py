"""The consumer service of a shard, within the quotas of namespaces.

What a namespace gets more than its rate waits for HOLD_SECONDS_MAX, then it is refused: clients ask again at once, or 20 ms
later, and would ask without end what can be refused at once. How many messages a call hands out is known behind it, so they are
counted then, and the next calls wait until that is paid.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TypeVar

from gateway.delivery.timers import Timers
from gateway.ports.delivery import Pulled, Then
from gateway.shards.remote_delivery import RemoteDelivering
from gateway.tenants.tenants import Tenants
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.calling.client import ServiceClient
from store.errors import QuotaExceededError, StoreError

# A poll that is held waits for no thread.
HOLD_SECONDS_MAX = 1.0

Answer = TypeVar("Answer")

_numbers = count()


class LimitedDelivering(RemoteDelivering):
    """See above.

    Args:
        tenants: the namespaces.
        timers: end holds.
        broker_name, client: see RemoteDelivering.
        clock: that of the timers.
    """

    def __init__(
        self, tenants: Tenants, timers: Timers, clock: Callable[[], float], broker_name: str, client: ServiceClient
    ) -> None:
        super().__init__(broker_name, client)
        self._tenants = tenants
        self._timers = timers
        self._clock = clock

    def pop(self, request: pb.PopMessagesRequest, seconds: float, then: Then[pb.PopMessagesResponse]) -> None:
        """See the port."""
        try:
            self._tenants.check_group(request.consumer_group)
        except QuotaExceededError as refusal:
            then(refusal)
            return
        told: Then[pb.PopMessagesResponse] = self._counted(request.topic, then, _popped_count)
        self._when_paid(request.topic, told, partial(super().pop, request, seconds, told))

    def pull(self, request: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        """See the port."""
        told: Then[Pulled] = self._counted(request.topic, then, _pulled_count)
        self._when_paid(request.topic, told, partial(super().pull, request, seconds, told))

    def commit_offset(self, consumer_group: str, topic: str, queue_id: int, queue_offset: int, seconds: float) -> None:
        """See the port."""
        self._tenants.check_group(consumer_group)
        super().commit_offset(consumer_group, topic, queue_id, queue_offset, seconds)

    def make_group(self, settings: pb.GroupSettings, caller: str, seconds: float) -> None:
        """See the port."""
        self._tenants.check_group(settings.consumer_group)
        super().make_group(settings, caller, seconds)

    def _counted(self, topic: str, then: Then[Answer], count_of: Callable[[Answer], int]) -> Then[Answer]:
        def told(outcome: Answer | StoreError) -> object:
            if not isinstance(outcome, StoreError) and (message_count := count_of(outcome)):
                self._tenants.delivered(topic, message_count)
            return then(outcome)

        return told

    def _when_paid(self, topic: str, then: Then[Answer], begin: Callable[[], object]) -> None:
        wait_seconds = self._tenants.delivery_wait_seconds(topic)
        if wait_seconds <= 0:
            begin()
            return

        def look_again() -> None:
            if self._tenants.delivery_wait_seconds(topic) > 0:
                then(self._tenants.delivery_refusal(topic))
            else:
                begin()

        at_seconds = self._clock() + min(wait_seconds, HOLD_SECONDS_MAX)
        self._timers.set((self, next(_numbers)), at_seconds, look_again)


def _popped_count(answer: pb.PopMessagesResponse) -> int:
    return len(answer.deliveries)


def _pulled_count(pulled: Pulled) -> int:
    return len(pulled.messages)
