"""`reput user`: the users of RocketMQ's clients in an access file, and those of a broker brought there (ADR 0144)."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from cli.exits import Exit, say_empty, store_failure, usage_error, warn
from cli.make_key import SECRET_BYTES

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
    from gateway.auth.users import NORMAL, SUPER, added, new_user

    rights = {"read": read or [], "write": write or [], "admin": admin or [], "groups": group or []}
    if super_user and any(rights.values()):
        usage_error("a super user may do everything: leave the other rights out")
    secret = _secret_in(secret_file) if secret_file else secrets.token_urlsafe(SECRET_BYTES)
    with _refusals(file):
        user = new_user(name, secret, SUPER if super_user else NORMAL)
        if not super_user:
            user = type(user)(**user.model_dump() | rights)
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
    broker: Annotated[str, typer.Option("--broker", help="A broker of RocketMQ 5 that has the users: HOST:PORT.")],
    access_key: Annotated[str, typer.Option("--access-key", help="A super user of the broker.")] = "",
    secret_file: Annotated[pathlib.Path | None, typer.Option("--secret-file", help="File of its secret.")] = None,
) -> int:
    """Bring the users and policies of a broker into an access file; those that have no like here are named and left out."""
    from cli.terminal import one_line
    from gateway.auth.access_file import Changes, Client, change_access_file
    from gateway.auth.users import SUPER, Clients, Row, name_of, new_user, with_policies
    from services.rocketmq.codes import RequestCode
    from store.errors import InvalidArgumentError

    with _refusals(file):
        ask = _asking(broker, access_key, _secret_in(secret_file) if secret_file else "")
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
        print(name)
    for name, why in failures.items():
        warn(f"{one_line(name)} is left out: {one_line(why)}")
    return Exit.PARTIAL if failures else Exit.FOUND


def _asking(address: str, access_key: str, secret: str) -> Callable[[int], list[Mapping[str, Any]]]:
    from services.rocketmq.address import parse_address
    from services.rocketmq.command import OK
    from services.rocketmq.remoting import Broker
    from services.rocketmq.signature import sign

    parsed = parse_address(address)
    broker = Broker(parsed, lambda command: sign(command, access_key, secret.encode()) if access_key else command)

    def ask(code: int) -> list[Mapping[str, Any]]:
        answer = broker.ask(code)
        if answer.code != OK:
            usage_error(f"the broker at {parsed} refused request {code}: {answer.remark or answer.code}")
        return list(json.loads(answer.body)) if answer.body else []

    return ask


def _secret_in(path: pathlib.Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        usage_error(f"the secret cannot be read from {path}: {error}")


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
