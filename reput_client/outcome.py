"""How one answer or one end of trying becomes the outcome of each message."""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Sequence

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.errors import (
    DeliveryTimeoutError,
    DeliveryUnknownError,
    FailedPreconditionError,
    FlushFailedError,
    InternalError,
    InvalidRequestError,
    ProducerClosedError,
    ReputClientError,
    is_worth_retrying,
)
from reput_client.outbox import Batch, Message, Outbox
from reput_client.receipt import SendReceipt
from reput_client.status import error_of_status

OnDelivery = Callable[[SendReceipt | None, ReputClientError | None], None]

InvalidStateError = (concurrent.futures.InvalidStateError, asyncio.InvalidStateError)

_log = logging.getLogger("reput_client")


class Outcomes:
    """What is to be told to whom, gathered while the outbox is changed and told afterwards, outside any lock.

    Attributes:
        refusal: why a request was refused for now: no more are to be sent on this stream.
    """

    __slots__ = ("_done", "_failed", "_finished", "refusal")

    def __init__(self) -> None:
        self.refusal: ReputClientError | None = None
        self._done: tuple[Sequence[Message], Sequence[message_pb2.AppendResult]] = ((), ())
        self._failed: list[tuple[Message, ReputClientError]] = []
        self._finished: list[Batch] = []

    def take_answer(self, outbox: Outbox, response: pb.AppendMessageStreamResponse) -> None:
        """The answer to the oldest request in flight."""
        if not outbox.in_flight_count:
            raise InternalError("an answer came to no request")
        batch = outbox.answered()
        if response.HasField("error"):
            self._take_refusal(outbox, batch, error_of_status(response.error))
            return
        results = response.results
        if len(results) != len(batch.messages):
            batch.may_be_written = True
            batch.error = InternalError(f"{len(results)} receipts came for {len(batch.messages)} messages")
            outbox.settle(batch)
            self.give_up([batch], "were answered, but not one by one")
            return
        outbox.settle(batch)
        self._done = batch.messages, results
        self._finished.append(batch)

    def _take_refusal(self, outbox: Outbox, batch: Batch, error: ReputClientError) -> None:
        if isinstance(error, FlushFailedError):
            batch.may_be_written = True
        if is_worth_retrying(error):
            outbox.refuse(batch, error)
            self.refusal = error
            return
        index = error.metadata.get("index", "")
        if index.isdigit() and int(index) < len(batch.messages):
            self._failed.append((outbox.drop_message(batch, int(index)), error))
            if not batch.messages:
                self._finished.append(batch)
            return
        outbox.settle(batch)
        self._failed += [(message, error) for message in batch.messages]
        self._finished.append(batch)

    def take_stream_error(self, outbox: Outbox, error: ReputClientError) -> None:
        """The stream ended in a way that trying again does not cure: the oldest request in flight pays for it."""
        if not outbox.in_flight_count:
            return
        batch = outbox.answered()
        outbox.settle(batch)
        if isinstance(error, InvalidRequestError | FailedPreconditionError):
            self._failed += [(message, error) for message in batch.messages]
            self._finished.append(batch)
        else:
            batch.may_be_written = True
            batch.error = error
            self.give_up([batch], "ended their stream")

    def give_up(self, batches: Sequence[Batch], why: str) -> None:
        """Batches that were taken out are not tried any more.

        Args:
            batches: already settled.
            why: goes on after "the messages ".
        """
        for batch in batches:
            self._finished.append(batch)
            for message in batch.messages:
                self._failed.append((message, _error_of_giving_up(batch, message, why)))

    def tell(self) -> None:
        """Set futures and call callbacks; what a callback raises is logged."""
        messages, results = self._done
        for message, result in zip(messages, results, strict=True):
            receipt = SendReceipt(result)
            try:  # noqa: SIM105  # a context manager for each message is felt
                message.future.set_result(receipt)
            except InvalidStateError:  # cancelled or set by its holder
                pass
            if message.on_delivery is not None:
                _call(message.on_delivery, receipt, None)
        for message, error in self._failed:
            try:
                message.future.set_exception(error)
                if message.on_delivery is not None:
                    message.future.exception()  # asyncio complains of errors that nobody was told
            except InvalidStateError:
                pass
            if message.on_delivery is not None:
                _call(message.on_delivery, None, error)

    def finish(self, outbox: Outbox) -> None:
        """Note in the outbox that everybody was told."""
        for batch in self._finished:
            outbox.finish(batch)


def _call(on_delivery: OnDelivery, receipt: SendReceipt | None, error: ReputClientError | None) -> None:
    try:
        on_delivery(receipt, error)
    except Exception:
        _log.exception("on_delivery failed")


def _error_of_giving_up(batch: Batch, message: Message, why: str) -> ReputClientError:
    last = f" The last failure: {batch.error}" if batch.error is not None else ""
    error: ReputClientError
    if batch.may_be_written:
        error = DeliveryUnknownError(
            f"The messages {why}; they were sent, so whether they are stored is unknown.{last}",
            metadata={"uniqueKey": message.unique_key},
        )
    elif why == CLOSED:
        error = ProducerClosedError(f"The messages {why}; they are not stored.{last}")
    else:
        error = DeliveryTimeoutError(f"The messages {why}; they are not stored.{last}")
    error.__cause__ = batch.error
    return error


CLOSED = "were still waiting when the producer was closed"
OVERDUE = "could not be delivered in time"
