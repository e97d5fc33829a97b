"""`reput user`: the users of RocketMQ's clients in an access file, and those of a broker brought there (ADR 0144)."""

import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.brokers import AccessKey, SecretFile, open_broker, secret_in
from cli.exits import Exit, say_empty, store_failure, usage_error, warn
from cli.make_key import SECRET_BYTES

if TYPE_CHECKING:
    from gateway.auth.access_file import Client

File = Annotated[pathlib.Path, typer.Option("--file", help="The access file of the gateway.")]
Patterns = list[str] | None


def create(
    *,
    name: Annotated[str, typer.Argument(help="Name of the user, which is its access key.")],
    file: File,
    super_user: Annotated[bool, typer.Option("--super", help="It may do everything.")] = False,
    read: Annotated[Patterns, typer.Option("--read", help="Topics that it may consume; `*`: any characters.")] = None,
    write: Annotated[Patterns, typer.Option("--write", help="Topics that it may send to.")] = None,
    admin: Annotated[Patterns, typer.Option("--admin", help="Topics for which it has all rights.")] = None,
    group: Annotated[Patterns, typer.Option("--group", help="Groups that it may consume for.")] = None,
    secret_file: Annotated[
        pathlib.Path | None,
        typer.Option("--secret-file", help="File of its secret; without it one is made and printed."),
    ] = None,
) -> int:
    """Create a user: an access key for RocketMQ's clients, over gRPC and remoting.

    A gateway sees it within a second.
    """
    import secrets

    from gateway.auth.access_file import change_access_file
    from gateway.auth.users import NORMAL, SUPER, added, new_user, with_fields

    rights = {"read": read or [], "write": write or [], "admin": admin or [], "groups": group or []}
    if super_user and any(rights.values()):
        usage_error("a super user may do everything: leave the other rights out")
    secret = secret_in(secret_file) if secret_file else secrets.token_urlsafe(SECRET_BYTES)
    with _refusals(file):
        user = new_user(name, secret, SUPER if super_user else NORMAL)
        if not super_user:
            user = with_fields(user, **rights)
        change_access_file(file, lambda clients: added(clients, user))
    if secret_file is None:
        print(secret)
    return Exit.FOUND


def list_users(*, file: File) -> int:
    """List the users of an access file and their policies, without secrets."""
    from cli.terminal import one_line
    from gateway.auth.access_file import parse_access_file
    from gateway.auth.users import acl_row, entries_of, user_row

    with _refusals(file):
        clients = parse_access_file(file.read_bytes()).clients
    users = [(name, client) for client in clients for name in client.access_keys]
    for name, client in users:
        acl = acl_row(name, client)
        policies = [f"{each['resource']}={'|'.join(each['actions'])}" for each in entries_of(acl)] if acl else []
        print("\t".join((one_line(name), str(user_row(name, client)["userType"]), ",".join(policies))))
    if not users:
        say_empty(f"{file} has no access keys")
        return Exit.NOTHING_FOUND
    return Exit.FOUND


def delete(*, name: Annotated[str, typer.Argument(help="Name of the user.")], file: File) -> int:
    """Remove a user: a gateway refuses its next request."""
    from gateway.auth.access_file import change_access_file
    from gateway.auth.users import removed

    with _refusals(file):
        file.stat()  # a path that is wrong has no users, and is not told as such
        if not change_access_file(file, lambda clients: removed(clients, name)):
            say_empty(f"{file} has no user {name}")
            return Exit.NOTHING_FOUND
    return Exit.FOUND


def import_users(
    *,
    file: File,
    broker: Annotated[
        str, typer.Option("--broker", metavar="HOST:PORT", help="A broker of RocketMQ 5 that has the users.")
    ] = "",
    access_key: AccessKey = "",
    secret_file: SecretFile = None,
    plain_acl: Annotated[
        pathlib.Path | None,
        typer.Option("--plain-acl", metavar="FILE", help="The plain_acl.yml of a broker of RocketMQ 4 that has them."),
    ] = None,
) -> int:
    """Bring the users of a broker into an access file, with their secrets and rights.

    Those that have no like here are named and left out: no user has more rights than at the broker. Exit 3 when something was.
    """
    from cli.terminal import one_line
    from gateway.auth.access_file import Changes, change_access_file
    from gateway.auth.users import Clients

    if bool(broker) == (plain_acl is not None):
        usage_error("give one of --broker and --plain-acl")
    if plain_acl is not None and (access_key or secret_file is not None):
        usage_error("--access-key and --secret-file sign requests to a broker: give --broker")
    if plain_acl is not None:
        users, failures, narrower = _users_of_file(plain_acl)
    else:
        with _refusals(file):
            users, failures = _users_of_broker(broker, access_key, secret_file)
        narrower = []
    brought: dict[str, Client] = {}

    def bring(clients: Clients) -> Changes:
        taken = {key: client for client in clients for key in (client.name, *client.access_keys)}
        for name, user in users.items():
            if name not in taken:
                brought[name] = user
            elif taken[name] != user:
                failures[name] = f"{file} has another entry of this name, which stays"
        return brought

    with _refusals(file):
        change_access_file(file, bring)
    for name in brought:
        print(one_line(name))
    for name, why in failures.items():
        warn(f"{one_line(name)} is left out: {one_line(why)}")
    for what in narrower:
        warn(one_line(what))
    return Exit.PARTIAL if failures or narrower else Exit.FOUND


def _users_of_file(path: pathlib.Path) -> tuple[dict[str, "Client"], dict[str, str], list[str]]:
    """The users of a plain_acl.yml, why others are left out, and what its clients lose."""
    from gateway.auth.plain_acl import read_plain_acl

    try:
        read = read_plain_acl(path.read_bytes())
    except ImportError:
        usage_error("--plain-acl reads YAML: pip install 'reput[plain-acl]'")
    except OSError as error:
        usage_error(f"{path} cannot be read: {error.strerror}")
    except ValueError as error:
        usage_error(f"{path} cannot be read: {error}")
    return read.clients, read.left_out, read.narrower


def _users_of_broker(
    address: str, access_key: str, secret_file: pathlib.Path | None
) -> tuple[dict[str, "Client"], dict[str, str]]:
    """The users of a broker of RocketMQ 5, and why others are left out."""
    from gateway.auth.users import SUPER, Row, name_of, new_user, with_policies
    from services.rocketmq.codes import RequestCode
    from services.rocketmq.command import OK
    from store.errors import InvalidArgumentError

    asked = open_broker(address, access_key, secret_file)

    def ask(code: int) -> list[Mapping[str, Any]]:
        answer = asked.ask(code)
        if answer.code != OK:
            usage_error(f"the broker at {address} refused request {code}: {answer.remark or answer.code}")
        return list(json.loads(answer.body)) if answer.body else []

    acl_rows, user_rows = ask(RequestCode.AUTH_LIST_ACL), ask(RequestCode.AUTH_LIST_USER)
    failures: dict[str, str] = {}
    acls: dict[str, Row] = {}
    for row in acl_rows:
        subject = str(row.get("subject"))
        try:
            acls[name_of(subject)] = row
        except InvalidArgumentError as error:
            failures[subject] = error.message
    users: dict[str, Client] = {}
    for row in user_rows:
        name, kind = str(row.get("username")), str(row.get("userType") or "")
        try:
            user = new_user(name, str(row.get("password") or ""), kind, str(row.get("userStatus") or ""))
            is_super = kind.lower() == SUPER.lower()
            users[name] = user if is_super or name not in acls else with_policies(user, acls[name])
        except InvalidArgumentError as error:
            failures[name] = error.message
    return users, failures


@contextlib.contextmanager
def _refusals(file: pathlib.Path) -> Iterator[None]:
    """Inside the block, what a file cannot take is a usage error, without its secrets."""
    from gateway.auth.users import why
    from store.errors import StoreError

    try:
        yield
    except StoreError as error:
        raise store_failure(error) from error
    except (OSError, ValueError) as error:
        usage_error(f"{file} cannot be used: {why(error)}")
