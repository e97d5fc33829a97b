"""`AppendClient` and `AsyncAppendClient`: messages appended in requests of the caller's making."""

from collections.abc import Iterable
from typing import Any

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.calls import AsyncGatewayCalls, GatewayCalls
from reput_client.encoding import FlushMode, to_message
from reput_client.producing.messages import NewMessage
from reput_client.receipt import SendReceipt

# A value of this library, or the contract's own message, which is sent as it is.
AnyNewMessage = NewMessage | message_pb2.NewMessage


class AppendClient(GatewayCalls):
    """Appends messages, one unary request for each call; for any number of threads. Arguments as `GatewayCalls`.

    It has no buffer and makes no unique keys: the store makes those that are missing. `Producer` is the better choice for
    programs that send many messages; this class serves tools that must know which request has failed.
    """

    def append(
        self,
        messages: Iterable[AnyNewMessage],
        *,
        flush_mode: FlushMode = FlushMode.SERVER_DEFAULT,
        deduplicate: bool = False,
    ) -> tuple[SendReceipt, ...]:
        """Append 1 to 1,024 messages with at most 4 MiB of bodies; their receipts, in order.

        Args:
            messages: stored all or none.
            flush_mode: when the service answers.
            deduplicate: store none that the store already has under its topic and unique key; each needs a unique key. Only
                such a request is tried again after a failure.

        Raises:
            ReputClientError: the request failed. After an UnavailableError the messages may be stored or not.
            TypeError, ValueError: a field of a message cannot be encoded.
        """
        request = append_request(messages, flush_mode, deduplicate=deduplicate)
        return receipts_of(self.call("AppendMessages", request, is_repeatable=deduplicate))


class AsyncAppendClient(AsyncGatewayCalls):
    """The same for asyncio. Arguments as `AsyncGatewayCalls`."""

    async def append(
        self,
        messages: Iterable[AnyNewMessage],
        *,
        flush_mode: FlushMode = FlushMode.SERVER_DEFAULT,
        deduplicate: bool = False,
    ) -> tuple[SendReceipt, ...]:
        """See `AppendClient.append`."""
        request = append_request(messages, flush_mode, deduplicate=deduplicate)
        return receipts_of(await self.call("AppendMessages", request, is_repeatable=deduplicate))


def append_request(
    messages: Iterable[AnyNewMessage], flush_mode: FlushMode, *, deduplicate: bool
) -> pb.AppendMessagesRequest:
    """The request; TypeError or ValueError for a field that cannot be encoded."""
    encoded = [to_message(*each) if isinstance(each, NewMessage) else each for each in messages]
    return pb.AppendMessagesRequest(messages=encoded, flush=flush_mode.value, deduplicate=deduplicate)


def receipts_of(response: Any) -> tuple[SendReceipt, ...]:
    """The receipts of a response, in the order of its messages."""
    return tuple(map(SendReceipt, response.results))
