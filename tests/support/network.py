"""A network between processes on loopback whose ways can be cut, each direction by itself.

    network = Network()
    link = network.link("r1", upstream="127.0.0.1:8082", caller="gateway")      # the gateway dials link.address
    with network.cut([("r1", "gateway")]):                                      # what r1 says does not arrive any more
        ...

A cut loses no byte of an open connection: what was said meanwhile arrives when the way is mended, late, as TCP sends it again.
No connection can be made while one of its two ways is cut, and nobody learns of the end of a connection behind a cut.
"""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

Way = tuple[str, str]
CHUNK_BYTES = 1 << 16
CONNECT_SECONDS_MAX = 5.0
OUTSIDE = "outside"  # a caller that is no part of the network; its ways are never cut


def both(one: str, other: str) -> frozenset[Way]:
    """The ways between two."""
    return frozenset({(one, other), (other, one)})


class Network:
    """See the top of this file; thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cuts: Counter[Way] = Counter()
        self._is_closed = False
        self._links: list[Link] = []

    def link(self, target: str, upstream: str, caller: str | Callable[[int, int], str]) -> "Link":
        """A way to a service; `caller` is the name of those who dial it, or finds it from their port and the link's."""
        link = Link(self, target, upstream, caller if callable(caller) else lambda near, far: caller)
        self._links.append(link)
        return link

    @contextlib.contextmanager
    def cut(self, ways: Iterable[Way]) -> Iterator[None]:
        """Nothing goes these ways inside the block."""
        cut = tuple(ways)
        with self._changed:
            self._cuts.update(cut)
        try:
            yield
        finally:
            with self._changed:
                self._cuts.subtract(cut)
                self._changed.notify_all()

    def is_open(self, ways: Iterable[Way]) -> bool:
        """Whether none of these is cut."""
        with self._changed:
            return self._is_closed or all(self._cuts[way] <= 0 for way in ways)

    def wait_open(self, ways: Iterable[Way]) -> None:
        """Return once none of these is cut, or the network is closed."""
        wanted = tuple(ways)
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or all(self._cuts[way] <= 0 for way in wanted))

    def close(self) -> None:
        """End all links."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for link in self._links:
            link.close()

    def __enter__(self) -> "Network":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Link:
    """See Network.link.

    Attributes:
        address: what callers dial.
    """

    def __init__(self, network: Network, target: str, upstream: str, caller: Callable[[int, int], str]) -> None:
        self._network = network
        self._target = target
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._caller = caller
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self._port}"
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, name=f"link-{target}", daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # close alone does not wake the thread that accepts
        self._listener.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, peer = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near, peer[1]), name="link", daemon=True).start()

    def _serve(self, near: socket.socket, port: int) -> None:
        with near:
            caller = self._caller(port, self._port)
            there, back = (caller, self._target), (self._target, caller)
            if not self._network.is_open([there, back]):
                self._network.wait_open([there, back])  # the caller's first packet is lost, and so is the connection
                return
            try:
                far = socket.create_connection(self._upstream, CONNECT_SECONDS_MAX)
            except OSError:
                return
            with far:
                far.settimeout(None)
                for connection in (near, far):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open |= {near, far}
                answers = threading.Thread(target=self._pump, args=(far, near, back), name="link", daemon=True)
                answers.start()
                self._pump(near, far, there)
                answers.join()
                with self._lock:
                    self._open -= {near, far}

    def _pump(self, source: socket.socket, target: socket.socket, way: Way) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._network.wait_open([way])
                target.sendall(data)
        self._network.wait_open([way])
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def process_of_connection(near_port: int, far_port: int, pids: Mapping[str, int]) -> str:
    """The name of the process that has the connection between two ports of loopback; OUTSIDE when it is none of these.

    Args:
        near_port: of the end that the process has.
        far_port: of the other end.
        pids: processes by name.
    """
    inodes = set()
    for table in ("tcp", "tcp6"):  # gRPC connects to 127.0.0.1 from a socket of IPv6
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            _, local, remote, *_, inode = line.split()[:10]
            if (_port(local), _port(remote)) == (near_port, far_port):
                inodes.add(f"socket:[{inode}]")
    for name, pid in pids.items():
        with contextlib.suppress(OSError):  # it has just ended
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(descriptor.readlink()) in inodes:
                        return name
    return OUTSIDE


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
