"""TLS and credentials of a client: API keys, JWTs, client certificates."""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc

# Only this much of a token file is read: a longer token is not valid.
TOKEN_BYTES_MAX = 16 * 1024
LOCAL_HOSTS = ("127.", "localhost", "[::1]", "unix:")

_Continuation = Callable[[Any, Any], Any]


class Pem(NamedTuple):
    """The PEM files of a TLS channel.

    Attributes:
        ca: PEM, of the authorities; None: the public ones.
        key: PEM; None: no certificate is shown.
        certificate: PEM chain.
    """

    ca: bytes | None
    key: bytes | None
    certificate: bytes | None

    def credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a channel, of grpc's or of grpc.aio's."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


@dataclass(frozen=True, slots=True, repr=False)
class ClientSecurity:
    """The authority that a client trusts, and the credentials that it sends.

    The PEM files are read again when they have changed: new calls then use a new connection (reloading_channel.py).

    Attributes:
        ca_file: PEM file, the authority of the gateway's certificate; None: the public authorities, if TLS is used.
        certificate_file: PEM file, the client's certificate chain; needs `key_file`.
        key_file: PEM file, the private key of `certificate_file`.
        api_key: an API key of the gateway, `reput_...`.
        token_file: a file with an API key or a JWT. It is read again when it has changed, so tokens can be rotated.
        tls: whether to use TLS; None: only if `ca_file` or `certificate_file` is given.
        allow_plaintext: allow a key or token to be sent to another machine without TLS.
    """

    ca_file: Path | str | None = None
    certificate_file: Path | str | None = None
    key_file: Path | str | None = None
    api_key: str = ""
    token_file: Path | str | None = None
    tls: bool | None = None
    allow_plaintext: bool = False

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("only one of certificate_file and key_file is given: give both or none")
        if self.api_key and self.token_file is not None:
            raise ValueError("api_key and token_file are both given: the gateway accepts one of them")
        if self.tls is False and (self.ca_file is not None or self.certificate_file is not None):
            raise ValueError("tls is False, but certificates are given: leave out one of them")

    def __repr__(self) -> str:
        sent = "api_key" if self.api_key else "token_file" if self.token_file is not None else "nothing"
        return f"ClientSecurity(tls={self.uses_tls}, sends={sent})"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "ClientSecurity":
        """From REPUT_CLIENT_CA, REPUT_CLIENT_CERTIFICATE, REPUT_CLIENT_KEY, REPUT_API_KEY and REPUT_TOKEN_FILE."""
        return cls(
            ca_file=environ.get("REPUT_CLIENT_CA") or None,
            certificate_file=environ.get("REPUT_CLIENT_CERTIFICATE") or None,
            key_file=environ.get("REPUT_CLIENT_KEY") or None,
            api_key=environ.get("REPUT_API_KEY", ""),
            token_file=environ.get("REPUT_TOKEN_FILE") or None,
        )

    @property
    def uses_tls(self) -> bool:
        """Whether channels use TLS."""
        return self.tls if self.tls is not None else self.ca_file is not None or self.certificate_file is not None

    def pem_files(self) -> "PemFiles | None":
        """The PEM files of TLS channels, None without TLS; OSError when a file cannot be used."""
        return PemFiles(self) if self.uses_tls else None

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """Credentials of a TLS channel with what the files contain now, None without TLS; OSError as `pem_files`."""
        files = self.pem_files()
        return files.current().credentials() if files is not None else None

    def metadata(self, target: str) -> "Callable[[], tuple[tuple[str, str], ...]] | None":
        """A function that returns the metadata of a call with the key or token; None when there is neither.

        Raises:
            ValueError: the key or token would be sent to another machine without TLS.
        """
        if not self.api_key and self.token_file is None:
            return None
        if not self.uses_tls and not self.allow_plaintext and not target.startswith(LOCAL_HOSTS):
            raise ValueError(
                f"a key or token would be sent to {target} without TLS: give ca_file or tls=True, or allow_plaintext=True"
            )
        if self.token_file is not None:
            return _TokenFile(Path(self.token_file))
        metadata = (("authorization", f"Bearer {self.api_key}"),)
        return lambda: metadata


class PemFiles:
    """The content of a client's PEM files; thread-safe.

    Args:
        security: says where they are.

    Raises:
        OSError: a file cannot be read, or key and certificate do not belong together.
    """

    def __init__(self, security: ClientSecurity) -> None:
        self._paths = tuple(
            None if path is None else Path(path)
            for path in (security.ca_file, security.key_file, security.certificate_file)
        )
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._pem = self._read()

    def current(self) -> Pem:
        """The content now, or the last content in which key and certificate belonged together."""
        with self._lock:
            try:
                stamp = self._look()
                if stamp != self._stamp:
                    pem = self._read()
                    if self._look() == stamp:
                        self._stamp, self._pem = stamp, pem
            except OSError:
                pass  # a change is under way: they are looked at again
            return self._pem

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        looks = [path.stat() for path in self._paths if path is not None]
        return tuple((look.st_mtime_ns, look.st_ino, look.st_size) for look in looks)

    def _read(self) -> Pem:
        _, key, certificate = self._paths
        if key is not None and certificate is not None:
            import ssl  # takes 10 ms, only with certificates

            # gRPC would take files that do not belong together, and then fail with every connection.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, password=_no_password)
        return Pem(*(None if path is None else path.read_bytes() for path in self._paths))


def _no_password() -> str:
    raise OSError("the key is encrypted with a password: use a key without one")


class _TokenFile:
    """Metadata with the token of a file; the file is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[int, int, int], tuple[tuple[str, str], ...]] | None = None

    def __call__(self) -> tuple[tuple[str, str], ...]:
        state = self._path.stat()
        stamp = state.st_mtime_ns, state.st_ino, state.st_size
        known = self._known
        if known is None or known[0] != stamp:
            with self._path.open("rb") as file:
                token = file.read(TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
            known = self._known = stamp, (("authorization", f"Bearer {token}"),)
        return known[1]


class _Details(NamedTuple):
    method: Any
    timeout: Any
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any


class _CallDetails(_Details, grpc.ClientCallDetails):
    """The details of a call, for interceptors of grpc and of grpc.aio."""


def _with(details: Any, metadata: tuple[tuple[str, str], ...]) -> _CallDetails:
    return _CallDetails(
        details.method,
        details.timeout,
        (*(details.metadata or ()), *metadata),
        details.credentials,
        details.wait_for_ready,
        getattr(details, "compression", None),  # details of grpc.aio have no such field
    )


class CredentialsInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the key or token to the metadata of each call.

    Args:
        metadata: returns it.
    """

    def __init__(self, metadata: Callable[[], tuple[tuple[str, str], ...]]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        """See grpc."""
        return continuation(_with(client_call_details, self._metadata()), request)

    def intercept_unary_stream(self, continuation: _Continuation, client_call_details: Any, request: Any) -> Any:
        """See grpc."""
        return continuation(_with(client_call_details, self._metadata()), request)

    def intercept_stream_unary(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """See grpc."""
        return continuation(_with(client_call_details, self._metadata()), request_iterator)

    def intercept_stream_stream(
        self, continuation: _Continuation, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """See grpc."""
        return continuation(_with(client_call_details, self._metadata()), request_iterator)


def async_interceptors(metadata: Callable[[], tuple[tuple[str, str], ...]]) -> list[Any]:
    """The same for asyncio: its channels take one object for each kind of call."""

    async def add_credentials(_self: Any, continuation: _Continuation, details: Any, request: Any) -> Any:
        return await continuation(_with(details, metadata()), request)

    kinds = (
        ("unary_unary", grpc.aio.UnaryUnaryClientInterceptor),
        ("unary_stream", grpc.aio.UnaryStreamClientInterceptor),
        ("stream_unary", grpc.aio.StreamUnaryClientInterceptor),
        ("stream_stream", grpc.aio.StreamStreamClientInterceptor),
    )
    return [
        type("AsyncCredentialsInterceptor", (base,), {f"intercept_{kind}": add_credentials})() for kind, base in kinds
    ]
