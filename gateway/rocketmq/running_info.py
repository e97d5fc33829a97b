"""The running information of members over gRPC: what the gateway knows, by the names of RocketMQ's ConsumerRunningInfo."""

import time
from collections.abc import Callable

from gateway.groups.running_info import Receiver, Told, Way, document_of, row_of_subscription
from gateway.rocketmq.clients import Clients
from services.rocketmq.fastjson import dump_bytes
from store.errors import UnsupportedStoreError

# As the proxy registers them at brokers.
CONSUME_TYPES = {"simple consumer": "CONSUME_ACTIVELY", "pull consumer": "CONSUME_ACTIVELY"}


def way_to(clients: Clients, wall_clock: Callable[[], float] = time.time) -> Way:
    """The way to members over gRPC that have told this gateway their settings, or gave it a sign of life."""

    def ask(consumer_group: str, client_id: str, told: Receiver, /, *, with_stack_trace: bool) -> bool:
        known = clients.find(client_id)
        if known is None or known.facts.consumer_group != consumer_group:
            return False
        facts = known.facts
        if with_stack_trace:
            told(
                UnsupportedStoreError(
                    f"the member {client_id} of {consumer_group} is a {facts.kind or 'member'} over gRPC, which is not asked "
                    "for the stacks of its threads: leave them out, or print them where it runs"
                )
            )
            return True
        properties = {
            "PROP_CLIENT_VERSION": facts.version,
            "PROP_CONSUME_ORDERLY": str(clients.is_ordered(consumer_group) or False).lower(),
            "PROP_CONSUME_TYPE": CONSUME_TYPES.get(facts.kind, "CONSUME_PASSIVELY"),
            # Since when it is known here; mqadmin takes it for a moment (ms since 1970).
            "PROP_CONSUMER_START_TIMESTAMP": str(int((wall_clock() - clients.age_seconds(known)) * 1000)),
            "address": facts.address,
            "kind": facts.kind,
            "language": facts.language,
            "toldBy": "gateway",
        }
        rows = map(row_of_subscription, facts.subscriptions)
        told(Told(dump_bytes(document_of(properties, rows)), is_by_gateway=True))
        return True

    return ask
