"""Sign-in at a remoting door: which client sends a request, and whether it may.

    request ══ AccessKey and Signature, or the client's certificate ══▶ rights ══ RULES ══▶ the right of an RPC ══▶ handler

RULES says which RPC a request code is translated to, and so which right it needs (services/methods.py), and which fields name
its topic and its group. What stands in a body is checked by the handler with `Rights`, before it does anything. A code without
a row is denied to every client. What goes through the chain of the shard is checked there a second time, and its answers are
limited: the rights are those of the thread's caller (gateway/auth/caller_shards.py).

A group's retry topic belongs to those that may consume for the group by name (`Access.names_group`): they read it, and send to
it, as clients do with what they could not consume and could not send back. All others need the right to write to it: what is
sent there is delivered to the group as if it were a message of one of its topics.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from gateway.auth.access import ADMIN, ANY, READ, Access, Role, Roles
from gateway.auth.audit import Audit
from gateway.auth.caller_shards import VisibleTopics, work_for
from gateway.auth.client_ids import ClientIds
from gateway.auth.sign_in import SignIn
from gateway.auth.users import Users
from gateway.remoting.door import Ask, Rights, name_of, peer_of
from gateway.remoting.sends import IN_LETTERS, LETTERS
from services.methods import GATEWAY_SERVICE, MESSAGING_SERVICE, METHODS
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import OK, Command
from services.rocketmq.signature import ACCESS_KEY, SIGNATURE, signed_bytes
from services.serving.admission.shares import client_of_identity
from services.serving.identity import names_of
from services.status import code_of
from store.errors import PermissionDeniedError, StoreError, UnauthenticatedError
from store.format.topic import RETRY_PREFIX, popped_topic_of

NO_CLIENT = ""
NOBODY = VisibleTopics(Access(NO_CLIENT, {}, ()), ANY)
HOW = (
    "give the client a hook that signs, `new AclClientRPCHook(new SessionCredentials(accessKey, secretKey))` or its like "
    "(docs/security.md)"
)


class Rule(NamedTuple):
    """What a request needs.

    Attributes:
        method: the RPC whose right it needs.
        topic: the field that names its topic; empty: none does.
        group: the field that names the group that it consumes for.
        user: the field that names a user of the access file, or users. Only a client that may do everything sends such a
            request: an admin of some topics could otherwise make a user that has more.
    """

    method: str
    topic: str = ""
    group: str = ""
    user: str = ""


SEND = MESSAGING_SERVICE + "SendMessage"
PULL = GATEWAY_SERVICE + "PullMessages"
RECEIVE = MESSAGING_SERVICE + "ReceiveMessage"
ACK = MESSAGING_SERVICE + "AckMessage"
STATUS = GATEWAY_SERVICE + "GetStatus"
RUNNING_INFO = GATEWAY_SERVICE + "GetConsumerRunningInfo"
CHANGE_GROUP = GATEWAY_SERVICE + "UpdateConsumerGroup"
OF_GROUP = GATEWAY_SERVICE + "GetConsumerGroup"
SEARCH = GATEWAY_SERVICE + "SearchOffset"
LIST_TOPICS = GATEWAY_SERVICE + "ListTopics"
LIST_GROUPS = GATEWAY_SERVICE + "ListConsumerGroups"
SEND_BACK = GATEWAY_SERVICE + "SendBackMessages"
LOCK = GATEWAY_SERVICE + "LockQueues"

RULES: Mapping[int, Rule] = {
    RequestCode.SEND_MESSAGE: Rule(SEND, "topic"),
    RequestCode.SEND_MESSAGE_V2: Rule(SEND, LETTERS["topic"]),
    RequestCode.SEND_BATCH_MESSAGE: Rule(SEND, LETTERS["topic"]),
    RequestCode.SEND_REPLY_MESSAGE: Rule(SEND, "topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: Rule(SEND, LETTERS["topic"]),
    # The half message that its offset names has the topic.
    RequestCode.END_TRANSACTION: Rule(GATEWAY_SERVICE + "EndTransaction"),
    RequestCode.CONSUMER_SEND_MSG_BACK: Rule(SEND_BACK, group="group"),
    RequestCode.PULL_MESSAGE: Rule(PULL, "topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: Rule(PULL, "topic", "consumerGroup"),
    RequestCode.POP_MESSAGE: Rule(RECEIVE, "topic", "consumerGroup"),
    RequestCode.PEEK_MESSAGE: Rule(RECEIVE, "topic", "consumerGroup"),
    RequestCode.NOTIFICATION: Rule(RECEIVE, "topic", "consumerGroup"),
    RequestCode.POLLING_INFO: Rule(RECEIVE, "topic", "consumerGroup"),
    RequestCode.ACK_MESSAGE: Rule(ACK, "topic", "consumerGroup"),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Rule(
        MESSAGING_SERVICE + "ChangeInvisibleDuration", "topic", "consumerGroup"
    ),
    # The bodies of these name topics and groups.
    RequestCode.BATCH_ACK_MESSAGE: Rule(ACK),
    RequestCode.QUERY_ASSIGNMENT: Rule(MESSAGING_SERVICE + "QueryAssignment"),
    RequestCode.SET_MESSAGE_REQUEST_MODE: Rule(CHANGE_GROUP),
    RequestCode.RECALL_MESSAGE: Rule(GATEWAY_SERVICE + "RecallMessage", "topic"),
    RequestCode.QUERY_CONSUMER_OFFSET: Rule(GATEWAY_SERVICE + "GetOffsets", "topic", "consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: Rule(GATEWAY_SERVICE + "CommitOffsets", "topic", "consumerGroup"),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Rule(SEARCH, "topic"),
    RequestCode.GET_MAX_OFFSET: Rule(SEARCH, "topic"),
    RequestCode.GET_MIN_OFFSET: Rule(SEARCH, "topic"),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Rule(SEARCH, "topic"),
    RequestCode.QUERY_MESSAGE: Rule(GATEWAY_SERVICE + "QueryMessageByKey", "topic"),
    RequestCode.VIEW_MESSAGE_BY_ID: Rule(GATEWAY_SERVICE + "QueryMessageById"),
    # Its body names groups and topics.
    RequestCode.HEART_BEAT: Rule(MESSAGING_SERVICE + "Heartbeat"),
    RequestCode.UNREGISTER_CLIENT: Rule(MESSAGING_SERVICE + "NotifyClientTermination", group="consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Rule(OF_GROUP, group="consumerGroup"),
    RequestCode.LOCK_BATCH_MQ: Rule(LOCK),
    RequestCode.UNLOCK_BATCH_MQ: Rule(LOCK),
    RequestCode.CHECK_CLIENT_CONFIG: Rule(PULL),
    RequestCode.UPDATE_AND_CREATE_TOPIC: Rule(GATEWAY_SERVICE + "CreateTopic", "topic"),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Rule(GATEWAY_SERVICE + "CreateTopic"),
    RequestCode.DELETE_TOPIC_IN_BROKER: Rule(GATEWAY_SERVICE + "DeleteTopic", "topic"),
    RequestCode.GET_TOPIC_CONFIG: Rule(LIST_TOPICS, "topic"),
    RequestCode.GET_ALL_TOPIC_CONFIG: Rule(LIST_TOPICS),
    RequestCode.GET_TOPIC_STATS_INFO: Rule(SEARCH, "topic"),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Rule(LIST_TOPICS),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Rule(CHANGE_GROUP),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Rule(CHANGE_GROUP),
    RequestCode.GET_BROKER_LITE_INFO: Rule(STATUS),
    RequestCode.GET_PARENT_TOPIC_INFO: Rule(GATEWAY_SERVICE + "ListLiteTopics", "topic"),
    RequestCode.GET_LITE_TOPIC_INFO: Rule(GATEWAY_SERVICE + "ListLiteTopics", "parentTopic"),
    RequestCode.GET_LITE_CLIENT_INFO: Rule(GATEWAY_SERVICE + "ListLiteTopics", "parentTopic", "group"),
    RequestCode.GET_LITE_GROUP_INFO: Rule(OF_GROUP, group="group"),
    RequestCode.TRIGGER_LITE_DISPATCH: Rule(CHANGE_GROUP, group="group"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Rule(LIST_GROUPS, group="group"),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Rule(LIST_GROUPS),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Rule(GATEWAY_SERVICE + "DeleteConsumerGroup", group="groupName"),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Rule(OF_GROUP, group="consumerGroup"),
    RequestCode.GET_CONSUME_STATS: Rule(OF_GROUP, "topic", "consumerGroup"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: Rule(OF_GROUP, "topic", "group"),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Rule(LIST_GROUPS, "topic"),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: Rule(OF_GROUP, group="group"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Rule(OF_GROUP, "topic", "group"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Rule(GATEWAY_SERVICE + "ResetOffsets", "topic", "group"),
    # The chain checks the group that the positions are of, too.
    RequestCode.CLONE_GROUP_OFFSET: Rule(GATEWAY_SERVICE + "ResetOffsets", "topic", "destGroup"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Rule(OF_GROUP, "topic", "group"),
    RequestCode.QUERY_CONSUME_QUEUE: Rule(SEARCH, "topic", "consumerGroup"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: Rule(RUNNING_INFO, group="consumerGroup"),
    # No RPC has a member work: an operator may.
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Rule(STATUS, group="consumerGroup"),
    RequestCode.GET_BROKER_CONSUME_STATS: Rule(STATUS),
    RequestCode.GET_BROKER_CONFIG: Rule(STATUS),
    RequestCode.UPDATE_BROKER_CONFIG: Rule(STATUS),
    RequestCode.GET_BROKER_RUNTIME_INFO: Rule(STATUS),
    RequestCode.GET_BROKER_HA_STATUS: Rule(STATUS),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Rule(STATUS),
    RequestCode.GET_ALL_PRODUCER_INFO: Rule(STATUS),
    RequestCode.VIEW_BROKER_STATS_DATA: Rule(STATUS),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Rule(STATUS),
    RequestCode.CLEAN_UNUSED_TOPIC: Rule(STATUS),
    RequestCode.DELETE_EXPIRED_COMMITLOG: Rule(STATUS),
    RequestCode.AUTH_CREATE_USER: Rule(STATUS, user="username"),
    RequestCode.AUTH_UPDATE_USER: Rule(STATUS, user="username"),
    RequestCode.AUTH_DELETE_USER: Rule(STATUS, user="username"),
    RequestCode.AUTH_GET_USER: Rule(STATUS, user="username"),
    RequestCode.AUTH_LIST_USER: Rule(STATUS, user="filter"),
    RequestCode.AUTH_CREATE_ACL: Rule(STATUS, user="subject"),
    RequestCode.AUTH_UPDATE_ACL: Rule(STATUS, user="subject"),
    RequestCode.AUTH_DELETE_ACL: Rule(STATUS, user="subject"),
    RequestCode.AUTH_GET_ACL: Rule(STATUS, user="subject"),
    RequestCode.AUTH_LIST_ACL: Rule(STATUS, user="subjectFilter"),
}
SHOWING_USERS = frozenset(
    (
        *(RequestCode.AUTH_GET_USER, RequestCode.AUTH_LIST_USER),
        *(RequestCode.AUTH_GET_ACL, RequestCode.AUTH_LIST_ACL),
    )
)
# What a member sends to its group's retry topic is as if it had been sent back.
RETRIES = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
# A message that was popped may lie in the retry topic of its group and topic: a client that may pop the topic has it.
OF_POPPED = frozenset((RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME))


def rule_of(command: Command, access: Access) -> Rule | None:
    """What a request of a client needs; None when no client may send it."""
    rule = RULES.get(command.code)
    if rule is not None and command.code in RETRIES:
        topic = command.fields.get(rule.topic, "")
        if topic.startswith(RETRY_PREFIX) and access.names_group(topic.removeprefix(RETRY_PREFIX)):
            return rule._replace(method=SEND_BACK)
    return rule


class DoorGuard:
    """Finds the rights of requests.

    Args:
        sign_in: finds those of a credential.
        audit: writes the audit log.
        client_ids: whose each client id is, also over gRPC.
    """

    def __init__(self, sign_in: SignIn, audit: Audit, client_ids: ClientIds) -> None:
        self.sign_in = sign_in
        self.audit = audit
        self.client_ids = client_ids
        self.users = Users(sign_in.clients)

    def rights_of(self, ask: Ask) -> "SignedRights":
        """Those of a request, before anything is checked."""
        return SignedRights(self, ask)


class SignedRights(Rights):
    """The rights of one request; see Rights."""

    __slots__ = ("_appended", "_ask", "_door", "_method", "_visible")

    def __init__(self, door: DoorGuard, ask: Ask) -> None:
        self._door = door
        self._ask = ask
        code = ask.command.code
        self._method = f"remoting/{name_of(code) or code}"
        self._visible = NOBODY
        self._appended: tuple[str, int] | None = None

    @property
    def access(self) -> Access:
        """See Rights."""
        return self._visible.access

    def sign_in(self) -> None:
        """See Rights."""
        command = self._ask.command
        if ACCESS_KEY in command.fields or SIGNATURE in command.fields:
            key, signature = command.fields.get(ACCESS_KEY, ""), command.fields.get(SIGNATURE, "")
            access: Access | None = self._door.sign_in.access_by_signature(key, signature, signed_bytes(command))
        else:
            pem = self._ask.connection.certificate
            access = self._door.sign_in.access_by_certificate(names_of(pem)) if pem is not None else None
        if access is None:
            raise UnauthenticatedError(f"the request is not signed: {HOW}")
        self._visible = VisibleTopics(access.as_member, ANY)
        self._ask.caller = client_of_identity(access.name)  # as over gRPC: one share, however many connections it has

    def check(self) -> None:
        """See Rights."""
        command = self._ask.command
        access, peer = self.access, peer_of(self._ask.connection)
        rule = rule_of(command, access)
        if rule is None:
            raise PermissionDeniedError(f"no client may send the request {command.code}: it has no row in RULES")
        roles = _roles_of(rule.method)
        self._visible = VisibleTopics(access, roles, lambda: self._door.audit.hidden(access.name, peer, self._method))
        if not access.has(roles):
            raise self._visible.refusal("any topic")
        topic, group = command.fields.get(rule.topic, ""), command.fields.get(rule.group, "")
        if command.code in OF_POPPED:
            topic = popped_topic_of(group, topic)
        if topic:
            self.check_topic(topic)
        if group:
            self.check_group(group)
        if rule.user:
            self._check_users()
        if roles == ADMIN:
            user = command.fields.get(rule.user, "")
            self._door.audit.admin(access.name, peer, self._method, topic, group, user)

    def _check_users(self) -> None:
        if not self.access.may_do_everything:
            raise self._visible.refusal("every topic and group, as is needed for users")
        if self._ask.command.code not in SHOWING_USERS and not self._ask.connection.is_private:
            raise PermissionDeniedError(
                "users are changed over TLS or a loopback address only: what is read on its way has passwords, and could be "
                "sent again as another request. Use TLS (mqadmin: JAVA_OPT=-Dtls.enable=true), or "
                "`reput user` where the access file is (docs/security.md)"
            )

    def sees(self, topic: str) -> bool:
        """See Rights."""
        return self._visible.holds(topic)

    def check_topic(self, topic: str) -> None:
        """See Rights."""
        self._visible.check(topic)

    def check_read(self, topic: str) -> None:
        """See Rights."""
        replace(self._visible, roles=READ).check(topic)

    def allows_group(self, group: str) -> bool:
        """See Rights."""
        return self.access.allows_group(group)

    def check_group(self, group: str) -> None:
        """See Rights."""
        self._visible.check_group(group)

    def check_change(self, group: str) -> None:
        """See Rights."""
        changing = replace(self._visible, roles=_roles_of(CHANGE_GROUP))
        changing.check_group(group)
        if not self.access.has(changing.roles):
            raise changing.refusal(f"consumer group {group!r}", group=group)
        self._door.audit.admin(self.access.name, peer_of(self._ask.connection), self._method, group=group)

    def users(self) -> Users:
        """See Rights."""
        return self._door.users

    def claim(self, client_id: str) -> None:
        """See Rights."""
        self._door.client_ids.claim(client_id, self.access.name)

    def release(self, client_id: str) -> None:
        """See Rights."""
        self._door.client_ids.release(client_id, self.access.name)

    def working(self) -> AbstractContextManager[None]:
        """See Rights."""
        return work_for(self._visible)

    def appends(self, topic: str, message_count: int) -> None:
        """See Rights."""
        self._appended = topic, message_count

    def answered(self, code: int) -> None:
        """See Rights."""
        appended, self._appended = self._appended, None
        if appended is not None:
            topic, count = appended
            self._door.audit.appended(self.access.name, self._method, {topic: count}, _name_of_answer(code))

    def refused(self, error: StoreError) -> None:
        """See Rights."""
        if isinstance(error, (UnauthenticatedError, PermissionDeniedError)):
            self._door.audit.denied(
                self.access.name,
                peer_of(self._ask.connection),
                self._method,
                error.metadata.get("topic", ""),
                code_of(error).name,
            )


@lru_cache
def _roles_of(method: str) -> Roles:
    allowed = METHODS[method].roles or frozenset()
    return frozenset(role for role in Role if role.value in allowed)


def _name_of_answer(code: int) -> str:
    try:
        return "OK" if code == OK else ResponseCode(code).name
    except ValueError:
        return str(code)


assert RULES.keys() >= IN_LETTERS
