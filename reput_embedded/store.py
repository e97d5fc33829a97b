"""`open` and `EmbeddedStore`, with the two errors that only an embedded store has; `reput_client.errors` has all others."""

import os
import pathlib
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from deploy.background import RUNNING, BackgroundStack
from deploy.hosts import ChildDiedError
from deploy.local import DRAIN_SECONDS_MAX
from deploy.modules import MODULES, load_service
from reput_client.channel import open_channel
from reput_client.commands import with_delay
from reput_client.consuming.consumer import Consumer
from reput_client.consuming.settings import ConsumerSettings
from reput_client.consuming.subscription import Subscriptions
from reput_client.encoding import FlushMode, with_place
from reput_client.errors import (
    FailedPreconditionError,
    InternalError,
    ReputClientError,
    UnavailableError,
    error_of_status,
)
from reput_client.producing.append_client import AnyNewMessage, AppendClient
from reput_client.producing.messages import NewMessage
from reput_client.producing.producer import Producer
from reput_client.querying.query_client import QueryClient
from reput_client.receipt import SendReceipt
from services.settings.setting_sources import config_rows
from services.status import to_status
from store.errors import InvalidSettingError, StoreError


class StoreClosedError(FailedPreconditionError):
    """The store was closed, or its services have ended."""


class ForkedStoreError(FailedPreconditionError):
    """The store was opened by a process of which this one is a fork."""


def client_error(error: Exception, where: object) -> ReputClientError:
    """The error of `reput_client` for a store that could not be opened, or has ended."""
    cause = error.error if isinstance(error, ChildDiedError) else error
    if isinstance(cause, StoreError):
        return error_of_status(to_status(cause))
    if isinstance(error, ChildDiedError):
        return UnavailableError(f"the store {where} could not be served: {error}")
    return InternalError(f"the store {where} could not be opened: {error!r}")


for _name in MODULES:  # so that `open` takes a tenth of a second
    load_service(_name)

# Settings that differ from a server's defaults: a program expects them of a store of its own.
SETTINGS = {
    # Log files are allocated whole, and the next one is made ahead.
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(16 << 20),
    # A store belongs to its program: nothing is removed behind its back.
    "REPUT_COMMITLOG_FILE_RESERVED_SECONDS": str(100 * 366 * 86_400),
    "REPUT_COMMITLOG_CLEAN_FILE_FORCIBLY_ENABLED": "false",
    # A store that another process has open is refused at once.
    "REPUT_COMMITLOG_LOCK_WAIT_SECONDS": "0",
    # A query sees what was appended before it, also on a machine that is busy.
    "REPUT_GATEWAY_BUILDER_WAIT_MILLIS": "10000",
    "REPUT_GATEWAY_CONSOLE": "off",
}
# For consumers and producers that are still open when the store is closed.
CLIENT_CLOSE_SECONDS_MAX = 5.0

# Sign-in and TLS are for callers from elsewhere: the calls of the program itself show no token and no certificate.
REFUSED_SETTINGS = (
    "REPUT_TLS_CERTIFICATE",
    "REPUT_TLS_KEY",
    "REPUT_TLS_CA",
    "REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE",
    "REPUT_GATEWAY_PUBLIC_TLS_KEY",
    "REPUT_GATEWAY_CLIENT_CA",
    "REPUT_GATEWAY_AUTH",
)


class _ThisProcess:
    """Whether it has, or had, a store: gRPC has threads and locks then, which a child of a fork cannot use."""

    has_opened = False
    is_forked = False

    @classmethod
    def note_fork(cls) -> None:
        cls.is_forked = cls.has_opened


os.register_at_fork(after_in_child=_ThisProcess.note_fork)


def open(
    directory: str | os.PathLike[str],
    read_only: bool = False,
    *,
    settings: Mapping[str, object] | None = None,
) -> "EmbeddedStore":
    """Open a store, made when there is none.

    Args:
        directory: the store root, laid out like RocketMQ's storePathRootDir.
        read_only: write nothing under it and take no lock: a broker's store, or a copy of one, as it is now. Appends and
            consumers are refused.
        settings: settings of the services by the names of their environment variables (`reput config` lists them), such as
            `{"REPUT_COMMITLOG_FLUSH_MODE": "sync"}`. The environment of the program has no effect.

    Raises:
        StoreLockedError: another process, or this one, has the store open.
        UnsupportedStoreError: the directory holds something else, or nothing and `read_only` is set.
        InvalidSettingError: a setting is unknown or unusable, or asks for sign-in or TLS (`REFUSED_SETTINGS`).
        StoreCorruptedError: the log is damaged.
        ForkedStoreError: this process is a fork of one that has, or had, a store open.
        ReputClientError: the store could not be opened for another reason.
    """
    return EmbeddedStore(directory, read_only, settings=settings)


class EmbeddedStore(QueryClient):
    """A store that this process serves to itself; for any number of threads. Arguments as `open`.

    It is a `QueryClient`: `by_key`, `by_id`, `by_unique_key`, `by_offset`, `search`, `find`, `topics` and all others.

    Attributes:
        directory: the store root.
        target: the address of its gateway, a unix socket. Other classes of `reput_client` take it: `AdminClient(store.target)`,
            `AsyncQueryClient(store.target)`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        read_only: bool = False,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._stack: BackgroundStack | None = None  # for __del__, should the next lines fail
        if _ThisProcess.is_forked:
            raise ForkedStoreError(
                f"process {os.getpid()} is a fork of one that has, or had, a store open, and cannot open {directory!s}: "
                "start it before the first store is opened, or by spawn: multiprocessing.get_context('spawn')"
            )
        _ThisProcess.has_opened = True
        self.directory = pathlib.Path(directory).absolute()
        self.read_only = read_only
        self._clients = _OpenClients()
        environ = SETTINGS | {name: _text_of(value) for name, value in (settings or {}).items()}
        _wait_for_stopping(self.directory)
        before_stop = self._clients.close  # without this object, which may be forgotten
        try:
            _refuse_what_locks_the_program_out(environ)
            stack = self._stack = BackgroundStack(
                self.directory, environ, before_stop=before_stop, read_only=read_only, is_private=True
            )
        except (StoreError, ChildDiedError, OSError) as error:
            raise client_error(error, self.directory) from error
        except BaseException:  # Ctrl-C, maybe between the start of the stack and its assignment
            for running in list(RUNNING):
                if running.before_stop == before_stop:
                    running.begin_stop()
            raise
        target = stack.addresses["gateway"]
        direct: Any = stack.server("gateway").direct_channel(partial(open_channel, target))
        super().__init__(target, channel=direct)
        self._appends = AppendClient(self.target, channel=self._channel)

    def append(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        keys: Iterable[str] = (),
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        unique_key: str | None = None,
        born_time: datetime | None = None,
        flag: int = 0,
        delivery_time: datetime | None = None,
        delay: timedelta | None = None,
        delay_level: int = 0,
        priority: int | None = None,
        lite_topic: str | None = None,
    ) -> SendReceipt:
        """Append a message; it is stored when this returns. Arguments as those of `Producer.send`.

        Raises:
            InvalidMessageError: the message cannot be stored as it is.
            StoreReadOnlyError: the store was opened with `read_only`.
            DiskFullError: the disk has no room.
            ReputClientError: it was not stored for another reason.
        """
        properties = with_place(with_delay(properties, delay), priority, lite_topic)
        message = NewMessage(
            topic, body, keys, tags, properties, queue_id, unique_key, born_time, flag, delivery_time, delay_level
        )
        return self.append_all((message,), deduplicate=unique_key is not None)[0]

    def append_all(
        self,
        messages: Iterable[AnyNewMessage],
        *,
        flush_mode: FlushMode = FlushMode.SERVER_DEFAULT,
        deduplicate: bool = False,
    ) -> tuple[SendReceipt, ...]:
        """Append 1 to 1,024 messages with at most 4 MiB of bodies, all or none; see `AppendClient.append`."""
        self._check()
        return self._appends.append(messages, flush_mode=flush_mode, deduplicate=deduplicate)

    def consume(
        self,
        subscriptions: str | Subscriptions,
        group: str,
        *,
        settings: ConsumerSettings | None = None,
    ) -> Consumer:
        """A consumer of a group, which gets each message until it acknowledges it; the store closes it at its end.

        Args:
            subscriptions: a topic, or topics with the tags that are wanted: `{"Orders": "paid || sent"}`.
            group: the consumer group; made when it is new.
            settings: limits and times.
        """
        self._check()
        wanted = {subscriptions: "*"} if isinstance(subscriptions, str) else subscriptions
        consumer = Consumer(self.target, group, wanted, settings=settings)
        self._keep(consumer)
        return consumer

    def producer(self, **settings: Any) -> Producer:
        """A producer for many messages: batches, futures. The store closes it at its end.

        Args:
            settings: fields of `ProducerSettings`.
        """
        self._check()
        producer = Producer(self.target, **settings)
        self._keep(producer)
        return producer

    def call(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """See `QueryClient.call`."""
        self._check()
        return super().call(method, request, is_repeatable=is_repeatable)

    def stream(self, method: str, request: Any, timeout_seconds: float | None = None) -> Any:
        """See `QueryClient.stream`."""
        self._check()
        return super().stream(method, request, timeout_seconds)

    def download(self, request: Any) -> bytes:
        """See `QueryClient.download`."""
        self._check()
        return super().download(request)

    def close(self) -> None:
        """Close its consumers and producers, then the store; without effect when it is closed, and in a fork."""
        if self._stack is None or not self._stack.is_of_this_process:
            return
        self._stack.stop()
        self._channel.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or has ended by itself."""
        return self._stack is None or self._stack.is_stopping or self._stack.exit_code is not None

    def _keep(self, client: "Consumer | Producer") -> None:
        """Keep this store for as long as one of its clients lives, and close the client with it."""
        if not self._clients.add(client):
            client.close(CLIENT_CLOSE_SECONDS_MAX)
            raise StoreClosedError(f"the store {self.directory} is closed: open it again")
        _STORES[client] = self

    def _check(self) -> None:
        """Refuse a call that cannot be answered."""
        stack = self._stack
        assert stack is not None, "set by the constructor"
        if not stack.is_of_this_process:
            raise ForkedStoreError(
                f"the store {self.directory} belongs to process {stack.pid}, and process {os.getpid()} is a fork of it: "
                "open the store in one process only, and start others before it, or by spawn"
            )
        if stack.is_stopping:
            raise StoreClosedError(f"the store {self.directory} is closed: open it again")
        if stack.exit_code is not None:
            why = stack.said[-1] if stack.said else f"exit code {stack.exit_code}"
            raise StoreClosedError(f"the store {self.directory} has ended: {why}; close it and open it again")

    def __enter__(self) -> "EmbeddedStore":
        return self

    def __del__(self) -> None:
        if self._stack is None or self.is_closed or not self._stack.is_of_this_process:
            return
        self._stack.begin_stop()  # first, because the warning may be an error; a finalizer must not wait
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"reput_embedded.open({str(self.directory)!r})"


class _OpenClients:
    """The consumers and producers of a store, for any number of threads; it keeps none of them, and not their store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: weakref.WeakSet[Consumer | Producer] = weakref.WeakSet()
        self._is_closing = False

    def add(self, client: "Consumer | Producer") -> bool:
        """Close this one, too, with the store; False when the store is being closed."""
        with self._lock:
            if not self._is_closing:
                self._clients.add(client)
            return not self._is_closing

    def close(self) -> None:
        """Close all; there will be no others."""
        with self._lock:
            self._is_closing = True
            clients = list(self._clients)
        for client in clients:
            client.close(CLIENT_CLOSE_SECONDS_MAX)


# The store of each client, so that a store lives as long as its clients: the services end with it.
_STORES: "weakref.WeakKeyDictionary[Consumer | Producer, EmbeddedStore]" = weakref.WeakKeyDictionary()


def _refuse_what_locks_the_program_out(environ: Mapping[str, str]) -> None:
    for row in config_rows(environ=environ)[0]:  # also those of a settings file
        name = row.setting.environment_name
        if name in REFUSED_SETTINGS and row.value not in ("", row.setting.default):
            raise InvalidSettingError(
                f"{name} has no use in an embedded store: its program shows no token and no certificate: leave it out; "
                "for callers from elsewhere, serve the store with `reput serve`",
                name=name,
                source=row.origin,
            )


def _text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wait_for_stopping(directory: pathlib.Path) -> None:
    """Wait for a stack on the same directory that was told to stop and still does."""
    for stack in list(RUNNING):
        if stack.store == directory and stack.is_stopping:
            stack.wait(DRAIN_SECONDS_MAX)
