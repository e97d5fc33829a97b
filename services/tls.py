"""TLS of a process: which files it has, what a server makes of them, and how changed files are noticed.

    settings ─▶ TlsFiles (paths) ─▶ TlsIdentity (their bytes, as of the last look) ─▶ server credentials | client credentials

Certificates are changed under a running process (cert-manager, a secret that is mounted again). So the files are looked at
again whenever a server greets a connection, gRPC's as the console's, and now and then by callers
(services/reloading_channel.py): a `stat` of each, and more only when one of them has changed. What is read is taken only when
key and certificate belong together and nothing changed while it was read; otherwise the former bytes stay and the log says
why. Nothing is taken half.
"""

import dataclasses
import threading
from typing import TYPE_CHECKING

import grpc
import structlog

from services.tls_files import TlsFiles
from store.errors import InvalidSettingError

if TYPE_CHECKING:
    import ssl

_log = structlog.get_logger("reput.tls")

Stamp = tuple[tuple[int, int, int], ...]  # of each file: time of the last change in nanoseconds, inode, size in bytes


@dataclasses.dataclass(frozen=True, slots=True)
class PemFiles:
    """What stood in the files, together.

    Attributes:
        certificate: PEM chain.
        key: PEM.
        ca: PEM, of the authorities; None: no certificate is asked for.
        context: the same for a server that is not gRPC's; with a CA callers must show a certificate.
    """

    certificate: bytes
    key: bytes
    ca: bytes | None
    context: "ssl.SSLContext"


class TlsIdentity:
    """The files' bytes; thread-safe.

    Args:
        files: where they are.

    Raises:
        InvalidSettingError: a file cannot be read, or key and certificate do not belong together.
    """

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._lock = threading.Lock()
        try:
            self._stamp = self._look()
            self._pem = self._read()
        except (OSError, ValueError) as error:
            raise InvalidSettingError(
                f"the TLS files cannot be used: {error}", name="tls_certificate", source=files.certificate
            ) from error
        self._refused: Stamp | None = None

    def current(self) -> PemFiles:
        """What stands in the files now, or stood there when they last fitted together."""
        with self._lock:
            try:
                stamp = self._look()
            except OSError as error:
                self._note_refused((), error)
                return self._pem
            if stamp == self._stamp:
                return self._pem
            try:
                pem = self._read()
                if self._look() != stamp:
                    return self._pem  # in the middle of a change: next time
            except (OSError, ValueError) as error:
                self._note_refused(stamp, error)
                return self._pem
            self._stamp, self._pem, self._refused = stamp, pem, None
        _log.info("tls.reloaded", certificate=str(self.files.certificate))
        return pem

    def _note_refused(self, stamp: Stamp, error: Exception) -> None:
        if self._refused != stamp:  # once for each change, not for each connection
            self._refused = stamp
            _log.error("tls.reload_failed", certificate=str(self.files.certificate), error=str(error))

    def _look(self) -> Stamp:
        looks = [path.stat() for path in (self.files.certificate, self.files.key, self.files.ca) if path is not None]
        return tuple((look.st_mtime_ns, look.st_ino, look.st_size) for look in looks)

    def _read(self) -> PemFiles:
        import ssl  # 10 ms that only those pay who have TLS

        # gRPC takes anything, and then lets nobody in.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.files.certificate, self.files.key, password=_no_password)
        if self.files.ca is not None:
            context.load_verify_locations(self.files.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return PemFiles(
            self.files.certificate.read_bytes(),
            self.files.key.read_bytes(),
            self.files.ca.read_bytes() if self.files.ca is not None else None,
            context,
        )


def server_credentials(identity: TlsIdentity) -> grpc.ServerCredentials:
    """For a server's port; callers must show a certificate when there is a CA to check it by."""
    last: list[PemFiles] = [identity.current()]

    def configuration(pem: PemFiles) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.ca)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        pem = identity.current()
        if pem is last[0]:
            return None  # as before
        last[0] = pem
        return configuration(pem)

    return grpc.dynamic_ssl_server_credentials(
        configuration(last[0]), fetch, require_client_authentication=last[0].ca is not None
    )


def _no_password() -> str:
    raise ValueError("the key is locked with a password: give one without")
