"""Messages of any queues are sent back in one call for each queue."""

from collections.abc import Callable, Sequence

from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.querying.message import Message
from reput_client.querying.pulled import SendBackOutcome

# Of a SendBackMessages.
SENT_BACK_COUNT_MAX = 32


def sent_back(
    messages: Sequence[Message], call: Callable[[MessageQueue, Sequence[int]], Sequence[SendBackOutcome]]
) -> list[SendBackOutcome]:
    """Send messages back; the outcomes in order.

    Args:
        messages: of any queues.
        call: sends positions of one queue back, at most SENT_BACK_COUNT_MAX; the outcomes in order.
    """
    places: dict[MessageQueue, list[int]] = {}
    for place, message in enumerate(messages):
        places.setdefault(MessageQueue(message.topic, message.broker_name, message.queue_id), []).append(place)
    outcomes: dict[int, SendBackOutcome] = {}
    for queue, of_queue in places.items():
        for begin in range(0, len(of_queue), SENT_BACK_COUNT_MAX):
            some = of_queue[begin : begin + SENT_BACK_COUNT_MAX]
            answer = call(queue, [messages[place].queue_offset for place in some])
            outcomes.update(zip(some, answer, strict=True))
    return [outcomes[place] for place in range(len(messages))]
