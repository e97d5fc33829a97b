"""Filter expressions of RocketMQ's contract."""

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.ports.delivery import EXPRESSION_CHARACTERS_MAX, message_filter
from gateway.rocketmq.status import RefusedError
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb


def filter_of(expression: v2.FilterExpression) -> gateway_pb.MessageFilter:
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
    return message_filter(text, is_sql=expression.type == v2.SQL)
