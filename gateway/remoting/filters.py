"""Filters of subscriptions."""

from gateway.ports.delivery import ALL_MESSAGES, EXPRESSION_CHARACTERS_MAX, Filter, FilterKind
from gateway.remoting.door import RefusedError
from gateway.remoting.door_clients import TAG, Subscription
from services.rocketmq.codes import ResponseCode


def filter_of(expression_type: str, expression: str) -> Filter:
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
        return Filter(FilterKind.SQL, expression)
    return ALL_MESSAGES if expression.strip() in ("", "*") else Filter(FilterKind.TAGS, expression)


def wanted_by(subscription: Subscription) -> Filter:
    """See `filter_of`."""
    return filter_of(subscription.expression_type, subscription.expression)
