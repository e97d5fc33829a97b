"""TLS of a process: which files it has, what a server makes of them, and how changed files are noticed.

    settings ─▶ TlsFiles (paths) ─▶ TlsIdentity (their bytes, as of the last look) ─▶ server credentials | client credentials

Certificates change while a process runs (cert-manager, a secret that is mounted again). So the files are checked whenever a
server accepts a connection, gRPC's and the console's, and from time to time by callers (reput_client/reloading_channel.py). A
check is a `stat` of each file; the files are read only when one has changed. New bytes are used only when key and certificate
belong together and no file changed while they were read. Otherwise the former bytes stay in use, and the log has the reason.
"""

import dataclasses
import threading
from typing import TYPE_CHECKING

import grpc
import structlog

from services.settings.certificates import TlsFiles
from store.errors import InvalidSettingError

if TYPE_CHECKING:
    import ssl

_log = structlog.get_logger("reput.tls")

Stamp = tuple[tuple[int, int, int], ...]  # of each file: time of the last change in nanoseconds, inode, size in bytes


@dataclasses.dataclass(frozen=True, slots=True)
class PemFiles:
    """The content of the files, which belongs together.

    Attributes:
        certificate: PEM chain.
        key: PEM.
        ca: PEM, of the authorities; None: callers show no certificate.
        context: the same for a server that is not gRPC's; with a CA, callers must show a certificate.
    """

    certificate: bytes
    key: bytes
    ca: bytes | None
    context: "ssl.SSLContext"


class TlsIdentity:
    """The bytes of the files; thread-safe.

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
                f"the TLS files beside {files.certificate} cannot be used: {error}",
                name="tls_certificate",
                source=files.certificate,
            ) from error
        self._refused: Stamp | None = None

    def current(self) -> PemFiles:
        """The content of the files now, or the last content in which key and certificate belonged together."""
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
                    return self._pem  # a change is under way: read them next time
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
        import ssl  # takes 10 ms, only with TLS

        # gRPC would accept wrong files and then refuse every connection.
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
    """For a server's port; with a CA, callers must show a certificate."""
    last: list[PemFiles] = [identity.current()]

    def configuration(pem: PemFiles) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.ca)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        pem = identity.current()
        if pem is last[0]:
            return None  # unchanged
        last[0] = pem
        return configuration(pem)

    return grpc.dynamic_ssl_server_credentials(
        configuration(last[0]),
        fetch,  # type: ignore[arg-type]  # gRPC takes None for "unchanged", its stubs do not
        require_client_authentication=last[0].ca is not None,
    )


def _no_password() -> str:
    raise ValueError("the key is encrypted with a password: use a key without one")
