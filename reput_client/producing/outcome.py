"""The outcome of each message, from an answer or from the end of the attempts."""

from collections.abc import Iterable, Sequence

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.encoding import unique_key_of
from reput_client.errors import (
    AccessError,
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
from reput_client.producing.futures import Settlement
from reput_client.producing.outbox import Batch, Outbox
from reput_client.status import error_of_status

CLOSED = "were still waiting when the producer was closed"
OVERDUE = "could not be delivered in time"


class Outcomes:
    """Outcomes of messages, collected while the outbox changes and told afterwards, outside any lock.

    Attributes:
        refusal: why a request was refused for now; no more requests may be sent on this stream.
    """

    __slots__ = ("_done", "_failed", "_finished", "refusal")

    def __init__(self) -> None:
        self.refusal: ReputClientError | None = None
        self._done: tuple[Settlement, Sequence[message_pb2.AppendResult]] | None = None
        self._failed: list[tuple[Settlement, dict[int, ReputClientError]]] = []
        self._finished: list[Batch] = []

    def take_answer(self, outbox: Outbox, response: pb.AppendMessageStreamResponse) -> None:
        """The answer to the oldest request in flight."""
        if not outbox.in_flight_count:
            raise InternalError("the gateway sent an answer without a request")
        batch = outbox.answered()
        if response.HasField("error"):
            self._take_refusal(outbox, batch, error_of_status(response.error))
            return
        results = response.results
        if len(results) != len(batch.wires):
            batch.may_be_written = True
            batch.error = InternalError(f"{len(results)} receipts came for {len(batch.wires)} messages")
            outbox.settle(batch)
            self.give_up([batch], "were answered, but not one by one")
            return
        outbox.settle(batch)
        self._done = batch.settlement, results
        self._finished.append(batch)

    def _take_refusal(self, outbox: Outbox, batch: Batch, error: ReputClientError) -> None:
        if isinstance(error, FlushFailedError):
            batch.may_be_written = True
        if is_worth_retrying(error):
            outbox.refuse(batch, error)
            self.refusal = error
            return
        index = error.metadata.get("index", "")
        if index.isdigit() and int(index) < len(batch.wires):
            self._failed.append((batch.settlement, {outbox.drop_message(batch, int(index)): error}))
            if not batch.wires:
                self._finished.append(batch)
            return
        outbox.settle(batch)
        self._fail(batch, [error] * len(batch.wires))

    def take_stream_error(self, outbox: Outbox, error: ReputClientError) -> None:
        """The stream ended with an error that a retry does not cure: the oldest request in flight fails with it."""
        if not outbox.in_flight_count:
            return
        batch = outbox.answered()
        outbox.settle(batch)
        # The caller is checked when a stream begins: nothing that was sent on this one is stored.
        is_locked_out = isinstance(error, AccessError) and not batch.may_be_written
        if is_locked_out or isinstance(error, InvalidRequestError | FailedPreconditionError):
            self._fail(batch, [error] * len(batch.wires))
        else:
            batch.may_be_written = True
            batch.error = error
            self.give_up([batch], "ended their stream")

    def give_up(self, batches: Sequence[Batch], why: str) -> None:
        """Fail batches that are not tried again.

        Args:
            batches: already settled.
            why: the rest of a sentence that begins with "The messages".
        """
        for batch in batches:
            self._fail(batch, (_error_of_giving_up(batch, wire, why) for wire in batch.wires))

    def _fail(self, batch: Batch, errors: Iterable[ReputClientError]) -> None:
        slots = {batch.slot_of(index): error for index, error in enumerate(errors)}
        self._failed.append((batch.settlement, slots))
        self._finished.append(batch)

    def tell(self) -> None:
        """Settle the futures and call callbacks; what a callback raises is logged."""
        if self._done is not None:
            settlement, results = self._done
            settlement.settle(results)
        for settlement, errors in self._failed:
            settlement.fail(errors)

    def finish(self, outbox: Outbox) -> None:
        """Tell the outbox that the outcomes were told."""
        for batch in self._finished:
            outbox.finish(batch)


def _error_of_giving_up(batch: Batch, wire: bytes, why: str) -> ReputClientError:
    last = f" The last failure: {batch.error}" if batch.error is not None else ""
    error: ReputClientError
    if batch.may_be_written:
        error = DeliveryUnknownError(
            f"The messages {why}; they were sent, so whether they are stored is unknown.{last}",
            metadata={"uniqueKey": unique_key_of(wire)},
        )
    elif why == CLOSED:
        error = ProducerClosedError(f"The messages {why}; they are not stored.{last}")
    else:
        error = DeliveryTimeoutError(f"The messages {why}; they are not stored.{last}")
    error.__cause__ = batch.error
    return error
