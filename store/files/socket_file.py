"""The name of a unix socket in the file system. A process replaces only what a dead process left, and removes only its own.

<path>.lock     held by the process that has the address; the file stays
<bind_path>     a name in the same directory, to which the socket is bound
<path>          its name, once it is published: moved there whole, with the permissions of its user alone
"""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from store.files.locks import OwnerLock

UNIX = "unix:"
# Access to the socket grants full control, so it is restricted to the user that runs the service.
SOCKET_MODE = 0o600
PATH_BYTES_MAX = 107  # of sun_path, which ends with a zero byte


class SocketFile:
    """One name; its socket is made and bound by the caller.

    Args:
        path: where the socket shall be found.

    Attributes:
        bind_path: what to bind it to before `publish`.

    Raises:
        OSError: the path is too long for a socket.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        # Random, because processes of several PID namespaces may share the directory.
        self.bind_path = str(self._path.parent / f".{secrets.token_hex(4)}")
        if max(len(os.fsencode(name)) for name in (path, self.bind_path)) > PATH_BYTES_MAX:
            raise OSError(
                errno.ENAMETOOLONG, f"a socket's path, and {self.bind_path}, have at most {PATH_BYTES_MAX} bytes", path
            )
        self._own: os.stat_result | None = None

    def publish(self) -> None:
        """Moves the bound socket to its path.

        Raises:
            OSError: there is a file that is not a socket, or the disk refuses; nothing is left behind.
        """
        try:
            os.chmod(self.bind_path, SOCKET_MODE)
            self._own = os.stat(self.bind_path)
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(os.lstat(self._path).st_mode):
                    raise OSError(errno.EADDRINUSE, "there is a file that is not a socket", str(self._path))
            os.rename(self.bind_path, self._path)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.bind_path)
            raise

    def remove(self) -> None:
        """Removes the socket, unless another one has its path now."""
        with contextlib.suppress(OSError):
            if self._own is not None and os.path.samestat(os.lstat(self._path), self._own):
                os.unlink(self._path)


class UnixAddress:
    """The address of a service on a unix socket: `unix:/path`. One process at a time has it, and all sockets beside it.

    Args:
        path: of its socket.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._directory = Path(path).parent
        self._lock = OwnerLock(Path(f"{path}.lock"))
        self._is_held = False

    @classmethod
    def of(cls, address: str) -> "UnixAddress | None":
        """The address of a service; None for one on a port."""
        return cls(address.removeprefix(UNIX)) if address.startswith(UNIX) else None

    def hold(self) -> None:
        """Takes the address, unless that was done before.

        Raises:
            StoreLockedError: another process has it.
            OSError: its directory is not there, or is not ours.
        """
        if not self._is_held:
            os.stat(self._directory)  # the lock would make it
            self._lock.acquire()
            self._is_held = True

    def release(self) -> None:
        """Gives it to others, once the sockets are removed."""
        self._lock.release()
        self._is_held = False
