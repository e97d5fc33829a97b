"""`reput context`: names for gateways, kept in a file with how each is reached, as kubectl and rpk have them.

    current = "prod"
    [contexts.prod]
    endpoint = "gateway.example.org:8081"
    ca = "/etc/reput/ca.crt"
    token_file = "/home/me/.reput-token"

The file is `$REPUT_CONTEXTS`, else `reput/contexts.toml` in `$XDG_CONFIG_HOME` or `~/.config`. It holds no secret, only paths
of files with secrets. A gateway that is named by its address gets nothing of a context: credentials are for one endpoint only.
"""

import dataclasses
import json
import os
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli import options
from cli.exits import Exit, usage_error
from cli.options import OutputFormat

COLUMNS = ["current", "name", "endpoint", "ca", "certificate", "key", "tls", "token_file"]
DROPPED_FIRST = ("key", "certificate", "tls", "ca", "token_file")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """How a gateway is reached; empty: not needed.

    Attributes:
        endpoint: HOST:PORT.
        ca: PEM file with the authority of its certificate.
        certificate: PEM file with the client's certificate.
        key: PEM file with that certificate's key.
        tls: TLS with a certificate of a public authority.
        token_file: file with an API key or a JWT.
    """

    endpoint: str
    ca: str = ""
    certificate: str = ""
    key: str = ""
    tls: bool = False
    token_file: str = ""

    def completed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The flags for TLS and credentials; what was not given is the context's."""
        flags = dict(given)
        if not (flags["tls_ca"] or flags["tls"]):
            flags["tls_ca"], flags["tls"] = _path(self.ca), self.tls
        if not (flags["tls_cert"] or flags["tls_key"]):
            flags["tls_cert"], flags["tls_key"] = _path(self.certificate), _path(self.key)
        if not (flags["api_key"] or flags["token_file"]):
            flags["token_file"] = _path(self.token_file)
        return flags


@dataclasses.dataclass(slots=True)
class Contexts:
    """The contexts of a file.

    Attributes:
        by_name: all of them.
        current: the one that is used when no address and no context is named; empty: none.
    """

    by_name: dict[str, Context] = dataclasses.field(default_factory=dict)
    current: str = ""

    def named(self, name: str) -> Context:
        """The context of this name; CliError when there is none."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            usage_error(
                f"there is no context {name!r}; there are: {known}",
                "`reput context add NAME --endpoint HOST:PORT` makes it.",
            )
        return self.by_name[name]


def contexts_file(environ: Mapping[str, str]) -> pathlib.Path:
    """The path of the file of contexts."""
    if environ.get("REPUT_CONTEXTS"):
        return pathlib.Path(environ["REPUT_CONTEXTS"])
    base = environ.get("XDG_CONFIG_HOME") or pathlib.Path(environ.get("HOME") or "/", ".config")
    return pathlib.Path(base, "reput", "contexts.toml")


def read_contexts(file: pathlib.Path) -> Contexts:
    """The contexts of a file, none when it does not exist; CliError when it cannot be read."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
        by_name = {name: Context(**fields) for name, fields in document.get("contexts", {}).items()}
        return Contexts(by_name, str(document.get("current", "")))
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        usage_error(f"{file} cannot be read: {error}", "Correct it, or remove it and add the contexts again.")


def write_contexts(file: pathlib.Path, contexts: Contexts) -> None:
    """Replace the file, in one step; readable for its owner only."""
    lines = [f"current = {_toml(contexts.current)}"] if contexts.current else []
    for name, context in sorted(contexts.by_name.items()):
        lines += ["", f"[contexts.{_toml(name)}]"]
        lines += [f"{field} = {_toml(value)}" for field, value in dataclasses.asdict(context).items() if value]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_name(f"{file.name}.{os.getpid()}")
        scratch.touch(mode=0o600)
        scratch.write_text("\n".join(lines).lstrip("\n") + "\n", encoding="utf-8")
        scratch.replace(file)
    except OSError as error:
        usage_error(f"{file} cannot be written: {error.strerror}", "REPUT_CONTEXTS names another file.")


def chosen_context(name: str, name_origin: str, address_origin: str, environ: Mapping[str, str]) -> Context | None:
    """The context for a call; None when the address is to be taken as it is.

    The command line is stronger than the environment, and both are stronger than the current context.

    Args:
        name: the context that was named; empty: none.
        name_origin: where that comes from, `COMMANDLINE` or `ENVIRONMENT`.
        address_origin: the same for the address; another word when none was given.
        environ: of the process.
    """
    given = ("COMMANDLINE", "ENVIRONMENT")
    if name and name_origin == address_origin:
        usage_error("a context and an address are given", "Give --context or --address, not both.")
    if name and (name_origin == "COMMANDLINE" or address_origin not in given):
        return read_contexts(contexts_file(environ)).named(name)
    if address_origin in given:
        return None
    contexts = read_contexts(contexts_file(environ))
    return contexts.named(contexts.current) if contexts.current else None


def add(
    *,
    name: Name,
    endpoint: Annotated[str, typer.Option("--endpoint", metavar="HOST:PORT", help="The gateway.")],
    ca: Annotated[
        pathlib.Path | None, typer.Option("--ca", "--tls-ca", metavar="FILE", help="Authority of its certificate.")
    ] = None,
    certificate: Annotated[
        pathlib.Path | None, typer.Option("--cert", "--tls-cert", metavar="FILE", help="The client's certificate.")
    ] = None,
    key: Annotated[pathlib.Path | None, typer.Option("--key", "--tls-key", metavar="FILE", help="Its key.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="TLS with a certificate of a public authority.")] = False,
    token_file: Annotated[
        pathlib.Path | None, typer.Option("--token-file", metavar="FILE", help="File with an API key or a JWT.")
    ] = None,
) -> int:
    """Add or replace a context, and use it from now on where no address is named."""
    if not name.isprintable() or not name or not endpoint.isprintable() or ":" not in endpoint:
        usage_error(
            "a context has a name and an endpoint HOST:PORT", "For example: prod --endpoint reput.example.org:8081"
        )
    if (certificate is None) != (key is None):
        usage_error("--cert and --key are given together or not at all")
    paths = {"ca": ca, "certificate": certificate, "key": key, "token_file": token_file}
    for path in paths.values():
        if path is not None and not path.is_file():
            usage_error(f"{path} is no file")
    file = contexts_file(os.environ)
    contexts = read_contexts(file)
    absolute = {field: str(path.absolute()) if path is not None else "" for field, path in paths.items()}
    contexts.by_name[name] = Context(endpoint, tls=tls, **absolute)
    contexts.current = name
    write_contexts(file, contexts)
    print(f"{name} is the current context, {endpoint}")
    return Exit.FOUND


def use(*, name: Name) -> int:
    """Make a context the current one."""
    file = contexts_file(os.environ)
    contexts = read_contexts(file)
    endpoint = contexts.named(name).endpoint
    contexts.current = name
    write_contexts(file, contexts)
    print(f"{name} is the current context, {endpoint}")
    return Exit.FOUND


def list_contexts(*, output: options.Output = OutputFormat.TABLE) -> int:
    """List the contexts; a star marks the current one."""
    from cli.printing import print_rows

    contexts = read_contexts(contexts_file(os.environ))
    rows = [
        {"current": "*" if name == contexts.current else "", "name": name, **dataclasses.asdict(context)}
        for name, context in sorted(contexts.by_name.items())
    ]
    print_rows("contexts", rows, COLUMNS, output, dropped_first=DROPPED_FIRST)
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def remove(*, name: Name) -> int:
    """Remove a context. Without a current one, the address is --address again, or its default."""
    file = contexts_file(os.environ)
    contexts = read_contexts(file)
    contexts.named(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = ""
    write_contexts(file, contexts)
    print(f"{name} is removed")
    return Exit.FOUND


def _path(text: str) -> pathlib.Path | None:
    return pathlib.Path(text) if text else None


def _toml(value: str | bool) -> str:
    """A value as TOML writes it; its strings are JSON's, but for DEL."""
    return json.dumps(value).replace("\x7f", "\\u007f")
