"""The flags of every verb that calls a gateway: TLS and credentials (docs/security.md), context, time zone."""

import inspect
import os
import pathlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import usage_error

if TYPE_CHECKING:
    from reput_client.security import ClientSecurity

TlsCa = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        envvar="REPUT_CLIENT_CA",
        help="PEM file with the authority of the gateway's certificate.",
    ),
]
TlsCertificate = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        envvar="REPUT_CLIENT_CERTIFICATE",
        help="PEM file with the client's certificate; needs --tls-key.",
    ),
]
TlsKey = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--tls-key", metavar="FILE", envvar="REPUT_CLIENT_KEY", help="PEM file with the private key of --tls-cert."
    ),
]
Tls = Annotated[bool, typer.Option("--tls", help="TLS with a certificate of a public authority.")]
ApiKey = Annotated[
    str,
    typer.Option(
        "--api-key",
        metavar="KEY",
        envvar="REPUT_API_KEY",
        show_envvar=True,
        help="API key. The environment or --token-file is safer: process lists show arguments.",
    ),
]
TokenFile = Annotated[
    pathlib.Path | None,
    typer.Option("--token-file", metavar="FILE", envvar="REPUT_TOKEN_FILE", help="File with an API key or a JWT."),
]
Tz = Annotated[
    str,
    typer.Option(
        "--tz",
        metavar="ZONE",
        envvar="REPUT_TZ",
        help="Zone of times: local, UTC, +08:00, Asia/Shanghai. Default: printed in UTC, typed in local time.",
    ),
]
ContextName = Annotated[
    str,
    typer.Option(
        "--context", metavar="NAME", envvar="REPUT_CONTEXT", help="The gateway that `reput context add` gave this name."
    ),
]
FLAGS: dict[str, tuple[Any, Any]] = {
    "tls_ca": (TlsCa, None),
    "tls_cert": (TlsCertificate, None),
    "tls_key": (TlsKey, None),
    "tls": (Tls, False),
    "api_key": (ApiKey, ""),
    "token_file": (TokenFile, None),
    "context": (ContextName, ""),
    "tz": (Tz, ""),
}
SECURITY_FLAGS = ("tls_ca", "tls_cert", "tls_key", "tls", "api_key", "token_file")

_given: ContextVar[dict[str, Any]] = ContextVar("reput_security_flags", default={})  # noqa: B039  # the default is never changed


def with_flags(verb: Callable[..., int]) -> Callable[..., int]:
    """The verb, with these flags added if it calls a gateway: if it has a parameter `address`."""
    signature = inspect.signature(verb, eval_str=True)
    if "address" not in signature.parameters:
        return verb

    def run(**arguments: Any) -> int:
        from cli.contexts import chosen_context
        from cli.times import parse_zone, set_zone

        set_zone(parse_zone(arguments.pop("tz")))
        origins: typer.Context = arguments.pop("origins")
        given = {name: arguments.pop(name) for name in SECURITY_FLAGS}
        context = chosen_context(
            arguments.pop("context"), _origin(origins, "context"), _origin(origins, "address"), os.environ
        )
        if context is not None:
            arguments["address"] = context.endpoint
            given = context.completed(given)
        token = _given.set(given)
        try:
            return verb(**arguments)
        finally:
            _given.reset(token)

    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in FLAGS.items()
    ]
    more.append(inspect.Parameter("origins", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    run.__name__, run.__doc__ = verb.__name__, verb.__doc__
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]  # mypy knows no attributes of functions
    run.__annotations__ = {name: each.annotation for name, each in run.__signature__.parameters.items()}  # type: ignore[attr-defined]  # mypy knows no attributes of functions
    return run


def _origin(origins: typer.Context, name: str) -> str:
    """Where the value of an option comes from: `COMMANDLINE`, `ENVIRONMENT`, or another word for neither."""
    source = origins.get_parameter_source(name)
    return source.name if source is not None else ""


def given_security() -> "ClientSecurity | None":
    """The security of the running verb, from its flags and the environment; None when there is none."""
    given = _given.get()
    if not any(given.values()):
        return None
    from reput_client.security import ClientSecurity  # loads grpc: help does without

    try:
        return ClientSecurity(
            ca_file=given.get("tls_ca"),
            certificate_file=given.get("tls_cert"),
            key_file=given.get("tls_key"),
            api_key=given.get("api_key", ""),
            token_file=given.get("token_file"),
            tls=True if given.get("tls") else None,
        )
    except ValueError as error:
        usage_error(str(error))
