"""NameServers: keeps the shard registered at name servers of RocketMQ, ours or theirs (docs/adr/0127, 0134).

One thread for each name server, because they do not know one another, and one that does not answer must not hold up another:

    not leading ──▶ connected, all topics sent ──▶ every 30 s all topics (*); a topic that changed at once
         ▲                     │ it refused, broke off, or did not answer in time
         └──── waits ◀─────────┘ 0.1 s, then twice as long each time, up to 30 s

(*) of many topics their version, which the name server compares with its own, and all topics now and then. What changes many
topics at once is told at once, and again when a pause is over that is in proportion to the time that it took.

A door registers once DNS knows its name and it listens, looked at each 0.5 s: consumers would get queues that they cannot pull
from.

Only the replica that leads registers, as id 0 and with the store host, which is the address of the gateway's remoting door. The
connection stays open: a name server takes a broker out when it ends, so a killed process is out of routes at once. A clean end
unregisters. A replica that lost the lead only closes the connection: the next leader has the same address.

A name server that restarts has no routes. Its end is seen as the end of the connection, and all topics are sent again.
"""

import contextlib
import itertools
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import structlog

from services.rocketmq.address import NameServer, parse_nameserver
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import OK, Command, FrameError, FrameReader, encode
from services.rocketmq.registration import encode_registration, encode_version_question
from services.rocketmq.remoting import connect
from services.settings.certificates import client_context
from store.errors import InvalidArgumentError
from store.format.topic import DataVersion, TopicConfig

if TYPE_CHECKING:
    import ssl

NAMESERVER_COUNT_MAX = 16
REGISTER_SECONDS = 30.0  # RocketMQ's registerNameServerPeriod
CONNECT_SECONDS_MAX = 3.0
# RocketMQ's registerBrokerTimeoutMills is 24 s; a hundred thousand topics take a second.
ANSWER_SECONDS_MAX = 24.0
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.1, 30.0
AGAIN_SECONDS = 1.0  # after the end of a connection: a name server that starts again is not there at once
# A failure is logged once it has lasted so many tries: a name server that starts beside this process is not ready yet.
TOLD_TRY_COUNT = 5
# How often a replica that does not lead looks whether it does, and one that clients could not find whether they could.
LEAD_SECONDS = 0.5
CLOSE_SECONDS_MAX = (
    2.0  # a name server that does not take the end of the registration by then sees the end of the connection
)
# A command for a topic waits so long for name servers to take it; RocketMQ waits 3 s. Each command waits for one that hangs,
# until ANSWER_SECONDS_MAX ends its connection.
TAKEN_SECONDS_MAX = 1.0
# More topics than these that changed together are sent with all the others.
SINGLE_TOPIC_COUNT_MAX = 16
# Behind that, so many times as long as it took no others are sent with all: a program that makes topics one after the other
# would have all of them sent for each.
ALL_PAUSE_FACTOR, ALL_PAUSE_SECONDS_MAX = 9.0, 5.0
# Of more topics, only each so many times all are sent without a change: for what a name server has lost.
TOPIC_COUNT_FEW, REFRESH_COUNT = 1_000, 20
ANSWER_BYTES_MAX = 1 << 20  # the key-value table of ORDER_TOPIC_CONFIG
READ_BYTES = 64 << 10
# Of one look at the connection: a name server that sends without a pause keeps its thread no longer. It is looked at again.
READ_COUNT_MAX = 16
MASTER_ID = "0"
UNKNOWN = "DNS does not know {}, or no door listens there: clients would dial it"

_log = structlog.get_logger("reput.commitlog")


def parse_nameservers(text: str) -> tuple[NameServer, ...]:
    """The name servers in `HOST:PORT;tls://HOST:PORT`, as RocketMQ's namesrvAddr has them but for the scheme.

    Raises:
        InvalidArgumentError: another text, or more than NAMESERVER_COUNT_MAX.
    """
    addresses = tuple(dict.fromkeys(parse_nameserver(part.strip()) for part in text.split(";") if part.strip()))
    if len(addresses) > NAMESERVER_COUNT_MAX:
        raise InvalidArgumentError(
            f"{len(addresses)} name servers are given, at most {NAMESERVER_COUNT_MAX} are used", field="nameservers"
        )
    return addresses


class Topics(NamedTuple):
    """The topics of the shard at one moment, and their version."""

    version: DataVersion
    by_name: Mapping[str, TopicConfig]


class RefusedError(Exception):
    """A name server has answered that it does not take the registration."""


class UnknownAddressError(Exception):
    """Clients would not find the address that they are told."""


class NameServers:
    """Registers the shard until it is closed.

    Args:
        addresses: the name servers.
        fields: what the shard says of itself: clusterName, brokerName, brokerAddr, haServerAddr.
        topics: tells the topics.
        leads: tells whether this replica leads.
        clock: seconds, rising.
        is_known: tells whether clients could find the address that they are told; it may wait.
        tls_context: gives the context of each new TLS connection; OSError when its files cannot be read.
    """

    def __init__(
        self,
        addresses: tuple[NameServer, ...],
        fields: Mapping[str, str],
        topics: Callable[[], Topics],
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        is_known: Callable[[], bool] = lambda: True,
        tls_context: Callable[[], "ssl.SSLContext"] = client_context,
    ) -> None:
        fields = {**fields, "brokerId": MASTER_ID}
        self._each = [
            _Registration(address, fields, topics, leads, clock, is_known, tls_context) for address in addresses
        ]

    def start(self) -> None:
        """Begin to register."""
        for each in self._each:
            each.thread.start()

    def topics_changed(self) -> None:
        """Tell the name servers of a change of topics soon; returns at once."""
        for each in self._each:
            each.wake()

    def wait_until_taken(self, seconds: float = TAKEN_SECONDS_MAX) -> bool:
        """Tell the name servers of the topics as they are now, and wait until those at which the shard is registered have them.

        A client that asks for the route of a topic after the answer to a command finds it, as with RocketMQ
        (`registerSingleTopicAll`).

        Returns:
            False: some have not taken them within `seconds`; they are told nevertheless.
        """
        asked = [(each, each.tell()) for each in self._each]
        deadline = time.monotonic() + seconds
        return all(each.wait_until_told(number, deadline - time.monotonic()) for each, number in asked)

    def registered(self) -> dict[str, bool]:
        """By address of a name server, whether the shard is registered there."""
        return {str(each.address): each.is_registered for each in self._each}

    def close(self) -> None:
        """Take the shard out of the name servers; returns after CLOSE_SECONDS_MAX, or earlier."""
        for each in self._each:
            each.end()
        deadline = time.monotonic() + CLOSE_SECONDS_MAX
        for each in self._each:
            if each.thread.is_alive():
                each.thread.join(max(0.0, deadline - time.monotonic()))


class _Registration:
    """The registration at one name server; its thread is the only one that uses the connection."""

    def __init__(
        self,
        address: NameServer,
        fields: Mapping[str, str],
        topics: Callable[[], Topics],
        leads: Callable[[], bool],
        clock: Callable[[], float],
        is_known: Callable[[], bool],
        tls_context: Callable[[], "ssl.SSLContext"],
    ) -> None:
        self.address = address
        self.is_registered = False
        self.thread = threading.Thread(target=self._run, name=f"nameserver-{address}", daemon=True)
        self._fields = fields
        self._topics = topics
        self._leads = leads
        self._clock = clock
        self._is_known = is_known
        self._tls_context = tls_context
        self._opaques = itertools.count(1)
        self._is_ending = False
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._connection: socket.socket | None = None
        self._nothing_yet: tuple[type[OSError], ...] = (BlockingIOError,)  # what the connection says without data
        self._reader = FrameReader(ANSWER_BYTES_MAX)
        self._told: Mapping[str, TopicConfig] = {}  # what the name server knows, over this connection
        self._told_version: DataVersion | None = None  # of these; None: not all of them were sent
        self._refresh_count = 0  # since all were sent
        self._next_all = clock()  # when changes may be sent with all the others
        self._problem = ""
        self._failure_count = 0  # since the last success
        self._turns = threading.Condition()
        self._asked_number = self._told_number = 0  # of the last `tell`, and of the last one that was done

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # it is full of such bytes, or closed
            self._waker.send(b"\0")

    def tell(self) -> int:
        """Tell the topics soon; the number for `wait_until_told`."""
        with self._turns:
            self._asked_number += 1
            number = self._asked_number
        self.wake()
        return number

    def wait_until_told(self, number: int, seconds: float) -> bool:
        """Whether the name server has taken what was to be told, or the shard is not registered there."""
        with self._turns:
            return self._turns.wait_for(
                lambda: self._told_number >= number or not self.is_registered, max(0.0, seconds)
            )

    def end(self) -> None:
        self._is_ending = True
        self.wake()

    def _run(self) -> None:
        retry_seconds = RETRY_SECONDS_MIN
        next_whole = self._clock()
        while not self._is_ending:
            if not self._leads():
                self._disconnect()
                self._wait(LEAD_SECONDS)
                continue
            try:
                if self._connection is None:
                    # Once registered, a shard stays so while DNS is away: clients have its address by then.
                    if not self._is_known():
                        # Not the fault of a name server: the wait for one that failed would go on when the door is open.
                        self._failed(UnknownAddressError(UNKNOWN.format(self._fields["brokerAddr"])))
                        self._wait(LEAD_SECONDS)
                        continue
                    self._connect()
                    next_whole = self._clock()
                number = self._asked_number  # before the topics
                topics = self._topics()
                is_told = True
                if self._clock() >= next_whole:
                    self._refresh(topics)
                    next_whole = self._clock() + REGISTER_SECONDS
                else:
                    is_told = self._tell_changes(topics)
            except Exception as error:  # whatever a name server or a disk does: the next try may find it in order
                self._failed(error)
                self._wait_to_retry(retry_seconds)
                retry_seconds = min(2 * retry_seconds, RETRY_SECONDS_MAX)
                continue
            self._succeeded(len(topics.by_name), number if is_told else self._told_number)
            retry_seconds = RETRY_SECONDS_MIN
            next_at = next_whole if is_told else min(next_whole, self._next_all)
            if not self._wait(max(0.0, next_at - self._clock())):
                self._failed(ConnectionError("the connection ended"))
                self._wait_to_retry(AGAIN_SECONDS)
        self._leave()

    # --- what is said

    def _refresh(self, topics: Topics) -> None:
        """Stay registered, with all topics."""
        self._refresh_count += 1
        is_known = self._told_version == topics.version and self._refresh_count < REFRESH_COUNT
        if len(topics.by_name) > TOPIC_COUNT_FEW and is_known:
            fields, body = encode_version_question(self._fields, topics.version)
            answer = self._ask(Command(RequestCode.QUERY_DATA_VERSION, fields, body), ANSWER_SECONDS_MAX)
            if answer.code == OK and answer.fields.get("changed") == "false":
                return
        self._tell_all(topics)

    def _tell_all(self, topics: Topics) -> None:
        begin = self._clock()
        self._register(topics.version, topics.by_name)
        now = self._clock()
        self._next_all = now + min(ALL_PAUSE_FACTOR * (now - begin), ALL_PAUSE_SECONDS_MAX)
        self._told, self._told_version, self._refresh_count = topics.by_name, topics.version, 0

    def _tell_changes(self, topics: Topics) -> bool:
        """Tell what has changed; False, and nothing is told, when it is too much so soon."""
        told = self._told
        changed = {
            name: row for name, row in topics.by_name.items() if told.get(name) is not row and told.get(name) != row
        }
        if len(changed) > SINGLE_TOPIC_COUNT_MAX:
            if self._clock() < self._next_all:
                return False
            self._tell_all(topics)
            return True
        # One by one: RocketMQ may be set to take a table of several topics for all of them.
        for name, row in changed.items():
            self._register(topics.version, {name: row})
        self._told = topics.by_name
        if changed:
            has_all = len(topics.by_name) == len(told) + sum(name not in told for name in changed)  # none was deleted
            self._told_version = topics.version if has_all else None
        return True

    def _register(self, version: DataVersion, topics: Mapping[str, TopicConfig]) -> None:
        fields, body = encode_registration(self._fields, version, topics.values())
        answer = self._ask(Command(RequestCode.REGISTER_BROKER, fields, body), ANSWER_SECONDS_MAX)
        if answer.code != OK:
            raise RefusedError(f"it refused: {answer.remark or answer.code}")

    def _leave(self) -> None:
        """Unregister, if this replica leads: another leader has the same address."""
        try:
            if self.is_registered and self._leads():
                fields = {name: value for name, value in self._fields.items() if name != "haServerAddr"}
                self._ask(Command(RequestCode.UNREGISTER_BROKER, fields), CLOSE_SECONDS_MAX)
        except (OSError, FrameError):
            pass  # it sees the end of the connection
        finally:
            self._disconnect()
            self._woken.close()
            self._waker.close()

    # --- the connection

    def _connect(self) -> None:
        connection = connect(self.address, CONNECT_SECONDS_MAX, self._tls_context)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.address.is_tls:
            from ssl import SSLWantReadError  # loaded only where it is used

            self._nothing_yet = (BlockingIOError, SSLWantReadError)
        self._connection = connection
        self._reader = FrameReader(ANSWER_BYTES_MAX)
        self._told, self._told_version = {}, None
        self._next_all = self._clock()

    def _disconnect(self) -> None:
        with self._turns:
            self.is_registered = False
            self._turns.notify_all()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, command: Command, seconds: float) -> Command:
        """The answer to a request.

        Raises:
            OSError: the connection ended, or there was no answer in time.
            FrameError: what came is none.
        """
        connection = self._connection
        if connection is None:
            raise ConnectionError("there is no connection")
        command.opaque = next(self._opaques)
        deadline = self._clock() + seconds
        connection.settimeout(seconds)
        connection.sendall(encode(command))
        while True:
            found = self._reader.next()
            if found is None:
                left = deadline - self._clock()
                if left <= 0:
                    raise TimeoutError(f"it did not answer within {seconds:.0f} s")
                connection.settimeout(left)
                self._receive(connection)
            elif found.is_answer and found.opaque == command.opaque:
                return found

    def _receive(self, connection: socket.socket) -> None:
        data = connection.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the connection ended")
        self._reader.add(data)

    def _receive_all(self, connection: socket.socket) -> None:
        """Take what is there, also what TLS has read already; what came may be none of it (a session ticket)."""
        connection.settimeout(0)
        with contextlib.suppress(*self._nothing_yet):
            for _ in range(READ_COUNT_MAX):
                self._receive(connection)
                while self._reader.next() is not None:
                    pass  # what a name server tells brokers of acting masters does not concern a shard

    def _wait(self, seconds: float) -> bool:
        """Until something changes, the time is over, or the connection ends; False for the last."""
        connection = self._connection
        deadline = self._clock() + seconds
        while not self._is_ending:
            poll = select.poll()
            for end in (self._woken, connection):
                if end is not None:
                    poll.register(end, select.POLLIN)
            left = deadline - self._clock()
            ready = {fd for fd, _ in poll.poll(max(0.0, left) * 1000)}
            if connection is not None and connection.fileno() in ready:
                try:
                    self._receive_all(connection)
                except (OSError, FrameError):
                    return False
            if self._woken.fileno() in ready:
                self._woken.recv(4_096)
                return True
            if left <= 0:
                return True
        return True

    def _wait_to_retry(self, seconds: float) -> None:
        # Shards that lost a name server at the same time come back one after the other.
        deadline = self._clock() + seconds * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
        while not self._is_ending and (left := deadline - self._clock()) > 0:
            self._wait(left)

    # --- what is logged: each change once

    def _succeeded(self, topic_count: int, number: int) -> None:
        is_new = not self.is_registered
        with self._turns:
            self.is_registered = True
            self._told_number = number
            self._turns.notify_all()
        if is_new:
            _log.info("nameserver.registered", address=str(self.address), topics=topic_count)
        self._problem = ""
        self._failure_count = 0

    def _failed(self, error: Exception) -> None:
        self._disconnect()
        self._failure_count += 1
        words = str(error) or repr(error)
        if words != self._problem and self._failure_count >= TOLD_TRY_COUNT:
            self._problem = words
            _log.warning("nameserver.failed", address=str(self.address), error=words)
