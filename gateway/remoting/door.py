"""Door: takes the commands of RocketMQ's clients for one shard, and gives each to the handler of its request code.

    connection ──▶ RemotingServer ──▶ Door.on_command ──▶ HANDLERS[code](Ask)      in the loop: must not block
                                                             │
                                                             ├── answers at once, or later from any thread: Ask.answer
                                                             └── in_thread(work): a thread of the door runs `work`

A handler is a function of an `Ask`; the other files of this folder say which codes they take (`handlers`). A code without a
handler is answered REQUEST_CODE_NOT_SUPPORTED, with the name of what it asks for where that is known.

Who asks, and whether it may, is found before the handler (gateway/auth/door_guard.py); a handler has `Ask.rights` for what
stands in a body. So is how long the names are that stand in its fields (NAME_FIELDS); `name_in` does it for those in a body.

`code_of` is the only place where an error becomes a response code; the text of the error is the remark. A client repeats a
send on 1, 2, 14, 16 and 17, so a failure that may pass is 14 (SERVICE_NOT_AVAILABLE) or 2 (SYSTEM_BUSY). A
namespace over a quota is 215 (FLOW_CONTROL): no client of Java repeats a send on it by itself.

Clients take turns at the threads, and each has a share of the places where requests wait for one (fair_threads.py); a request
beyond its client's share is answered 2. A request that changes nothing is dropped once its connection has ended.
Single sends and pulls take no thread, unless something has to be asked for first: an unknown topic, or what a group wants.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias

import structlog

from gateway.ports.time_window import TIME_MILLIS_MAX
from gateway.remoting.door_clients import Allowed, DoorClient, DoorClients
from gateway.remoting.fair_threads import FairThreads
from services.rocketmq.address import Address
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import OK, Command, decode
from services.rocketmq.remoting_server import Connection
from services.serving.admission.callers import NAME_CHARACTERS_MAX as CALLER_CHARACTERS_MAX
from services.serving.admission.callers import WorkingFor
from services.serving.admission.shares import Client, client_of_peer
from services.status import MESSAGE_BYTES_MAX, clip
from store import errors
from store.errors import StoreError

# Codes from here to there are those of administration, but for these; those of users wait for a file.
ADMINISTRATION_CODES = frozenset((*range(200, 400), *range(3001, 3011)))
USUAL_CODES = frozenset(
    (
        *(RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
        *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.RECALL_MESSAGE),
    )
)
# What changes nothing, so it is not done for a client that has gone.
ASKING_CODES = frozenset(
    (
        *(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
        *(RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO),
        RequestCode.QUERY_ASSIGNMENT,
        *(RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_CONSUMER_OFFSET),
        *(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_EARLIEST_MSG_STORETIME),
        *(RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET),
        *(RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.CHECK_CLIENT_CONFIG, RequestCode.HEART_BEAT),
        *(RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO),
        *(RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONSUME_STATS),
        RequestCode.VIEW_BROKER_STATS_DATA,
        *(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG),
        *(RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_PRODUCER_CONNECTION_LIST),
        *(RequestCode.GET_CONSUME_STATS, RequestCode.QUERY_CONSUME_TIME_SPAN, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO),
        *(RequestCode.QUERY_TOPICS_BY_CONSUMER, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER),
        *(RequestCode.QUERY_CONSUME_QUEUE, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
    )
)

# What is not served, by what a reader knows it by; other codes are refused by their number.
NOT_SERVED: Mapping[int, str] = {
    47: "the configuration of a client",
    53: "bodies of class filters",
    301: "class filters",
    302: "class filters",
    308: "corrections of offsets",
    323: "the resumption of transaction checks",
    353: "topics that are forbidden to a group",
    354: "consume queues in RocksDB",
    355: "settings in RocksDB",
    402: "the request modes of a copy",
    513: "static topics",
    902: "broker containers",
    903: "broker containers",
    905: "copies of a broker",
    908: "copies of a broker",
    **dict.fromkeys(
        range(1001, 1019), "a controller: `reput status` and `reput lead` show and move the leader of a shard"
    ),
    2001: "limits of cold data: pulls of it have limits of their own",
    2002: "limits of cold data: pulls of it have limits of their own",
    2003: "limits of cold data: pulls of it have limits of their own",
    2004: "read-ahead modes of the log",
    200_056: "the return of popped messages",
    **dict.fromkeys(range(200_070, 200_074), "lite topics"),
}

CODE_BY_ERROR: Mapping[type[StoreError], int] = {
    errors.InvalidMessageError: ResponseCode.MESSAGE_ILLEGAL,
    errors.InvalidArgumentError: ResponseCode.INVALID_PARAMETER,
    errors.InvalidMessageIdError: ResponseCode.INVALID_PARAMETER,
    errors.IllegalFilterError: ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    errors.GroupNotFoundError: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    errors.GroupDisabledError: ResponseCode.NO_PERMISSION,
    errors.TopicNotFoundError: ResponseCode.TOPIC_NOT_EXIST,
    errors.TopicNotReadableError: ResponseCode.NO_PERMISSION,
    errors.QueueNotFoundError: ResponseCode.INVALID_PARAMETER,
    errors.InvalidReceiptHandleError: ResponseCode.MESSAGE_ILLEGAL,
    errors.ReceiptHandleNotFoundError: ResponseCode.NO_MESSAGE,
    errors.VerdictTooLateError: ResponseCode.ILLEGAL_OPERATION,
    errors.FlushFailedError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.DiskFullError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.StoreRecoveringError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.StoreReadOnlyError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.NotLeaderError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.NotEnoughReplicasError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.NotConfirmedError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.CoordinatorUnavailableError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.LogChangedError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.ServiceUnavailableError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.DeadlineExceededError: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.ResourceBusyError: ResponseCode.SYSTEM_BUSY,
    errors.QuotaExceededError: ResponseCode.FLOW_CONTROL,
    errors.PermissionDeniedError: ResponseCode.NO_PERMISSION,
    errors.UnauthenticatedError: ResponseCode.NO_PERMISSION,
    errors.StoreError: ResponseCode.SYSTEM_ERROR,
}
# Of failures that may be over when the client asks again.
MAY_PASS = frozenset((ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY))
# Fields that are Java's long; other numbers are int.
LONG_FIELDS = frozenset(
    (
        *(
            "queueOffset",
            "commitOffset",
            "index",
            "offset",
            "subVersion",
            "suspendTimeoutMillis",
            "timestamp",
            "bornTimestamp",
            "g",
        ),
        *("invisibleTime", "pollTime", "bornTime"),
        *("tranStateTableOffset", "commitLogOffset", "beginTimestamp", "endTimestamp"),
    )
)
# Fields of a message whose refusal RocketMQ's broker tells as INVALID_PARAMETER.
PARAMETERS = frozenset(("topic", "queue_id"))

# Names are kept, compared with patterns and logged, and a header has room for 1 MiB. Groups: RocketMQ's GROUP_MAX_LENGTH, which
# its clients check.
NAME_CHARACTERS_MAX = 255
# %RETRY% and a group are no topic that can be made, and are subscribed to.
TOPIC_CHARACTERS_MAX = 300
# By field: the most characters of what it names. A letter stands for a field of a send (sends.py).
NAME_FIELDS: Mapping[str, int] = {
    **dict.fromkeys(("topic", "parentTopic", "liteTopic", "defaultTopic", "b", "c"), TOPIC_CHARACTERS_MAX),
    **dict.fromkeys(
        ("consumerGroup", "producerGroup", "group", "groupName", "srcGroup", "destGroup", "a"), NAME_CHARACTERS_MAX
    ),
    **dict.fromkeys(("clientID", "clientId", "clientAddr"), NAME_CHARACTERS_MAX),
}
# Of a number of 64 bits with its sign: a longer text is none, however many blanks or zeros it has.
NUMBER_CHARACTERS_MAX = 20

_log = structlog.get_logger("reput.remoting")


class RefusedError(Exception):
    """A request that is answered with a code of RocketMQ's.

    Args:
        code: the response code.
        remark: what happened and what to do.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Answer(NamedTuple):
    """What a request is answered with."""

    fields: Mapping[str, str] = {}
    body: bytes = b""
    code: int = OK
    remark: str = ""


def check_name(field: str, name: str, characters_max: int = NAME_CHARACTERS_MAX) -> None:
    """RefusedError for the name of a group, topic or client that is longer than any; what it has else is not looked at."""
    if len(name) > characters_max:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{field} has {len(name)} characters: at most {characters_max} are possible",
        )


def name_in(said: Mapping[str, Any], field: str) -> str:
    """The name of a group, topic or client in a JSON object; empty for anything but a text. RefusedError as `check_name`."""
    name = said.get(field)
    if not isinstance(name, str):
        return ""
    check_name(field, name, NAME_FIELDS.get(field, NAME_CHARACTERS_MAX))
    return name


def _check_names(fields: Mapping[str, str]) -> None:
    """The same for the fields of a request; nearly all requests have no text that is so long."""
    if fields and max(map(len, fields.values())) > NAME_CHARACTERS_MAX:
        for field in fields.keys() & NAME_FIELDS:
            check_name(field, fields[field], NAME_FIELDS[field])


def code_of(error: StoreError) -> int:
    """The response code of a failure."""
    if isinstance(error, errors.InvalidMessageError):
        if "perm" in error.metadata:
            return ResponseCode.NO_PERMISSION
        if error.metadata.get("field", "") in PARAMETERS:
            return ResponseCode.INVALID_PARAMETER
    return next(CODE_BY_ERROR[base] for base in type(error).__mro__ if base in CODE_BY_ERROR)


_EVERYTHING_IS_SEEN = nullcontext()


class Rights:
    """What the client of a request may do: everything, where clients do not sign in; else see gateway/auth/door_guard.py."""

    __slots__ = ()

    @property
    def access(self) -> Allowed | None:
        """The rights by the access file; None: clients do not sign in."""
        return None

    def sign_in(self) -> None:
        """Find who asks, and in whose share the request counts (`Ask.caller`); UnauthenticatedError."""

    def check(self) -> None:
        """PermissionDeniedError when the client may not send this request, or not for the topic and group of its fields."""

    def sees(self, topic: str) -> bool:
        """Whether the request may show a topic, or what is in it."""
        return True

    def check_topic(self, topic: str) -> None:
        """PermissionDeniedError when the request is not allowed for the topic."""

    def check_read(self, topic: str) -> None:
        """PermissionDeniedError when the client may not read the topic."""

    def allows_group(self, group: str) -> bool:
        """Whether the client may consume for a group."""
        return True

    def check_group(self, group: str) -> None:
        """PermissionDeniedError when it may not."""

    def check_change(self, group: str) -> None:
        """PermissionDeniedError when the client may not change the settings of a group; the audit log has it when it may."""

    def users(self) -> Any:
        """The users of the access file (gateway/auth/users.py), for a request that `check` has allowed; None: clients do not
        sign in.
        """
        return None

    def claim(self, client_id: str) -> None:
        """The client says that this is its id; PermissionDeniedError when it is that of another identity."""

    def release(self, client_id: str) -> None:
        """The client with this id has ended."""

    def working(self) -> AbstractContextManager[None]:
        """Inside the block, calls to the shard show what the client may see."""
        return _EVERYTHING_IS_SEEN

    def appends(self, topic: str, message_count: int) -> None:
        """The audit log has the outcome, as of messages of this topic."""

    def answered(self, code: int) -> None:
        """The request is answered with this code."""

    def refused(self, error: StoreError) -> None:
        """The request is refused."""


class SignIn(Protocol):
    """Finds the rights of requests."""

    def rights_of(self, ask: "Ask") -> Rights:
        """Those of a request, before anything is checked."""


EVERYTHING = Rights()


class Ask:
    """A request; answered once, from any thread.

    Attributes:
        command: as it came.
        connection: from where.
        client: what the connection's heartbeats have said; None before the first.
        caller: in whose share it counts: the identity that has signed it, else the connection.
        lasting_fields: of its answer, also of one that refuses it.
        rights: what its client may do.
    """

    __slots__ = ("_door", "caller", "command", "connection", "lasting_fields", "rights")

    def __init__(self, door: "Door", connection: Connection, command: Command, caller: Client) -> None:
        self._door = door
        self.connection = connection
        self.command = command
        self.caller = caller
        self.lasting_fields: Mapping[str, str] = {}
        self.rights: Rights = EVERYTHING

    @property
    def client(self) -> DoorClient | None:
        """See the class."""
        return self._door.clients.of(self.connection)

    @property
    def caller_name(self) -> str:
        """The caller, as other services are told, which divide what they keep by it."""
        return self.caller.name[:CALLER_CHARACTERS_MAX]

    def text(self, name: str, default: str | None = None) -> str:
        """A field; RefusedError when it is absent and there is no default."""
        value = self.command.fields.get(name)
        if value is None:
            value = default
        if value is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """A field that is a number of 32 bits, or of 64 where it is one of LONG_FIELDS; likewise."""
        value = self.command.fields.get(name)
        if value is None and default is not None:
            return default
        text = self.text(name)
        try:
            number = int(text) if len(text) <= NUMBER_CHARACTERS_MAX else 1 << 63
        except ValueError:
            number = 1 << 63
        limit = 1 << (63 if name in LONG_FIELDS else 31)
        if not -limit <= number < limit:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is no number: {text[:64]!r}")
        return number

    def time_millis(self, name: str) -> int:
        """A field that is a time in milliseconds since 1970, cut to what our contracts can say; likewise."""
        return min(max(self.number(name), 0), TIME_MILLIS_MAX)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A field that is true or false."""
        value = self.command.fields.get(name)
        return default if value is None else value.lower() == "true"

    def answer(
        self, fields: Mapping[str, str] | None = None, body: bytes = b"", code: int = OK, remark: str = ""
    ) -> None:
        """Answer it; nothing is sent to a client that wants no answer, or has gone."""
        self.connection.answer(*self.answered(fields, body, code, remark))

    def answered(
        self, fields: Mapping[str, str] | None = None, body: bytes = b"", code: int = OK, remark: str = ""
    ) -> tuple[Command, Command]:
        """The request and its answer, for a write of several; the request counts as answered, also in the audit log."""
        self.rights.answered(code)
        return self.command, self.command.answer(code, remark, fields, body)

    def refuse(self, error: StoreError | RefusedError) -> None:
        """Answer it with a failure."""
        if isinstance(error, RefusedError):
            code, remark = error.code, error.remark
        else:
            code, remark = code_of(error), error.message
            self.rights.refused(error)
        self.answer(self.lasting_fields, code=code, remark=clip(remark, MESSAGE_BYTES_MAX))

    def work(self, work: Callable[[], Answer | None]) -> None:
        """Have a thread of the door run something that blocks, and answer with what it returns; None: it answers itself."""
        self._door.work(self, work)

    def beside(self, work: Callable[[], object]) -> None:
        """Have a thread of the door run something that blocks, beside the answer; what it raises is logged."""
        self._door.beside(self, work)


Handler: TypeAlias = Callable[[Ask], object]


def in_thread(answer: Callable[[Ask], Answer | None]) -> Handler:
    """The handler that runs a function in a thread of the door, and answers with what it returns; None: it answers itself."""
    return lambda ask: ask.work(lambda: answer(ask))


class Door:
    """Takes the commands of one shard's clients; a Handler of RemotingServer.

    Args:
        handlers: by request code.
        clients: what is known of the connections.
        threads: run what blocks.
        sign_in: finds the rights of each request; None: every client may do everything.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        clients: DoorClients,
        threads: FairThreads | None = None,
        sign_in: SignIn | None = None,
    ) -> None:
        self._sign_in = sign_in
        self._handlers = dict(handlers)
        self.clients = clients
        self._threads = threads or FairThreads("remoting-work")

    @property
    def signs_in(self) -> bool:
        """Whether each request is looked at for its signer."""
        return self._sign_in is not None

    def ask_of(self, connection: Connection, frame: bytes) -> Ask:
        """The request of a frame, where clients do not sign in."""
        return Ask(self, connection, decode(frame), _client_at(connection.peer))

    def on_command(self, connection: Connection, command: Command) -> None:
        """See Handler of RemotingServer."""
        ask = Ask(self, connection, command, _client_at(connection.peer))
        handler = self._handlers.get(command.code)
        try:
            if self._sign_in is not None:
                ask.rights = self._sign_in.rights_of(ask)
                ask.rights.sign_in()
            _check_names(command.fields)
            if handler is None:
                what = NOT_SERVED.get(command.code) or name_of(command.code)
                raise RefusedError(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f" request type {command.code} not supported" + (f": {what}" if what else ""),
                )
            ask.rights.check()
            with ask.rights.working():
                handler(ask)
        except (RefusedError, StoreError) as error:
            ask.refuse(error)
        except Exception as error:  # a bug; the connection goes on, as with RocketMQ
            _log.exception("request.failed", code=command.code)
            ask.answer(code=ResponseCode.SYSTEM_ERROR, remark=f"the request failed: {error!r}")

    def on_close(self, connection: Connection) -> None:
        """See Handler of RemotingServer."""
        self.clients.end(connection)

    def work(self, ask: Ask, work: Callable[[], Answer | None]) -> None:
        """See Ask."""
        code = ask.command.code
        is_administration = code in ADMINISTRATION_CODES and code not in USUAL_CODES
        if not self._threads.add(ask.caller, lambda: self._run(ask, work), is_administration=is_administration):
            ask.answer(
                code=ResponseCode.SYSTEM_BUSY,
                remark=f"[REJECTREQUEST]this client has its share of the {self._threads.work_count_max} requests that may "
                "wait, or this server stops: ask again later",
            )

    def beside(self, ask: Ask, work: Callable[[], object]) -> None:
        """See Ask; without room it is left out."""

        def run() -> None:
            try:
                with WorkingFor(ask.caller), ask.rights.working():
                    work()
            except StoreError as error:
                _log.info("request.beside_failed", code=ask.command.code, error=error.message)
            except Exception:  # a bug
                _log.exception("request.failed", code=ask.command.code)

        self._threads.add(ask.caller, run)

    def _run(self, ask: Ask, work: Callable[[], Answer | None]) -> None:
        if ask.connection.is_closed and ask.command.code in ASKING_CODES:
            return
        try:
            with WorkingFor(ask.caller), ask.rights.working():
                answer = work()
            if answer is not None:
                ask.answer(*answer)
        except (RefusedError, StoreError) as error:
            ask.refuse(error)
        except Exception as error:  # a bug
            _log.exception("request.failed", code=ask.command.code)
            ask.answer(code=ResponseCode.SYSTEM_ERROR, remark=f"the request failed: {error!r}")

    def close(self) -> None:
        """Begin nothing more that blocks."""
        self._threads.close()


def peer_of(connection: Connection) -> str:
    """The client's address as gRPC writes it."""
    return _peer_text(connection.peer)


def _peer_text(peer: Address) -> str:
    host, port = peer
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


@lru_cache(maxsize=4_096)
def _client_at(peer: Address) -> Client:
    return client_of_peer(_peer_text(peer))


def name_of(code: int) -> str:
    """The name of a request code; empty when it has none here."""
    try:
        return RequestCode(code).name
    except ValueError:
        return ""
