"""The two ids of a message.

offsetMsgId says where a message lies: host and commit-log offset in upper-case hexadecimal.

    IPv4:  4 B address | i32 port | i64 commit-log offset    32 digits
    IPv6: 16 B address | i32 port | i64 commit-log offset    56 digits

The unique key (property UNIQ_KEY) is made by the producer:

    4 or 16 B address | u16 pid | i32 class-loader hash | u32 ms since the month began | u16 counter    32 or 56 digits

The month begins in the producer's local time. The key does not say which month it is: a reader takes the latest one for
which the key is not in the future. Sources: `MessageDecoder`, `MessageClientIDSetter`, RocketMQ 5.3.3.
"""

import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from store.errors import InvalidMessageIdError
from store.format.host import Host, decode_host, encode_host
from store.format.record_layout import I64

_ID = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")
_UNIQUE_KEY_TAIL = struct.Struct(">HiIH")
_U32_MASK = 0xFFFFFFFF


def encode_offset_msg_id(host: Host, commit_log_offset: int) -> str:
    """The id of the record at `commit_log_offset` of the store with the address `host`."""
    return (encode_host(host) + I64.pack(commit_log_offset)).hex().upper()


def decode_offset_msg_id(text: str) -> tuple[Host, int]:
    """Store host and commit-log offset of an id; either case of letters.

    Raises:
        InvalidMessageIdError: not 32 or 56 hexadecimal digits, or the offset is negative.
    """
    if not _ID.fullmatch(text):
        raise InvalidMessageIdError(
            f"{text[:64]!r} is not an offsetMsgId: it needs 32 (IPv4) or 56 (IPv6) hexadecimal digits.",
            messageId=text[:64],
        )
    data = bytes.fromhex(text)
    offset: int = I64.unpack(data[-8:])[0]
    if offset < 0:
        raise InvalidMessageIdError(
            f"{text!r} is not an offsetMsgId: its commit-log offset {offset} is negative.",
            messageId=text,
            commitLogOffset=offset,
        )
    return decode_host(data[:-8]), offset


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The content of a unique key: the producer's address and process, the time (ms since 1970 UTC), the counter."""

    ip: str
    pid: int
    class_loader_hash: int
    time_millis: int
    counter: int


def decode_unique_key(text: str, *, now_millis: int | None = None, time_zone: tzinfo | None = None) -> UniqueKey | None:
    """The parts of a unique key made RocketMQ's way; None when it was made in another way.

    Args:
        text: the key; either case of letters.
        now_millis: the key was made at this time or before; by default now.
        time_zone: the producer's time zone; by default this machine's.
    """
    if not _ID.fullmatch(text):
        return None
    data = bytes.fromhex(text)
    address = data[: -_UNIQUE_KEY_TAIL.size]
    pid, class_loader_hash, span_millis, counter = _UNIQUE_KEY_TAIL.unpack(data[-_UNIQUE_KEY_TAIL.size :])
    now_millis = int(time.time() * 1000) if now_millis is None else now_millis
    begin_millis = _month_begin_millis(now_millis, time_zone)
    if begin_millis + span_millis > now_millis:
        begin_millis = _month_begin_millis(begin_millis - 1, time_zone)
    if begin_millis + span_millis > now_millis:
        return None  # more than a month since a month began
    ip = socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)
    return UniqueKey(ip, pid, class_loader_hash, begin_millis + span_millis, counter)


class UniqueKeyGenerator:
    """Makes unique keys as RocketMQ's producer does; safe for many threads.

    Args:
        ip: IPv4 or IPv6 of this machine.
        pid: of this process; its low 16 bits are kept.
        class_loader_hash: a signed i32 that differs between two generators of one process.
        clock_millis: time since 1970 UTC.
        time_zone: in which a month begins; by default this machine's.
    """

    def __init__(
        self,
        ip: str,
        pid: int,
        *,
        class_loader_hash: int,
        clock_millis: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        time_zone: tzinfo | None = None,
    ) -> None:
        fixed = encode_host(Host(ip, 0))[:-4] + struct.pack(">Hi", pid & 0xFFFF, class_loader_hash)
        self._prefix = fixed.hex().upper()
        self._clock_millis = clock_millis
        self._time_zone = time_zone
        self._lock = threading.Lock()
        self._counter = 0
        self._begin_millis = self._end_millis = 0

    def create(self) -> str:
        """The next key, 32 or 56 upper-case digits; unique in this generator up to 65,536 keys a millisecond."""
        text, counter = self.reserve(1)
        return f"{text}{counter:04X}"

    @property
    def size_digits(self) -> int:
        """Number of digits of its keys."""
        return len(self._prefix) + 12

    def reserve(self, count: int) -> tuple[str, int]:
        """The next `count` keys: the digits with which all of them begin, and the counter of the first.

        Behind these digits each key has four digits of the counter, modulo 2^16.
        """
        now_millis = self._clock_millis()
        with self._lock:
            counter = self._counter
            self._counter = (counter + count) & 0xFFFF
            if not self._begin_millis <= now_millis < self._end_millis:
                self._begin_millis = _month_begin_millis(now_millis, self._time_zone)
                self._end_millis = _month_begin_millis(self._begin_millis + 32 * 86_400_000, self._time_zone)
            span_millis = now_millis - self._begin_millis
        return f"{self._prefix}{span_millis & _U32_MASK:08X}", counter


def _month_begin_millis(time_millis: int, time_zone: tzinfo | None) -> int:
    """When the month of a time began, in milliseconds; a None zone is this machine's."""
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=time_millis)
    if time_zone is None:
        local = datetime.fromtimestamp(time_millis / 1000)
        begin = datetime(local.year, local.month, 1)
    else:
        from_utc = time_zone.fromutc(moment.replace(tzinfo=time_zone))
        begin = datetime(from_utc.year, from_utc.month, 1, tzinfo=time_zone)
    return int(begin.timestamp()) * 1000
