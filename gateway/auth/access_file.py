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
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import pydantic
import structlog

from gateway.auth.access import Access, Role
from store.errors import InvalidSettingError, ResourceBusyError

LOOK_SECONDS = 1.0
# Combined rights of JWTs that are cached, as many as JWTs, whose texts are bounded in jwt_tokens.py.
ACCESS_COUNT_MAX = 4_096
# A file larger than this is a mistake: 10,000 clients of 400 bytes.
FILE_BYTES_MAX = 4 * 1024 * 1024
# A change waits as long for another one: mqadmin waits 5 s for its answer.
LOCK_SECONDS_MAX = 3.0
LOCK_RETRY_SECONDS = 0.05
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

    name: KeyText
    api_key_sha256: Hashes = []
    jwt_subjects: list[str] = []
    jwt_groups: list[str] = []
    certificates: list[str] = []
    access_keys: dict[KeyText, KeyText] = {}
    read: Patterns = []
    write: Patterns = []
    admin: Patterns = []
    groups: Patterns | None = None


# Entries by name; None: none.
Changes = Mapping[str, Client | None]


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
    try:
        table: Mapping[str, Any] = tomllib.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    return AccessFile(_File.model_validate(table).clients)


def check_name(name: str) -> None:
    """ValueError for a name that a new entry may not have."""
    if not (0 < len(name) <= KEY_CHARACTERS_MAX and name.isprintable()):
        raise ValueError(
            f"the name {name!r} cannot be used: 1 to {KEY_CHARACTERS_MAX} printable characters are possible"
        )


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
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML allows it in JSON's form only


_BEGINS_ENTRY = re.compile(r"^(?=[ \t]*\[\[[ \t]*clients[ \t]*\]\])", re.MULTILINE)
_CONTENT = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)


def with_entries(text: str, clients: Sequence[Client], changes: Changes) -> str:
    """The text of a file with other entries for some clients. Other entries, and comments outside of entries, stay as they are.

    Args:
        text: of the file.
        clients: what it has.
        changes: by the name of a client: its entry, which is replaced, else added; None: it is removed, if it is there.

    Raises:
        ValueError: the changed file would not be valid, or an entry cannot be replaced, because the file is not written as a
            list of `[[clients]]`.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    places = {client.name: number for number, client in enumerate(clients, 1)}
    parts = _BEGINS_ENTRY.split(text)  # what stands before the first entry, and each with what stands behind it
    for name in changes.keys() & places.keys():
        place = places[name]
        if len(parts) != len(clients) + 1:
            raise _not_by_program(name)
        part, client = parts[place], changes[name]
        # Comments behind the entry are those of the next one.
        end = part.find("\n", max(match.start() for match in _CONTENT.finditer(part)))
        entry = entry_text(client).replace("\n", newline) if client is not None else ""
        parts[place] = entry + (part[end + 1 :] if end >= 0 else "")
    new = "".join(parts)
    added = [client for name, client in changes.items() if name not in places and client is not None]
    for client in added:
        new += "" if new.endswith("\n") or not new else newline
        new += (newline if new else "") + entry_text(client).replace("\n", newline)
    changed = (changes.get(client.name, client) for client in clients)
    wanted = [*(client for client in changed if client is not None), *added]
    try:
        is_right = list(parse_access_file(new.encode()).clients) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise _not_by_program(next(iter(changes)))
    return new


def _not_by_program(name: str) -> ValueError:
    return ValueError(f"the entry of {name!r} cannot be changed by a program: edit the file")


def change_access_file(
    path: Path,
    edit: Callable[[Sequence[Client]], Changes],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Change a file, which may not exist, as one of several programs that do; a gateway sees all of it or nothing.

    The file keeps its mode and its owner; a new one is for its user alone. A change is on the disk when this returns.

    Args:
        path: the file. `.<name>.lock` beside it keeps programs apart, and stays.
        edit: gives the changes of the entries that are there: see `with_entries`. It may raise ValueError.
        clock, sleep: in seconds.

    Returns:
        Whether the file has changed.

    Raises:
        OSError: it cannot be read or written, or is write-protected, or its owner cannot be kept.
        ResourceBusyError: another program has been changing it for LOCK_SECONDS_MAX, or has changed it meanwhile.
        ValueError: from `edit`, or the changed file would not be valid.
    """
    path = path.resolve()
    with _locked(path, clock, sleep):
        before = path.stat() if path.exists() else None
        old = path.read_bytes().decode("utf-8") if before is not None else ""
        clients = parse_access_file(old.encode()).clients
        there = {client.name: client for client in clients}
        changes = {name: client for name, client in edit(clients).items() if there.get(name) != client}
        if not changes:
            return False
        new = with_entries(old, clients, changes).encode()
        if len(new) > FILE_BYTES_MAX:
            raise ValueError(f"it would have more than {FILE_BYTES_MAX} bytes")
        # The mode is looked at for root's sake, which may write every file.
        if before is not None and not (before.st_mode & 0o222 and os.access(path, os.W_OK)):
            raise PermissionError(errno.EACCES, "it is write-protected", str(path))
        _replace(path, new, before)
    return True


def _stamp(look: os.stat_result) -> tuple[int, int, int]:
    return look.st_mtime_ns, look.st_ino, look.st_size


@contextlib.contextmanager
def _locked(path: Path, clock: Callable[[], float], sleep: Callable[[float], None]) -> Iterator[None]:
    """A file of its own is locked: the directory could be held by every user that may read it."""
    lock = path.with_name(f".{path.name}.lock")
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd, is_new = os.open(lock, flags | os.O_CREAT | os.O_EXCL, 0o600), True
    except FileExistsError:
        fd, is_new = os.open(lock, flags), False
    try:
        if is_new and path.exists():
            _keep_owner(fd, lock, path.stat())  # else a lock that root has made would shut out the user of the file
        deadline = clock() + LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock() >= deadline:
                    raise ResourceBusyError(
                        f"another program has been changing {path} for {LOCK_SECONDS_MAX:g} s: ask again later"
                    ) from None
            sleep(LOCK_RETRY_SECONDS)
        yield
    finally:
        os.close(fd)


def _replace(path: Path, data: bytes, before: os.stat_result | None) -> None:
    """Put data in the place of a file, with its owner and mode."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    try:
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            if before is not None:
                _keep_owner(file.fileno(), path, before)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if before is not None and _stamp(path.stat()) != _stamp(before):  # by an editor, which takes no lock
            raise ResourceBusyError(f"{path} was changed by another program meanwhile: try again")
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)  # it has secrets
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _keep_owner(fd: int, path: Path, wanted: os.stat_result) -> None:
    made = os.fstat(fd)
    if (made.st_uid, made.st_gid) == (wanted.st_uid, wanted.st_gid):
        return
    try:
        os.fchown(fd, wanted.st_uid, wanted.st_gid)
    except OSError as error:
        raise PermissionError(
            errno.EPERM,
            f"it would no longer belong to user {wanted.st_uid} and group {wanted.st_gid}: change it as that user",
            str(path),
        ) from error


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
        return _stamp(self.path.stat())

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
