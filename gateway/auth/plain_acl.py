"""The accounts of RocketMQ 4.x (`conf/plain_acl.yml`, and the files of `conf/acl`) as entries of the access file.

    account of plain_acl.yml                entry
    accessKey, secretKey                    `name`, and an access key of that name with this secret
    admin: true                             admin = ["*"], every group
    topicPerms   T=PUB; T=SUB               write = ["T"]; read = ["T"]
    groupPerms   G=SUB                      groups = ["G"], which opens the retry topic of G
    defaultTopicPerm   PUB; SUB             write = ["*"]; read = ["*"]
    defaultGroupPerm   SUB                  groups = ["*"], and read and write of `%RETRY%*`

No entry has more rights than the account. Rights of an entry are added up, so an account is left out, by its name, when a topic
or group has fewer rights than the default, or when it is an administrator with rights of its own. `*` stands for the retry
topics of all groups, too, so a default for topics needs SUB as the default for groups. PUB of a group gave nothing, and is
nothing here. Addresses that need not sign have no like here: they sign.

Sources: `PlainPermissionManager`, `PlainPermissionChecker`, `Permission` of RocketMQ 4.9.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.auth.access_file import Client
from gateway.auth.users import SUPER, new_user, with_fields
from store.errors import InvalidArgumentError
from store.format.topic import RETRY_PREFIX

PUB, SUB, NOTHING = frozenset({"write"}), frozenset({"read"}), frozenset[str]()
# Every other text denies, as in `Permission.parsePermFromString`.
PERMS = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
TRUE, FALSE = frozenset(("true", "yes", "on")), frozenset(("false", "no", "off", "null", "~", ""))
NULL = ("", "~", "null", "Null", "NULL")
KNOWN = frozenset(
    (
        *("accessKey", "secretKey", "whiteRemoteAddress", "admin"),
        *("defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms"),
    )
)
# `ACCESS_KEY_MIN_LENGTH` and `SECRET_KEY_MIN_LENGTH`: a broker does not load a file with one that is not longer.
REFUSED_LENGTH_MAX = 6
YAML_TEXT, YAML_NUMBER = "tag:yaml.org,2002:str", "tag:yaml.org,2002:int"
_NUMBER = re.compile("[1-9][0-9]*")
# What `String.trim` takes away; a blank of Unicode stays, and makes another name, or a right that denies.
TRIMMED = "".join(map(chr, range(0x21)))
# A topic or group. Here `*` would stand for any characters; there it is one.
_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")


@dataclass(slots=True)
class PlainAcl:
    """What a file has.

    Attributes:
        clients: the entries, by access key.
        left_out: why an account has none, by access key or number.
        narrower: what accounts, or everybody, could do by the file and cannot do here.
    """

    clients: dict[str, Client] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    narrower: list[str] = field(default_factory=list)


def read_plain_acl(data: bytes) -> PlainAcl:
    """The accounts of a file.

    Raises:
        ValueError: it is no such file; the text contains no value of it.
        ImportError: the YAML library is missing.
    """
    import yaml

    try:
        # Every value as the text that stands there; `<<` merges nothing, and no tag makes a value of another kind.
        table = yaml.BaseLoader(data).get_single_data()
        root = yaml.compose(
            data, yaml.SafeLoader
        )  # with what YAML takes a value for: `secretKey: 12345678` has no quotes
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # "\\UFFFFFFFF" is no character
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"it is no YAML{where}") from None  # its text has a part of the file
    accounts = table.get("accounts", "") if isinstance(table, dict) else None
    if isinstance(accounts, str) and accounts in NULL:
        accounts = []
    if not isinstance(accounts, list):
        raise ValueError("it has no list `accounts`")
    found = PlainAcl()
    if _texts(table.get("globalWhiteRemoteAddresses", ""), "globalWhiteRemoteAddresses"):
        found.narrower.append("globalWhiteRemoteAddresses: clients of these addresses sign in here, as all others")
    for number, account in enumerate(accounts, 1):
        name = account.get("accessKey", "") if isinstance(account, dict) else ""
        shown = name if isinstance(name, str) and name not in NULL else f"account {number}"
        if shown in found.clients or shown in found.left_out:
            found.clients.pop(shown, None)
            found.left_out[shown] = "two accounts have this access key"
            continue
        try:
            client = _client_of(account, _member(root, "accounts").value[number - 1])
            has_addresses = bool(_text(account, "whiteRemoteAddress"))
        except ValueError as error:
            found.left_out[shown] = str(error)
        except InvalidArgumentError as error:
            found.left_out[shown] = error.message
        else:
            found.clients[shown] = client
            if has_addresses:
                found.narrower.append(
                    f"{shown}: whiteRemoteAddress: clients of these addresses sign here, as all others"
                )
    return found


def _member(node: Any, name: str) -> Any:
    """The value of a mapping's last member of this name, as a node of YAML."""
    return next(value for key, value in reversed(node.value) if key.value == name)


def _client_of(account: Any, node: Any) -> Client:
    """The entry of an account; ValueError, InvalidArgumentError."""
    if not isinstance(account, dict):
        raise ValueError("it is no account with fields")
    unknown = sorted(str(name) for name, value in account.items() if name not in KNOWN and value not in NULL)
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: not supported")
    key, secret = (_credential(account, node, name) for name in ("accessKey", "secretKey"))
    admin = _text(account, "admin").lower()
    if admin not in TRUE | FALSE:
        raise ValueError("admin is neither true nor false")
    topic_perms, group_perms = _perms(account, "topicPerms"), _perms(account, "groupPerms")
    if admin in TRUE:
        if topic_perms or group_perms:
            raise ValueError("topicPerms and groupPerms limit what an administrator sends and consumes: not supported")
        return new_user(key, secret, SUPER)
    # As RocketMQ keeps them: a group is its retry topic.
    perms = {f"{RETRY_PREFIX}{name}": perm for name, perm in group_perms.items()} | topic_perms
    groups = {name.removeprefix(RETRY_PREFIX): perm for name, perm in perms.items() if name.startswith(RETRY_PREFIX)}
    topics = {name: perm for name, perm in perms.items() if not name.startswith(RETRY_PREFIX)}
    of_topics = PERMS.get(_text(account, "defaultTopicPerm").strip(TRIMMED), NOTHING)
    of_groups = PERMS.get(_text(account, "defaultGroupPerm").strip(TRIMMED), NOTHING) & SUB
    for kind, named, default in (("topic", topics, of_topics), ("group", groups, of_groups)):
        fewer = sorted(name for name, perm in named.items() if default - perm)
        if fewer:
            raise ValueError(f"the {kind} {fewer[0]} has fewer rights than the default: not supported, name the others")
    if of_topics and not of_groups:
        raise ValueError(
            "defaultTopicPerm stands for every topic, and `*` here for the retry topics of all groups, too, which "
            "defaultGroupPerm denies: name the topics"
        )
    rights: dict[str, list[str]] = {}
    for field_name in ("read", "write"):
        some = sorted(name for name, perm in topics.items() if field_name in perm - of_topics)
        rights[field_name] = [
            *(["*"] if field_name in of_topics else []),
            *([f"{RETRY_PREFIX}*"] if of_groups and field_name not in of_topics else []),
            *some,
        ]
    named_groups = sorted(name for name, perm in groups.items() if perm >= SUB)
    return with_fields(new_user(key, secret), **rights, groups=["*"] if of_groups else named_groups)


def _credential(account: Mapping[str, Any], node: Any, name: str) -> str:
    text = _text(account, name)
    if not text:
        raise ValueError(f"it has no {name}")
    kind = _member(node, name).tag
    if kind != YAML_TEXT and not (kind == YAML_NUMBER and _NUMBER.fullmatch(text)):  # 01234567, 12_34, yes
        raise ValueError(
            f"releases of RocketMQ read the {name} differently: put it into quotes as your broker reads it"
        )
    if len(text) <= REFUSED_LENGTH_MAX:
        raise ValueError(f"RocketMQ 4 refuses a file with a {name} of {REFUSED_LENGTH_MAX} characters or fewer")
    return text


def _perms(account: Mapping[str, Any], name: str) -> dict[str, frozenset[str]]:
    perms = {}
    for row in _texts(account.get(name, ""), name):
        parts = [part.strip(TRIMMED) for part in row.split("=") if part]
        if len(parts) != 2:
            raise ValueError(f"{name} has a line that is no name and right, as `orders=PUB|SUB` is one")
        if not _NAME.fullmatch(parts[0]):
            raise ValueError(f"{name} has the name {parts[0]!r}, which is none of a topic or group")
        perms[parts[0]] = PERMS.get(parts[1], NOTHING)
    return perms


def _text(account: Mapping[str, Any], name: str) -> str:
    value = account.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return "" if value in NULL else value


def _texts(value: Any, name: str) -> list[str]:
    if isinstance(value, str) and value in NULL:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} is no list of texts")
    return value
