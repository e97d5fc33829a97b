"""HaMaster: this log as the master of brokers of RocketMQ that run with `brokerRole=SLAVE`.

It does what DefaultHAConnection of RocketMQ 5.3.3 does, with these differences:
- Nothing behind the confirm offset is sent: a slave never has what this log may lose.
- A slave that has nothing (it reports 0) gets the log from its first byte on, not from the last file on.
- A slave that has more than this log, or needs what retention removed, is refused and named in the log of this process. A
  broker would send it heartbeats until its own log has grown, and then the middle of a record.
- It tells slaves where their master is. In RocketMQ 5.3.3 `haMasterAddress` in a slave's configuration has no effect: it is set
  before the object exists that is to keep it. Slaves of a broker hear of it from a name server.

A body ends where a log file ends: a slave writes each body into one file.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Mapping, Sequence

import structlog

from commitlog_svc.commit_log import CommitLog
from services.rocketmq.address import Address
from services.rocketmq.ha_frames import HEARTBEAT_SECONDS, SILENCE_SECONDS_MAX, TRANSFER_HEADER, ReportDecoder
from services.rocketmq.remoting import Broker
from store.errors import StoreError

BODY_BYTES_MAX = 128 << 10  # a slave takes less than 4 MiB at once
SLAVE_COUNT_MAX = 16
WAIT_SECONDS = 0.2  # a connection notices a report and the end of this process within this time
REPORTS_BYTES = 4096
TELL_SECONDS = 5.0

_log = structlog.get_logger("reput.commitlog")


class RefusedSlaveError(Exception):
    """A slave cannot be served; the text says why."""


class HaMaster:
    """Listens for slaves and sends each the log.

    Args:
        log: the recovered log.
        address: where to listen; port 0 takes a free one.
        slaves: the slaves' own ports: they are told of this master until as many slaves are connected.
        tell_seconds: between two times.

    Attributes:
        address: where it listens.
    """

    def __init__(
        self, log: CommitLog, address: Address, slaves: Sequence[Address] = (), *, tell_seconds: float = TELL_SECONDS
    ) -> None:
        self._log = log
        self._told = [Broker(slave) for slave in slaves]
        self._tell_seconds = tell_seconds
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._listener = socket.create_server(address, family=family)
        self._listener.settimeout(WAIT_SECONDS)
        host, port = self._listener.getsockname()[:2]
        self.address = Address(host, port)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._slaves: dict[str, _Slave] = {}
        self._thread = threading.Thread(target=self._accept, name="rocketmq-ha", daemon=True)
        self._teller = threading.Thread(target=self._tell, name="rocketmq-ha-tell", daemon=True)

    def start(self) -> None:
        """Begins to accept slaves."""
        self._thread.start()
        self._teller.start()

    def close(self) -> None:
        """Ends every connection."""
        self._closing.set()
        self._thread.join()
        self._teller.join()
        self._listener.close()
        with self._lock:
            threads = [slave.thread for slave in self._slaves.values()]
        for thread in threads:
            thread.join()

    def acknowledged_offsets(self) -> Mapping[str, int]:
        """Up to where each connected slave has the log (bytes), by its address."""
        with self._lock:
            return {name: slave.acknowledged_offset for name, slave in self._slaves.items()}

    def _tell(self) -> None:
        while self._told and not self._closing.is_set():
            for slave in self._told if len(self.acknowledged_offsets()) < len(self._told) else ():
                try:
                    slave.tell_master(self.address.port)
                except StoreError as error:
                    _log.info("rocketmq_slave.not_told", error=error.message)
            self._closing.wait(self._tell_seconds)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, peer = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as error:  # out of descriptors, for example
                _log.warning("rocketmq_slave.not_accepted", error=str(error))
                self._closing.wait(1.0)
                continue
            name = str(Address(*peer[:2]))
            with self._lock:
                if len(self._slaves) >= SLAVE_COUNT_MAX:
                    connection.close()
                    continue
                slave = self._slaves[name] = _Slave(self._log, connection, self._closing)
                slave.thread = threading.Thread(
                    target=self._serve, args=(name, slave), name="rocketmq-slave", daemon=True
                )
                slave.thread.start()

    def _serve(self, name: str, slave: "_Slave") -> None:
        try:
            slave.serve()
        except RefusedSlaveError as error:
            _log.warning("rocketmq_slave.refused", slave=name, why=str(error))
            self._closing.wait(1.0)  # it comes again at once, and for the same reason
        except OSError as error:
            _log.info("rocketmq_slave.left", slave=name, why=str(error))
        finally:
            slave.close()
            with self._lock:
                if self._slaves.get(name) is slave:  # else it has come back from the same port
                    del self._slaves[name]


class _Slave:
    """One connection.

    Attributes:
        acknowledged_offset: the last report (bytes); -1 before the first one.
        thread: serves it.
    """

    thread: threading.Thread

    def __init__(self, log: CommitLog, connection: socket.socket, closing: threading.Event) -> None:
        self._log = log
        self._connection = connection
        self._closing = closing
        self._decoder = ReportDecoder()
        self._heard_at = time.monotonic()
        self.acknowledged_offset = -1

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def serve(self) -> None:
        """Sends the log until the slave leaves, which is an OSError, or this process closes."""
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.settimeout(WAIT_SECONDS)
        while self.acknowledged_offset < 0:
            with contextlib.suppress(TimeoutError):
                self._take(self._connection.recv(REPORTS_BYTES))
            if self._is_over():
                return
        offset = self._begin()
        sent_at = time.monotonic()
        while not self._is_over():
            self._connection.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                self._take(self._connection.recv(REPORTS_BYTES))
            self._connection.settimeout(SILENCE_SECONDS_MAX)  # a slave that takes nothing for so long is left
            body = self._body(offset)
            if body or time.monotonic() - sent_at >= HEARTBEAT_SECONDS:
                self._connection.sendall(TRANSFER_HEADER.pack(offset, len(body)) + body)
                offset, sent_at = offset + len(body), time.monotonic()
            else:
                self._log.confirm.wait_beyond(offset, WAIT_SECONDS)

    def _begin(self) -> int:
        asked, first, end = self.acknowledged_offset, self._log.status.first_offset, self._log.confirm.confirm_offset
        if asked and asked < first:
            raise RefusedSlaveError(f"it has the log up to {asked}, and retention has removed what lies before {first}")
        if asked > end:
            raise RefusedSlaveError(
                f"it has the log up to {asked}, and this log ends at {end}: it followed another one"
            )
        return asked or first

    def _body(self, offset: int) -> bytes:
        end = min(self._log.confirm.confirm_offset, offset + BODY_BYTES_MAX)
        if offset >= end:
            return b""
        file_size = self._log.status.file_size_bytes
        body = self._log.read_bytes(offset, min(end, (offset // file_size + 1) * file_size) - offset)
        if not body:
            raise RefusedSlaveError(f"it was too slow: retention has removed the log at {offset}")
        return body

    def _take(self, data: bytes) -> None:
        if not data:
            raise ConnectionError("it closed the connection")
        self._heard_at = time.monotonic()
        offset = self._decoder.feed(data)
        if offset is not None:
            if offset < 0:
                raise RefusedSlaveError(f"it reports {offset}, which is no offset")
            self.acknowledged_offset = offset

    def _is_over(self) -> bool:
        if time.monotonic() - self._heard_at > SILENCE_SECONDS_MAX:
            raise ConnectionError(f"nothing was heard for {SILENCE_SECONDS_MAX:.0f} seconds")
        return self._closing.is_set()
