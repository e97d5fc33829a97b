"""How a client reaches a gateway that wants TLS, or wants to know who calls."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc

# A token is read anew when its file has changed; one that is larger than this is no token.
TOKEN_BYTES_MAX = 16 * 1024
LOCAL_HOSTS = ("127.", "localhost", "[::1]", "unix:")


@dataclass(frozen=True, slots=True, repr=False)
class ClientSecurity:
    """What a client trusts and shows.

    Attributes:
        ca_file: PEM, the authority of the gateway's certificate; None: the public ones, if there is TLS at all.
        certificate_file: PEM chain that the client shows; with `key_file`.
        key_file: PEM, its private key.
        api_key: an API key of the gateway, `reput_...`.
        token_file: a file with an API key or a JWT; looked at again for each call, for tokens that are exchanged.
        tls: whether to use TLS; None: when one of the files above is given.
        allow_plaintext: whether a key or token may travel without TLS to another machine.
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
            raise ValueError("certificate_file and key_file are given together or not at all")
        if self.api_key and self.token_file is not None:
            raise ValueError("api_key and token_file are both given: the gateway takes one")
        if self.tls is False and (self.ca_file is not None or self.certificate_file is not None):
            raise ValueError("tls is False, and certificates are given")

    def __repr__(self) -> str:
        shown = "api_key" if self.api_key else "token_file" if self.token_file is not None else "nothing"
        return f"ClientSecurity(tls={self.uses_tls}, shows={shown})"

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
        """Whether channels are made with TLS."""
        return self.tls if self.tls is not None else self.ca_file is not None or self.certificate_file is not None

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """For a channel over TLS; None without TLS. The files are read now."""
        if not self.uses_tls:
            return None
        return grpc.ssl_channel_credentials(_read(self.ca_file), _read(self.key_file), _read(self.certificate_file))

    def metadata(self, target: str) -> "Callable[[], tuple[tuple[str, str], ...]] | None":
        """What says, for each call, what is shown; None when nothing is.

        Raises:
            ValueError: it would travel to another machine for everybody to read.
        """
        if not self.api_key and self.token_file is None:
            return None
        if not self.uses_tls and not self.allow_plaintext and not target.startswith(LOCAL_HOSTS):
            raise ValueError(
                f"a key or token would travel to {target} without TLS: give ca_file or tls=True, or allow_plaintext=True"
            )
        if self.token_file is not None:
            return _TokenFile(Path(self.token_file))
        shown = (("authorization", f"Bearer {self.api_key}"),)
        return lambda: shown


class _TokenFile:
    """The metadata with a file's token, which is read when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[int, int, int], tuple[tuple[str, str], ...]] | None = None

    def __call__(self) -> tuple[tuple[str, str], ...]:
        look = self._path.stat()
        stamp = look.st_mtime_ns, look.st_ino, look.st_size
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


class _ShownDetails(_Details, grpc.ClientCallDetails):  # type: ignore[misc]  # grpc has no types
    """A call's details, as interceptors of both kinds want them."""


def _with(details: Any, metadata: tuple[tuple[str, str], ...]) -> _ShownDetails:
    return _ShownDetails(
        details.method,
        details.timeout,
        (*(details.metadata or ()), *metadata),
        details.credentials,
        details.wait_for_ready,
        getattr(details, "compression", None),  # asyncio's calls have it among their metadata
    )


class ShowingInterceptor(  # type: ignore[misc]  # likewise
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds what is shown to each call.

    Args:
        metadata: says what.
    """

    def __init__(self, metadata: Callable[[], tuple[tuple[str, str], ...]]) -> None:
        self._metadata = metadata

    def _go_on(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        return continuation(_with(details, self._metadata()), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _go_on


def async_interceptors(metadata: Callable[[], tuple[tuple[str, str], ...]]) -> list[Any]:
    """The same for asyncio, whose channels want an object for each kind of call."""

    async def go_on(_self: Any, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        return await continuation(_with(details, metadata()), request)

    kinds = (
        ("unary_unary", grpc.aio.UnaryUnaryClientInterceptor),
        ("unary_stream", grpc.aio.UnaryStreamClientInterceptor),
        ("stream_unary", grpc.aio.StreamUnaryClientInterceptor),
        ("stream_stream", grpc.aio.StreamStreamClientInterceptor),
    )
    return [type("AsyncShowingInterceptor", (base,), {f"intercept_{kind}": go_on})() for kind, base in kinds]


def _read(path: Path | str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
