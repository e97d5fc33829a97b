"""RocketMQ's users and policies as entries of the access file (ADR 0144).

    user of RocketMQ                        entry
    name, password                          `name`, and an access key of that name with this secret
    type Super                              admin = ["*"], every group
    type Normal                             the rights below, none at first
    Topic:X   Pub; Sub; All                 write; read; admin = ["X"]
    Group:X   Sub or All                    groups = ["X"]
    *         the same of Topic:* and Group:*

Other keys of the file are shown as users, too. Only an entry that has nothing but its own access key is changed: what stands
in another one belongs to the person that wrote it. Passwords are never answered.

What has no like here is refused by its name: disabled users, Deny, addresses, policies of the type Default, clusters,
and the actions of an administrator without All. `Get` and `List` come with Pub, Sub or All.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic

from gateway.auth.access_file import AccessFile, Changes, Client, WatchedFile, change_access_file, check_name
from store.errors import InvalidArgumentError, StoreReadOnlyError

SUPER, NORMAL = "Super", "Normal"
ENABLE = "enable"
CUSTOM, ALLOW = "Custom", "Allow"
ANY, TOPIC, GROUP = "*", "Topic:", "Group:"
PUB, SUB, ALL = "Pub", "Sub", "All"
ACTIONS = {name.lower(): name for name in (ALL, PUB, SUB, "Create", "Update", "Delete", "Get", "List")}
SHOWING = frozenset(("Get", "List"))
USER = "User:"
Row = Mapping[str, Any]
Clients = Sequence[Client]


def new_user(name: str, password: str, kind: str = NORMAL, status: str = ENABLE) -> Client:
    """The entry of a new user; InvalidArgumentError."""
    _check_status(status)
    try:
        check_name(name)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from error
    return _with_kind(_checked(name=name, access_keys={name: password}, groups=[]), kind or NORMAL)


def changed_user(client: Client, password: str = "", kind: str = "", status: str = "") -> Client:
    """The entry of a user with what is not empty; InvalidArgumentError."""
    _check_status(status)
    if password:
        client = with_fields(client, access_keys={client.name: password})
    return _with_kind(client, kind) if kind else client


def is_super(client: Client) -> bool:
    """Whether a client may do everything."""
    return ANY in client.admin and client.groups is None


def user_row(name: str, client: Client) -> Row:
    """A user as mqadmin gets it; without its password."""
    return {"userStatus": ENABLE, "userType": SUPER if is_super(client) else NORMAL, "username": name}


def acl_row(name: str, client: Client) -> Row | None:
    """The policies of a user likewise; None when it has none."""
    if is_super(client):
        return None
    actions: dict[str, list[str]] = {}
    for patterns, said in ((client.admin, ALL), (client.write, PUB), (client.read, SUB)):
        for pattern in patterns:
            if ALL not in actions.setdefault(f"{TOPIC}{pattern}", []):
                actions[f"{TOPIC}{pattern}"].append(said)
    for pattern in [ANY] if client.groups is None else client.groups:
        actions[f"{GROUP}{pattern}"] = [SUB]
    if not actions:
        return None
    entries = [
        {"actions": said, "decision": ALLOW, "resource": resource, "sourceIps": []}
        for resource, said in actions.items()
    ]
    return {"policies": [{"entries": entries, "policyType": CUSTOM}], "subject": f"{USER}{name}"}


def with_policies(client: Client, acl: Row) -> Client:
    """The entry with the policies of an `AclInfo`: each replaces that of the same resource. InvalidArgumentError."""
    if is_super(client):
        raise InvalidArgumentError(f"{client.name} is a {SUPER} user, which has all rights: make it {NORMAL} first")
    if client.groups is None:
        # Without a line `groups` it may consume for every group. With all rights for all topics it would be Super.
        client = with_fields(client, groups=[ANY])
    for policy in _list(acl.get("policies"), "policies"):
        _check_type(str(policy.get("policyType") or ""))
        for entry in _list(policy.get("entries"), "entries"):
            client = _with_policy(client, entry)
    return client


def without_policies(client: Client, resource: str = "") -> Client:
    """The entry without the policies of a resource, or without any. InvalidArgumentError."""
    if is_super(client):
        raise InvalidArgumentError(f"{client.name} is a {SUPER} user, which has no policies: make it {NORMAL}")
    if not resource:
        return with_fields(client, read=[], write=[], admin=[], groups=[])
    for kind, pattern in _parts_of(resource):
        client = _without(client, kind, pattern)
    return client


def name_of(subject: str) -> str:
    """The user that a subject names; InvalidArgumentError."""
    if not subject.startswith(USER) or subject == USER:
        raise InvalidArgumentError(f"the subject {subject!r} is no user, as `{USER}alice` is one")
    return subject.removeprefix(USER)


class Users:
    """The users of an access file; thread-safe.

    Args:
        file: the file.
    """

    def __init__(self, file: WatchedFile[AccessFile]) -> None:
        self._file = file

    def create(self, name: str, password: str, kind: str, status: str) -> None:
        """Add a user; one that is there as it is stays. InvalidArgumentError, StoreReadOnlyError."""
        client = new_user(name, password, kind, status)

        def create(clients: Clients) -> Changes:
            known = _named(clients, name)
            # mqadmin tells each shard of a cluster, and they have one file.
            if known not in (None, client) or any(each.name == name for each in clients if each != client):
                raise InvalidArgumentError(f"The user is existed: {name}")
            return {name: client}

        self._edit(name, create)

    def update(self, name: str, password: str, kind: str, status: str) -> None:
        """Give a user another password or type, where they are not empty; errors likewise."""
        self._edit(name, lambda clients: {name: changed_user(_own(clients, name), password, kind, status)})

    def delete(self, name: str) -> None:
        """Remove a user, if there is one; errors likewise."""
        self._edit(name, lambda clients: removed(clients, name))

    def row(self, name: str) -> Row | None:
        """A user; None when there is none."""
        client = _named(self._clients(), name)
        return None if client is None else user_row(name, client)

    def rows(self, wanted: str) -> list[Row]:
        """The users whose names have this text in them."""
        return [user_row(name, client) for name, client in _users(self._clients()) if wanted in name]

    def set_policies(self, subject: str, acl: Row) -> None:
        """Give a user policies; each replaces that of the same resource. Errors likewise."""
        name = name_of(subject)
        self._edit(name, lambda clients: {name: with_policies(_own(clients, name), acl)})

    def delete_policies(self, subject: str, resource: str, kind: str = "") -> None:
        """Take the policies of a resource, or all when it is empty; `kind` is their type. Errors likewise."""
        name = name_of(subject)
        _check_type(kind)
        self._edit(name, lambda clients: {name: without_policies(_own(clients, name), resource)})

    def acl(self, subject: str) -> Row | None:
        """The policies of a user; None when it has none. InvalidArgumentError when there is no such user."""
        name = name_of(subject)
        return acl_row(name, _known(self._clients(), name))

    def acls(self, subject: str, resource: str) -> list[Row]:
        """Those of users and resources whose names have these texts in them."""
        rows = (acl_row(name, client) for name, client in _users(self._clients()) if subject in f"{USER}{name}")
        return [
            row for row in rows if row is not None and any(resource in each["resource"] for each in entries_of(row))
        ]

    def _clients(self) -> Clients:
        return self._file.look_at_once().clients

    def _edit(self, name: str, edit: Callable[[Clients], Changes]) -> None:
        """Change entries; `edit` sees the clients as they are then."""
        path = self._file.path
        try:
            change_access_file(path, edit)
        except OSError as error:
            raise StoreReadOnlyError(
                f"the access file {path} cannot be written: {why(error)}; change the user {name} where the file comes from"
            ) from error
        except ValueError as error:
            raise InvalidArgumentError(f"the access file {path} is not changed: {why(error)}") from error
        self._file.look_at_once()


def _users(clients: Clients) -> list[tuple[str, Client]]:
    """Each access key with its entry."""
    return [(key, client) for client in clients for key in client.access_keys]


def _named(clients: Clients, name: str) -> Client | None:
    return dict(_users(clients)).get(name)


def _known(clients: Clients, name: str) -> Client:
    client = _named(clients, name)
    if client is None:
        raise InvalidArgumentError(f"The user is not exist: {name}")
    return client


def _own(clients: Clients, name: str) -> Client:
    """A user that is nothing besides."""
    client = _known(clients, name)
    if client.name != name or _credentials_of(client) != [name]:
        raise InvalidArgumentError(
            f"the access key {name} belongs to the client {client.name}, which has a name or credentials besides it: edit "
            f"the access file"
        )
    return client


def added(clients: Clients, client: Client) -> Changes:
    """One more entry; ValueError when its name is taken."""
    if any(each.name == client.name for each in clients):
        raise ValueError(f"two clients have the name {client.name!r}")
    return {client.name: client}


def removed(clients: Clients, name: str) -> Changes:
    """No entry for a user, which may not be there; InvalidArgumentError for an entry that is more than the user."""
    return {} if _named(clients, name) is None else {_own(clients, name).name: None}


def entries_of(row: Row) -> list[Row]:
    """The entries of all policies of a user."""
    return [entry for policy in row["policies"] for entry in policy["entries"]]


def _credentials_of(client: Client) -> list[str]:
    return [
        *client.access_keys,
        *client.api_key_sha256,
        *client.jwt_subjects,
        *client.jwt_groups,
        *client.certificates,
    ]


def _check_status(status: str) -> None:
    if status and status.lower() != ENABLE:
        raise InvalidArgumentError(f"a user of the status {status!r} is not supported: delete the user")


def _check_type(kind: str) -> None:
    if kind and kind.lower() != CUSTOM.lower():
        raise InvalidArgumentError(f"policies of the type {kind!r} are not supported: use {CUSTOM}")


def _with_kind(client: Client, kind: str) -> Client:
    if kind.lower() == SUPER.lower():
        return with_fields(client, read=[], write=[], admin=[ANY], groups=None)
    if kind.lower() != NORMAL.lower():
        raise InvalidArgumentError(f"the type of a user is {SUPER} or {NORMAL}, not {kind!r}")
    return without_policies(with_fields(client, admin=[], groups=[])) if is_super(client) else client


def _with_policy(client: Client, entry: Row) -> Client:
    resource = str(entry.get("resource") or "")
    if str(entry.get("decision") or "").lower() != ALLOW.lower():
        raise InvalidArgumentError(
            f"{resource}: the decision {entry.get('decision')!r} is not supported, {ALLOW} alone is"
        )
    if entry.get("sourceIps"):
        raise InvalidArgumentError(f"{resource}: addresses of clients are not supported: leave sourceIps out")
    said = entry.get("actions")
    actions = {ACTIONS.get(str(name).lower(), "") for name in (said if isinstance(said, list) else [])}
    if not actions & {PUB, SUB, ALL}:
        raise InvalidArgumentError(f"{resource}: the actions {said} have neither {PUB} nor {SUB} nor {ALL}")
    administers = sorted(actions - {PUB, SUB, ALL} - SHOWING)
    if administers and ALL not in actions:
        raise InvalidArgumentError(f"{resource}: the actions {administers} are part of {ALL}, and not given without it")
    parts = _parts_of(resource)
    if not actions & {SUB, ALL} and all(kind == GROUP for kind, _ in parts):
        raise InvalidArgumentError(f"{resource}: the actions {said} have neither {SUB} nor {ALL}: a group consumes")
    for kind, pattern in parts:
        client = _without(client, kind, pattern)
        if kind == GROUP:
            if actions & {SUB, ALL}:
                client = with_fields(client, groups=[*(client.groups or ()), pattern])
        elif ALL in actions:
            client = with_fields(client, admin=[*client.admin, pattern])
        else:
            for action, field in ((PUB, "write"), (SUB, "read")):
                if action in actions:
                    client = with_fields(client, **{field: [*getattr(client, field), pattern]})
    return client


def _parts_of(resource: str) -> Sequence[tuple[str, str]]:
    if resource == ANY:
        return ((TOPIC, ANY), (GROUP, ANY))
    for kind in (TOPIC, GROUP):
        if resource.lower().startswith(kind.lower()) and len(resource) > len(kind):
            return ((kind, resource[len(kind) :]),)
    raise InvalidArgumentError(f"the resource {resource!r} is not supported: name a {TOPIC}..., a {GROUP}... or {ANY}")


def _without(client: Client, kind: str, pattern: str) -> Client:
    if kind == GROUP:
        groups = [ANY] if client.groups is None else client.groups
        return with_fields(client, groups=[each for each in groups if each != pattern])
    kept = {field: [each for each in getattr(client, field) if each != pattern] for field in ("read", "write", "admin")}
    return with_fields(client, **kept)


def with_fields(client: Client, **fields: Any) -> Client:
    """The entry with other values; InvalidArgumentError."""
    return _checked(**client.model_dump() | fields)


def _checked(**fields: Any) -> Client:
    try:
        return Client(**fields)
    except ValueError as error:
        raise InvalidArgumentError(why(error)) from error


def why(error: Exception) -> str:
    """What is wrong with a file or an entry, without any value: it may be a secret."""
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    if not isinstance(error, pydantic.ValidationError):
        return str(error)
    said = error.errors(include_input=False)
    return "; ".join(f"{each['loc'][0] if each['loc'] else 'client'}: {each['msg']}" for each in said)


def _list(value: Any, name: str) -> list[Row]:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise InvalidArgumentError(f"the body has no {name}")
    return value
