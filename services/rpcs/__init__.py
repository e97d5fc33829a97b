"""The RPCs of the inner services as typed values: a path of services/methods.py with the classes of its request and answer.

    answer = client.call(consumer.ACK_MESSAGES, request, seconds)      # the type checker knows: pb.AckMessagesResponse

Each service has a module with a constant for each RPC, which imports the messages of that service only. How an RPC is repeated
and timed stands in services/methods.py; how it is sent, in services/calling/client.py. No gRPC here, so code that decides may
name an RPC.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar

from google.protobuf.message import Message

from services.methods import METHODS, Method


class Parsed(Protocol):
    """What bytes of the wire become: a message, or a form of its own (services/calling/pulled_bytes.py)."""

    @classmethod
    def FromString(cls, data: bytes, /) -> Self:  # noqa: N802  # the name of protobuf
        """The answer of its bytes; DecodeError when they are none."""


Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Parsed)


@dataclass(frozen=True, eq=False)
class Rpc(Generic[Request, Answer]):
    """An RPC.

    Attributes:
        path: as in services/methods.py.
        request_class: the class of its requests.
        answer_class: the class of its answers.
    """

    path: str
    request_class: type[Request]
    answer_class: type[Answer]

    @cached_property
    def row(self) -> Method:
        """Its facts."""
        return METHODS[self.path]

    @cached_property
    def service(self) -> str:
        """The service that has it, as errors name it: `consumer`."""
        return self.path.split(".")[1]

    @cached_property
    def name(self) -> str:
        """Its name in the proto: `AckMessages`."""
        return self.path.rpartition("/")[2]


class Calls(Protocol):
    """Calls one service, as services/calling/client.py does."""

    def call(self, rpc: Rpc[Request, Answer], request: Request, timeout_seconds: float, /) -> Answer:
        """The answer within so many seconds; StoreError as the service raised it."""
