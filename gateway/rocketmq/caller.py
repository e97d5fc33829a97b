"""The caller, by the metadata that RocketMQ's clients send with each call."""

from typing import Any, NamedTuple

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.status import RefusedError

CLIENT_ID = "x-mq-client-id"
LANGUAGE = "x-mq-language"
CLIENT_VERSION = "x-mq-client-version"
# Ids are kept; a client decides how long its id is.
CLIENT_ID_CHARACTERS_MAX = 255


class Caller(NamedTuple):
    """A client.

    Attributes:
        client_id: its identity, on whatever connection; empty: it has none, or one that is too long to be kept.
        language: such as JAVA; may be empty.
        version: of its library; may be empty.
        address: of the connection.
    """

    client_id: str
    language: str
    version: str
    address: str


def caller_of(call: Any) -> Caller:
    """The client of a call or context."""
    client_id = language = version = ""
    for name, value in call.invocation_metadata() or ():
        if name == CLIENT_ID:
            client_id = value
        elif name == LANGUAGE:
            language = value
        elif name == CLIENT_VERSION:
            version = value
    if len(client_id) > CLIENT_ID_CHARACTERS_MAX:
        client_id = ""
    return Caller(client_id, language[:32], version[:32], call.peer())


def consumer_of(call: Any) -> Caller:
    """The same for a call that needs to know its client.

    Raises:
        RefusedError: CLIENT_ID_REQUIRED.
    """
    caller = caller_of(call)
    if not caller.client_id:
        raise RefusedError(
            v2.CLIENT_ID_REQUIRED,
            f"the metadata {CLIENT_ID} is missing or longer than {CLIENT_ID_CHARACTERS_MAX} characters: set it",
        )
    return caller
