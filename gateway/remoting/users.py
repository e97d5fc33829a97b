"""Users (3001 to 3005) and their policies (3006 to 3010), which are entries of the access file (gateway/auth/users.py).

A client that may do everything asks, as RocketMQ's Super user. Answers have no passwords. A user that is created again as it
is was created: mqadmin tells each shard of a cluster, and the shards of a gateway have one file.

Source: `AdminBrokerProcessor` of RocketMQ 5.5.0.
"""

from collections.abc import Mapping
from typing import Any

from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread, name_in
from gateway.remoting.door_shard import DoorShard
from gateway.remoting.topics import document_of
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import dump_bytes


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    return {
        code: in_thread(answer)
        for code, answer in (
            (RequestCode.AUTH_CREATE_USER, create_user),
            (RequestCode.AUTH_UPDATE_USER, update_user),
            (RequestCode.AUTH_DELETE_USER, delete_user),
            (RequestCode.AUTH_GET_USER, get_user),
            (RequestCode.AUTH_LIST_USER, list_users),
            (RequestCode.AUTH_CREATE_ACL, set_acl),
            (RequestCode.AUTH_UPDATE_ACL, set_acl),
            (RequestCode.AUTH_DELETE_ACL, delete_acl),
            (RequestCode.AUTH_GET_ACL, get_acl),
            (RequestCode.AUTH_LIST_ACL, list_acls),
        )
    }


def _users(ask: Ask) -> Any:
    known = ask.rights.users()
    if known is None:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            "clients do not sign in here: users need REPUT_GATEWAY_AUTH=on (docs/security.md)",
        )
    return known


def _username(ask: Ask) -> str:
    name = ask.text("username", "")
    if not name.strip():
        raise RefusedError(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name


def _said_of_user(ask: Ask) -> list[str]:
    said = document_of(ask.command.body)
    fields = ("password", "userType", "userStatus")
    for field in fields:
        if not isinstance(said.get(field, ""), str | None):  # a password that is none would be no change
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"the {field} is not a text")
    return [name_in(said, field) for field in fields]


def _shown(body: Any) -> Answer:
    """Without a body when there is nothing, as a broker answers."""
    return Answer(body=dump_bytes(body)) if body else Answer()


def create_user(ask: Ask) -> Answer:
    """3001: makes a user."""
    _users(ask).create(_username(ask), *_said_of_user(ask))
    return Answer()


def update_user(ask: Ask) -> Answer:
    """3002: gives a user another password or type."""
    _users(ask).update(_username(ask), *_said_of_user(ask))
    return Answer()


def delete_user(ask: Ask) -> Answer:
    """3003: removes a user, if there is one."""
    _users(ask).delete(_username(ask))
    return Answer()


def get_user(ask: Ask) -> Answer:
    """3004: a user."""
    return _shown(_users(ask).row(_username(ask)))


def list_users(ask: Ask) -> Answer:
    """3005: the users whose names have a text in them."""
    return _shown(_users(ask).rows(ask.text("filter", "")))


def set_acl(ask: Ask) -> Answer:
    """3006, 3007: gives a user policies; each replaces that of the same resource."""
    _users(ask).set_policies(ask.text("subject"), document_of(ask.command.body))
    return Answer()


def delete_acl(ask: Ask) -> Answer:
    """3008: takes the policies of a resource, or all."""
    _users(ask).delete_policies(ask.text("subject"), ask.text("resource", ""), ask.text("policyType", ""))
    return Answer()


def get_acl(ask: Ask) -> Answer:
    """3009: the policies of a user."""
    return _shown(_users(ask).acl(ask.text("subject")))


def list_acls(ask: Ask) -> Answer:
    """3010: those of the users and resources whose names have texts in them."""
    return _shown(_users(ask).acls(ask.text("subjectFilter", ""), ask.text("resourceFilter", "")))
