"""A console that acts, over shards in memory; what it sends to the log is kept."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import ServiceUnavailableError
from tests.console import conftest as console_fixtures
from tests.console.asking import Answer, Browser, console_over

records, fan_out, shard = console_fixtures.records, console_fixtures.fan_out, console_fixtures.shard
tokens, deadline = console_fixtures.tokens, console_fixtures.deadline
patient = console_fixtures.patient
SESSION = "0123456789abcdef0123456789abcdef"


class Log:
    """Takes the requests that answer later, and keeps them.

    Attributes:
        asked: the requests so far.
        error: what each raises from now on; None: they answer.
        error_after: so many answer, and the next one fails; None: all answer.
    """

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.error: Any = None
        self.error_after: int | None = None

    def offers(self) -> dict[str, Callable[[bytes, Any], None]]:
        return {
            "AppendMessages": self._offer(pb.AppendMessagesRequest, self._appended),
            "RecallMessage": self._offer(pb.RecallMessageRequest, lambda _: pb.RecallMessageResponse(unique_key="M1")),
            "EndTransaction": self._offer(
                pb.EndTransactionRequest,
                lambda _: pb.EndTransactionResponse(result=message_pb2.AppendResult(offset_msg_id="A" * 32)),
            ),
        }

    @property
    def messages(self) -> list[message_pb2.NewMessage]:
        return [message for request in self.asked for message in request.messages]

    def _appended(self, request: pb.AppendMessagesRequest) -> pb.AppendMessagesResponse:
        ids = [f"{len(self.asked):032X}" for _ in request.messages]
        return pb.AppendMessagesResponse(results=[message_pb2.AppendResult(offset_msg_id=each) for each in ids])

    def _offer(self, kind: Any, answer: Callable[[Any], Any]) -> Callable[[bytes, Any], None]:
        def offer(request: bytes, caller: Any) -> None:
            if self.error is not None:
                raise self.error
            if self.error_after == len(self.asked):
                raise ServiceUnavailableError("the log is down")
            parsed = kind.FromString(request)
            self.asked.append(parsed)
            caller.answer(answer(parsed).SerializeToString())

        return offer


class Acting(Browser):
    """A browser with a session."""

    def __init__(self, app: Any, session: str = SESSION) -> None:
        super().__init__(app)
        self.session = session
        self.cookie = f"reput_form={session}"
        self.form_token = app._confirmations.form_token(session)

    def check(self, action: str, fields: Mapping[str, Any], **headers: str) -> Answer:
        """Post the fields of an action's form."""
        form = {"form_token": self.form_token, **fields}
        return self.post(f"/actions/{action}", encoded(form), **{"cookie": self.cookie, **headers})

    def confirm(self, action: str, shown: Answer, **headers: str) -> Answer:
        """Confirm what was shown."""
        found = re.search('name="confirmation" value="([0-9a-f]+)"', shown.text)
        assert found is not None, shown.text
        return self.check(action, {"confirmation": found[1]}, **headers)


def encoded(fields: Mapping[str, Any]) -> bytes:
    from urllib.parse import urlencode

    return urlencode(fields, doseq=True).encode()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def lines() -> list[dict[str, Any]]:
    """The audit lines."""
    return []


@pytest.fixture
def app(shard, fan_out, log: Log, lines):
    app = console_over(
        [shard], fan_out, offers=log.offers(), audit=lambda event, **fields: lines.append({"event": event, **fields})
    )
    yield app
    app.close()


@pytest.fixture
def acting(app) -> Acting:
    return Acting(app)
