"""Filters of subscriptions."""

from gateway.ports.delivery import EXPRESSION_CHARACTERS_MAX, TAG, message_filter
from gateway.remoting.door import RefusedError
from gateway.remoting.door_clients import Subscription
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.rocketmq.codes import ResponseCode


def filter_of(expression_type: str, expression: str) -> gateway_pb.MessageFilter:
    """Which messages a subscription wants; what the text means is checked by the consumer service.

    Raises:
        RefusedError: it is too long.
    """
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription has {len(expression)} characters: use at most {EXPRESSION_CHARACTERS_MAX}",
        )
    if expression_type not in ("", TAG):
        return message_filter(expression, is_sql=True)
    return message_filter("" if expression.strip() in ("", "*") else expression)


def wanted_by(subscription: Subscription) -> gateway_pb.MessageFilter:
    """See `filter_of`."""
    return filter_of(subscription.expression_type, subscription.expression)
