"""A message with what can be said about it."""

import logging
from typing import Any, Generic, TypeVar, cast

from reput_client.consuming.cache import Held
from reput_client.consuming.received_message import ReceivedMessage

Outcome = TypeVar("Outcome")

_log = logging.getLogger("reput_client")


class Delivery(Generic[Outcome]):
    """A message that a consumer got. Say once what shall become of it; a message of which nothing is said comes again.

    The methods return at once. Their future has None when the gateway has answered, or the error that it ended with:
    ReceiptHandleNotFoundError when the message's time was over. What is said is tried until then; messages share calls.

    Attributes:
        message: the message.
        delivery_attempt: 1 for the first delivery, failures in this process included.
    """

    __slots__ = ("_core", "_held", "delivery_attempt", "message")

    def __init__(self, core: Any, held: Held) -> None:
        self._core = core
        self._held = held
        self.message: ReceivedMessage = held.message
        self.delivery_attempt = held.attempt

    def ack(self) -> Outcome:
        """It is consumed."""
        return cast(Outcome, self._core.ack(self._held))

    def nack(self, seconds: float | None = None) -> Outcome:
        """It is not consumed: it comes again after so many seconds, by default the back-off of its group."""
        return cast(Outcome, self._core.nack(self._held, seconds))

    def forward_to_dead_letters(self) -> Outcome:
        """It will never be consumed: it becomes a dead letter of the group."""
        return cast(Outcome, self._core.dead(self._held))

    def handler_failed(self, error: BaseException) -> None:
        """A handler raised an error: it is logged, and the message comes again."""
        message = self.message
        _log.warning(
            "the handler failed for message %s of %s at attempt %d: %r",
            *(message.message_id, message.topic, self.delivery_attempt, error),
        )
        self.nack()

    def __repr__(self) -> str:
        return f"Delivery({self.message!r}, delivery_attempt={self.delivery_attempt})"
