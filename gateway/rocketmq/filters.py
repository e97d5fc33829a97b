"""Filter expressions of RocketMQ's contract."""

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.ports.delivery import ALL_MESSAGES, EXPRESSION_CHARACTERS_MAX, Filter, FilterKind
from gateway.rocketmq.status import RefusedError


def filter_of(expression: v2.FilterExpression) -> Filter:
    """Which messages are wanted; what the text means is checked by the consumer service.

    Raises:
        RefusedError: ILLEGAL_FILTER_EXPRESSION.
    """
    text = expression.expression
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise RefusedError(
            v2.ILLEGAL_FILTER_EXPRESSION,
            f"the filter has {len(text)} characters: use at most {EXPRESSION_CHARACTERS_MAX}",
        )
    if expression.type == v2.SQL:
        return Filter(FilterKind.SQL, text)
    return ALL_MESSAGES if text in ("", "*") else Filter(FilterKind.TAGS, text)
