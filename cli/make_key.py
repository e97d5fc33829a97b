"""`reput make-key`: an API key or an access key for a client of a gateway whose clients sign in (docs/security.md)."""

import pathlib
from typing import Annotated

import typer

from cli.exits import Exit, store_failure, usage_error, warn

PATTERN_CHARACTERS = frozenset("%|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_*-")
ACCESS_KEY_BYTES, SECRET_BYTES = 8, 32


def make_key(
    *,
    name: Annotated[str, typer.Argument(help="Name of the client, for the audit log.")],
    read: Annotated[
        list[str] | None, typer.Option("--read", help="Topics that it may read; `*`: any characters.")
    ] = None,
    write: Annotated[list[str] | None, typer.Option("--write", help="Topics that it may append to.")] = None,
    admin: Annotated[list[str] | None, typer.Option("--admin", help="Topics for which it has all rights.")] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Groups that it may consume for; without it, every group.")
    ] = None,
    access_key: Annotated[
        bool, typer.Option("--access-key", help="An access key and its secret, for RocketMQ's clients, which sign.")
    ] = False,
    file: Annotated[
        pathlib.Path | None,
        typer.Option("--file", help="Access file to add the client to; without it the entry is printed."),
    ] = None,
) -> int:
    """Make an API key: prints the key on stdout, once, and its hash and rights for the access file.

    The key itself is not stored. To replace a key, add the hash of the new one beside that of the old one. With --access-key
    it prints an access key and its secret, separated by a blank; the file has both.
    """
    import secrets

    from gateway.auth.access_file import Client, change_access_file, check_name, entry_text, hash_key
    from gateway.auth.access_file import make_key as new_key
    from gateway.auth.users import added, why
    from store.errors import StoreError

    try:
        check_name(name)
    except ValueError as error:
        usage_error(str(error))
    for pattern in (*(read or ()), *(write or ()), *(admin or ()), *(group or ())):
        if not pattern or set(pattern) - PATTERN_CHARACTERS:
            usage_error(f"{pattern!r} is not a topic pattern: use the characters of topic names, and `*`")
    client = Client(name=name, read=read or [], write=write or [], admin=admin or [], groups=group or None)
    if access_key:
        key, secret = secrets.token_hex(ACCESS_KEY_BYTES), secrets.token_urlsafe(SECRET_BYTES)
        shown, client = f"{key} {secret}", client.model_copy(update={"access_keys": {key: secret}})
    else:
        shown = new_key(secrets.token_bytes)
        client = client.model_copy(update={"api_key_sha256": [hash_key(shown)]})
    if file is None:
        warn(f"for the access file:\n{entry_text(client)}")
    else:
        try:
            change_access_file(file, lambda clients: added(clients, client))
        except StoreError as error:
            raise store_failure(error) from error
        except (OSError, ValueError) as error:
            usage_error(f"{file} cannot be used: {why(error)}")
    print(shown)
    return Exit.FOUND
