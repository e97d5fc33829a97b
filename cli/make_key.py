"""`reput make-key`: an API key for a client of a gateway that requires keys (docs/security.md)."""

import pathlib
from typing import Annotated

import typer

from cli.exits import Exit, usage_error, warn

PATTERN_CHARACTERS = frozenset("%|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_*-")
NAME_CHARACTERS_MAX = 128


def make_key(
    *,
    name: Annotated[str, typer.Argument(help="Name of the client, for the audit log.")],
    read: Annotated[
        list[str] | None, typer.Option("--read", help="Topics that it may read; `*`: any characters.")
    ] = None,
    write: Annotated[list[str] | None, typer.Option("--write", help="Topics that it may append to.")] = None,
    admin: Annotated[list[str] | None, typer.Option("--admin", help="Topics for which it has all rights.")] = None,
    file: Annotated[
        pathlib.Path | None,
        typer.Option("--file", help="Access file to add the client to; without it the entry is printed."),
    ] = None,
) -> int:
    """Make an API key: prints the key on stdout, once, and its hash and rights for the access file.

    The key itself is not stored. To replace a key, add the hash of the new one beside that of the old one.
    """
    import secrets

    from gateway.auth.access_file import hash_key, parse_access_file
    from gateway.auth.access_file import make_key as new_key

    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable() or '"' in name or "\\" in name:
        usage_error(f"the name {name!r} cannot be used: 1 to {NAME_CHARACTERS_MAX} characters, no quotes")
    rights = {"read": read or [], "write": write or [], "admin": admin or []}
    for patterns in rights.values():
        for pattern in patterns:
            if not pattern or set(pattern) - PATTERN_CHARACTERS:
                usage_error(f"{pattern!r} is not a topic pattern: use the characters of topic names, and `*`")
    key = new_key(secrets.token_bytes)
    lines = ["[[clients]]", f'name = "{name}"', f'api_key_sha256 = ["{hash_key(key)}"]']
    lines += [
        f"{role} = [{', '.join(f'{chr(34)}{each}{chr(34)}' for each in rights[role])}]"
        for role in rights
        if rights[role]
    ]
    entry = "\n".join(lines) + "\n"
    if file is None:
        warn(f"for the access file:\n{entry}")
    else:
        try:
            before = file.read_text("utf-8") if file.exists() else ""
            after = f"{before}\n{entry}" if before else entry
            parse_access_file(after.encode())
            _replace(file, after)
        except (OSError, ValueError) as error:
            usage_error(f"{file} cannot be used: {error}")
    print(key)
    return Exit.FOUND


def _replace(file: pathlib.Path, text: str) -> None:
    """Replace the file atomically: a gateway may be reading it."""
    scratch = file.with_name(f".{file.name}.new")
    scratch.write_text(text, "utf-8")
    if file.exists():
        scratch.chmod(file.stat().st_mode)
    scratch.replace(file)
