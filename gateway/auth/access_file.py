"""The access file: the clients, their credentials and their rights.

    [[clients]]
    name = "orders-service"                     # for the audit log and for errors
    api_key_sha256 = ["9f86d0..."]              # of its API keys (`reput make-key` prints one); two while one is exchanged
    jwt_subjects = ["orders@example.com"]       # `sub` of its JWTs
    jwt_groups = ["orders-team"]                # one of `groups` of its JWTs
    certificates = ["spiffe://shop/orders"]     # names in the SAN of its client certificate
    access_keys = {orders-key = "..."}          # of RocketMQ's clients: access key and its secret; two while one is exchanged
    read = ["orders-*"]                         # topic patterns: see access.py
    write = ["orders-*"]
    admin = []
    groups = ["orders-*"]                       # patterns of consumer groups; left out: every group

An API key has 256 random bits, so its plain SHA-256 does not reveal it, and neither a salt nor a slow hash is needed. The
secret of an access key signs requests (services/rocketmq/signature.py), so the file has it as it is: let only the gateway's
user read such a file. The file is checked for changes regularly and read as a whole: when a new version is not valid, the log
says why and the previous version stays in force.

An API key is `reput_` and 256 random bits in base64url; services keep the SHA-256.
"""

import base64
import fcntl
import hashlib
import json
import os
import re
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import pydantic
import structlog

from gateway.auth.access import Access, Role
from store.errors import InvalidSettingError

LOOK_SECONDS = 1.0
# Combined rights of JWTs that are cached, as many as JWTs, whose texts are bounded in jwt_tokens.py.
ACCESS_COUNT_MAX = 4_096
# A file larger than this is a mistake: 10,000 clients of 400 bytes.
FILE_BYTES_MAX = 4 * 1024 * 1024
KEY_HASH_PATTERN = r"^[0-9a-f]{64}$"
PATTERN_PATTERN = r"^[%|a-zA-Z0-9_*-]{1,255}$"  # of RocketMQ's topic names, and `*`

_log = structlog.get_logger("reput.gateway")

Parsed = TypeVar("Parsed")
Patterns = list[Annotated[str, pydantic.Field(pattern=PATTERN_PATTERN)]]
Hashes = list[Annotated[str, pydantic.Field(pattern=KEY_HASH_PATTERN)]]
# RocketMQ 5 takes names and passwords of any length but 0; 4.x wants more than 6 characters.
KEY_CHARACTERS_MAX = 128
KeyText = Annotated[str, pydantic.Field(min_length=1, max_length=KEY_CHARACTERS_MAX)]


class Client(pydantic.BaseModel):
    """An entry of the file; see above."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = pydantic.Field(min_length=1, max_length=128)
    api_key_sha256: Hashes = []
    jwt_subjects: list[str] = []
    jwt_groups: list[str] = []
    certificates: list[str] = []
    access_keys: dict[KeyText, KeyText] = {}
    read: Patterns = []
    write: Patterns = []
    admin: Patterns = []
    groups: Patterns | None = None


class _File(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    clients: list[Client] = []


class AccessFile:
    """The clients of one version of the file.

    Attributes:
        by_key_hash, by_subject, by_group, by_certificate, by_access_key: rights by credential.
        secrets: by access key.
        clients: the entries, in the order of the file.
        by_claims: rights by a JWT's subject and groups; None when the file has none of them.
    """

    def __init__(self, clients: list[Client]) -> None:
        self.by_key_hash: dict[str, Access] = {}
        self.by_subject: dict[str, Access] = {}
        self.by_group: dict[str, Access] = {}
        self.by_certificate: dict[str, Access] = {}
        self.by_access_key: dict[str, Access] = {}
        self.secrets: dict[str, bytes] = {}
        self.clients = tuple(clients)
        # The cache lives as long as this version of the file.
        self.by_claims = lru_cache(ACCESS_COUNT_MAX)(self._by_claims)
        for client in clients:
            access = Access(client.name, {role: getattr(client, role.value) for role in Role}, client.groups)
            self.secrets |= {key: secret.encode() for key, secret in client.access_keys.items()}
            of_kinds: tuple[tuple[dict[str, Access], Iterable[str]], ...] = (
                (self.by_key_hash, client.api_key_sha256),
                (self.by_subject, client.jwt_subjects),
                (self.by_group, client.jwt_groups),
                (self.by_certificate, client.certificates),
                (self.by_access_key, client.access_keys),
            )
            for shown, texts in of_kinds:
                for text in texts:
                    if shown.setdefault(text, access) is not access:
                        raise ValueError(f"clients {shown[text].name!r} and {client.name!r} have the same credential")
        names = [client.name for client in clients]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two clients have the name {twice!r}")

    def _by_claims(self, subject: str, groups: tuple[str, ...]) -> Access | None:
        """The combined rights of a JWT's subject and groups; None when the file has none of them."""
        access = self.by_subject.get(subject)
        for group in groups:
            of_group = self.by_group.get(group)
            if of_group is not None:
                access = of_group if access is None else access.and_also(of_group)
        if access is None or access.name == subject:
            return access
        return Access(f"{access.name} ({subject})", access.patterns, access.groups)


def parse_access_file(data: bytes) -> AccessFile:
    """The clients of an access file.

    Raises:
        ValueError: the file is not valid; the text contains no value of it.
    """
    table: Mapping[str, Any] = tomllib.loads(data.decode("utf-8"))
    return AccessFile(_File.model_validate(table).clients)


def entry_text(client: Client) -> str:
    """An entry as the file has it."""
    lines = ["[[clients]]", f"name = {_toml(client.name)}"]
    if client.access_keys:
        pairs = (f"{_toml(key)} = {_toml(secret)}" for key, secret in client.access_keys.items())
        lines.append(f"access_keys = {{{', '.join(pairs)}}}")
    for field in ("api_key_sha256", "jwt_subjects", "jwt_groups", "certificates", "read", "write", "admin", "groups"):
        texts = getattr(client, field)
        if texts or (field == "groups" and texts is not None):
            lines.append(f"{field} = [{', '.join(map(_toml, texts))}]")
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_BEGINS_ENTRY = re.compile(r"^(?=[ \t]*\[\[[ \t]*clients[ \t]*\]\])", re.MULTILINE)
_CONTENT = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)


def with_entry(text: str, name: str, client: Client | None) -> str:
    """The text of a file with another entry for a client: replaced, else added; None: removed. All else stays as it is.

    Raises:
        ValueError: the entry cannot be replaced, because the file is not written as a list of `[[clients]]`.
    """
    wanted = [client if each.name == name else each for each in parse_access_file(text.encode()).clients]
    if client is not None and client not in wanted:
        wanted.append(client)
    parts, is_there = [], False
    for part in _BEGINS_ENTRY.split(text):
        if not is_there and _name_in(part) == name:
            is_there = True
            # Comments behind the entry are those of the next one.
            end = part.find("\n", max(match.start() for match in _CONTENT.finditer(part)))
            parts += [entry_text(client) if client is not None else "", part[end + 1 :] if end >= 0 else ""]
        else:
            parts.append(part)
    new = "".join(parts)
    if client is not None and not is_there:
        new += ("" if new.endswith("\n") or not new else "\n") + ("\n" if new else "") + entry_text(client)
    try:
        is_right = list(parse_access_file(new.encode()).clients) == [each for each in wanted if each is not None]
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise ValueError(f"the entry of {name!r} cannot be changed by a program: edit the file")
    return new


def _name_in(part: str) -> str | None:
    try:
        return str(tomllib.loads(part)["clients"][0]["name"])
    except (ValueError, LookupError, TypeError):
        return None


def change_access_file(path: Path, change: Callable[[str], str]) -> None:
    """Change a file, which may not exist, as one of several programs that do; a gateway sees all of it or nothing.

    The file keeps its mode; a new one is for its user alone.

    Raises:
        OSError: it cannot be read or written.
        ValueError: from `change`, or the changed file would not be valid.
    """
    path = path.resolve()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        mode = path.stat().st_mode if path.exists() else 0o600
        old = path.read_text("utf-8") if path.exists() else ""
        new = change(old).encode()
        if new == old.encode():
            return
        parse_access_file(new)
        if len(new) > FILE_BYTES_MAX:
            raise ValueError(f"it would have more than {FILE_BYTES_MAX} bytes")
        scratch = path.with_name(f".{path.name}.new")
        scratch.unlink(missing_ok=True)
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            os.fchmod(file.fileno(), mode & 0o7777)
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        os.close(directory)


class WatchedFile(Generic[Parsed]):
    """A file's parsed contents; `current` checks it for changes at most every LOOK_SECONDS.

    Args:
        setting: the setting that names it, for errors.
        path: the file.
        parse: may raise ValueError.
        clock: seconds, rising.

    Raises:
        InvalidSettingError: the file cannot be read or parsed.
    """

    def __init__(self, setting: str, path: Path, parse: Callable[[bytes], Parsed], clock: Callable[[], float]) -> None:
        self._setting = setting
        self.path = path
        self._parse = parse
        self._clock = clock
        self._look_seconds = clock() + LOOK_SECONDS
        self._looking = threading.Lock()
        try:
            self._stamp = self._look()
            self._parsed = self._read()
        except (OSError, ValueError) as error:
            raise InvalidSettingError(
                f"settings of gateway: {setting} = {str(path)!r} cannot be used: {error}", name=setting, source=path
            ) from error

    def current(self) -> Parsed:
        """The last valid contents."""
        now = self._clock()
        # One thread at a time: of two, the slower one could restore an older version.
        if now >= self._look_seconds and self._looking.acquire(blocking=False):
            try:
                self._look_seconds = now + LOOK_SECONDS
                self._look_again()
            finally:
                self._looking.release()
        return self._parsed

    def look_at_once(self) -> Parsed:
        """The same after a look now: for the program that has changed the file."""
        with self._looking:
            self._look_again()
        return self._parsed

    def _look_again(self) -> None:
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            try:
                self._parsed = self._read()
            except ValueError:
                self._stamp = stamp  # not read again until it changes; a missing file may appear at any time
                raise
            self._stamp = stamp
            _log.info("auth.reloaded", name=self._setting, path=str(self.path))
        except (OSError, ValueError) as error:
            _log.error("auth.reload_failed", name=self._setting, path=str(self.path), error=str(error))

    def _look(self) -> tuple[int, int, int]:
        look = self.path.stat()
        return look.st_mtime_ns, look.st_ino, look.st_size

    def _read(self) -> Parsed:
        with self.path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes")
        try:
            return self._parse(data)
        except ValueError:
            raise
        except Exception as error:  # a million brackets, a list where a text belongs: whatever a parser says
            raise ValueError(f"it cannot be parsed ({type(error).__name__})") from error


KEY_PREFIX = "reput_"
KEY_RANDOM_BYTES = 32


def make_key(random_bytes: Callable[[int], bytes]) -> str:
    """A new key, from a source of randomness for secrets (`secrets.token_bytes`)."""
    return KEY_PREFIX + base64.urlsafe_b64encode(random_bytes(KEY_RANDOM_BYTES)).rstrip(b"=").decode()


def hash_key(key: str) -> str:
    """What the access file has of a key: 64 hex digits."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
