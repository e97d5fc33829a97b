"""What the name server answers over remoting, by request code.

Answers are those of RocketMQ's (`DefaultRequestProcessor`, `ClientRequestProcessor`, 5.3.3 and 5.5.0), to the values of their
bodies, except where nameserver_svc/route_table.py and this list say otherwise:

- Lists of topics and brokers are sorted; RocketMQ's have the order of a hash table.
- Configuration is read (GET_NAMESRV_CONFIG) and not changed: settings belong to the process.
- What is not in `HANDLERS` gets code 3, as there.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog

from nameserver_svc.kv_config import KvConfig
from nameserver_svc.route_table import UNIT, UNIT_SUBSCRIPTION, Broker, RouteTable
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import Command
from services.rocketmq.fastjson import dump_bytes
from services.rocketmq.line_limit import LineLimit
from services.rocketmq.registration import QueueData, decode_registration, decode_version, encode_version
from services.rocketmq.remoting_server import Connection
from store.errors import StoreError

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
# MQVersion's ordinal of V4_9_4, whose clients read strict JSON.
VERSION_OF_STRICT_JSON = 401
EXPIRE_SECONDS = 5.0
# A registration of 100,000 topics takes about a second to read, which the thread of all connections has not. In order: a broker
# that ends takes out what it has registered.
REGISTRATIONS = frozenset((RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER))
# They wait for a disk, which the thread of all connections must not.
WRITES_TO_DISK = frozenset((RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG))
NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

_log = structlog.get_logger("reput.nameserver")

Answered = tuple[int, str, Mapping[str, str], bytes]


def found(body: bytes = b"", **fields: str) -> Answered:
    """An answer with code 0."""
    return ResponseCode.SUCCESS, "", fields, body


class NameServer:
    """Takes the commands of brokers and clients; a Handler of RemotingServer.

    Args:
        table: of routes.
        kv_config: of operators.
        config: as GET_NAMESRV_CONFIG shows it.
        gives_order_config: routes tell the order configuration of their topic.
    """

    def __init__(
        self, table: RouteTable, kv_config: KvConfig, config: Mapping[str, str], *, gives_order_config: bool
    ) -> None:
        self._table = table
        self._kv_config = kv_config
        self._config = dict(config)
        self._gives_order_config = gives_order_config
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="kv-config")
        self._registrations = ThreadPoolExecutor(1, thread_name_prefix="registrations")
        self._lines = LineLimit(time.monotonic)
        self._handlers: dict[int, Callable[[Command, object], Answered]] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topic_list,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_list,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_subscriptions,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._subscriptions_of_others,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._show_config,
            RequestCode.QUERY_DATA_VERSION: self._data_version,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
        }

    def on_command(self, connection: Connection, command: Command) -> None:
        """See Handler."""
        if command.code in WRITES_TO_DISK:
            self._disk.submit(self._answer, connection, command)
        elif command.code in REGISTRATIONS:
            self._registrations.submit(self._answer_registration, connection, command)
        else:
            self._answer(connection, command)

    def _answer_registration(self, connection: Connection, command: Command) -> None:
        if connection.is_closed and command.code == RequestCode.REGISTER_BROKER:
            connection.answer(command, command.answer())
            return
        self._answer(connection, command)
        if connection.is_closed:  # its end may have come before its registration
            self.on_close(connection)

    def _answer(self, connection: Connection, command: Command) -> None:
        code, remark, fields, body = self.answer(command, connection)
        connection.answer(command, command.answer(code, remark, fields, body))

    def on_close(self, connection: Connection) -> None:
        """See Handler."""
        for address in self._table.end_owner(connection):
            self._tell("broker.gone", address=address, why="its connection ended")

    def answer(self, command: Command, owner: object) -> Answered:
        """The answer to a request that came over a connection."""
        handler = self._handlers.get(command.code)
        if handler is None:
            return ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported", {}, b""
        try:
            return handler(command, owner)
        except StoreError as error:
            return ResponseCode.SYSTEM_ERROR, error.message, {}, b""
        except Exception as error:  # a bug; the connection of the broker goes on, as with RocketMQ
            _log.exception("request.failed", code=command.code)
            return ResponseCode.SYSTEM_ERROR, f"the name server failed: {error!r}", {}, b""

    def close(self) -> None:
        """Finish what is being written."""
        self._registrations.shutdown(cancel_futures=True)
        self._disk.shutdown()

    def _tell(self, event: str, **fields: object) -> None:
        more = self._lines.take()
        if more is not None:
            _log.info(event, **fields, **more)

    # --- brokers

    def _register(self, command: Command, owner: object) -> Answered:
        registration = decode_registration(command.fields, command.body)
        is_new = not self._table.is_known(registration.address)
        master = self._table.register(registration, owner)
        if is_new:
            self._tell(
                "broker.registered", name=registration.name, id=registration.broker_id, address=registration.address
            )
        fields = {"haServerAddr": master.ha_address, "masterAddr": master.address}
        order = self._kv_config.values(ORDER_TOPIC_CONFIG)
        body = dump_bytes({"table": order}) if order is not None else b""
        return ResponseCode.SUCCESS, "", {name: value for name, value in fields.items() if value}, body

    def _unregister(self, command: Command, owner: object) -> Answered:
        name, address = command.fields.get("brokerName", ""), command.fields.get("brokerAddr", "")
        is_known = self._table.is_known(address)
        self._table.unregister(name, address)
        if is_known:
            self._tell("broker.gone", name=name[:80], address=address, why="it said so")
        return found()

    def _data_version(self, command: Command, owner: object) -> Answered:
        asked = decode_version(command.body)
        known = self._table.check_version(command.fields.get("brokerAddr", ""))
        return found(encode_version(known) if known else b"", changed=str(known != asked).lower())

    def _heartbeat(self, command: Command, owner: object) -> Answered:
        self._table.note_heartbeat(command.fields.get("brokerAddr", ""))
        return found()

    def _member_group(self, command: Command, owner: object) -> Answered:
        broker = self._table.broker(command.fields.get("brokerName", ""))
        group = None if broker is None else _without_acting(broker)
        return found(dump_bytes({"brokerMemberGroup": group} if group else {}))

    # --- routes

    def _route(self, command: Command, owner: object) -> Answered:
        topic = command.fields.get("topic", "")
        route = self._table.route(topic)
        if route is None:
            return ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(topic or "null"), {}, b""
        document: dict[str, object] = {
            "brokerDatas": [_as_document(broker) for broker in route.brokers],
            "filterServerTable": {address: list(servers) for address, servers in route.filter_servers.items()},
        }
        order = self._kv_config.value(ORDER_TOPIC_CONFIG, topic) if self._gives_order_config else None
        if order is not None:
            document["orderTopicConf"] = order
        document["queueDatas"] = [_queue_document(name, queues) for name, queues in route.queues.items()]
        is_strict = command.version >= VERSION_OF_STRICT_JSON or command.fields.get("acceptStandardJsonOnly") == "true"
        return found(dump_bytes(document, bare=not is_strict))

    def _cluster_info(self, command: Command, owner: object) -> Answered:
        brokers = {broker.name: _as_document(broker) for broker in self._table.brokers()}
        return found(dump_bytes({"brokerAddrTable": brokers, "clusterAddrTable": self._table.clusters()}))

    def _topic_list(self, command: Command, owner: object) -> Answered:
        return _topics(self._table.topics())

    def _topics_of_cluster(self, command: Command, owner: object) -> Answered:
        return _topics(self._table.topics_of_cluster(command.fields.get("cluster", "")))

    def _system_topics(self, command: Command, owner: object) -> Answered:
        clusters = self._table.clusters()
        names = sorted({*clusters, *(name for names in clusters.values() for name in names)})
        addresses = [address for broker in self._table.brokers() for address in broker.addresses.values()]
        return found(dump_bytes({**({"brokerAddr": addresses[0]} if addresses else {}), "topicList": names}))

    def _unit_topics(self, command: Command, owner: object) -> Answered:
        return _topics(self._table.topics_by_flag(lambda flag: bool(flag & UNIT)))

    def _unit_subscriptions(self, command: Command, owner: object) -> Answered:
        return _topics(self._table.topics_by_flag(lambda flag: bool(flag & UNIT_SUBSCRIPTION)))

    def _subscriptions_of_others(self, command: Command, owner: object) -> Answered:
        return _topics(self._table.topics_by_flag(lambda flag: flag & (UNIT | UNIT_SUBSCRIPTION) == UNIT_SUBSCRIPTION))

    def _delete_topic(self, command: Command, owner: object) -> Answered:
        self._table.delete_topic(command.fields.get("topic", ""), command.fields.get("clusterName", ""))
        return found()

    def _wipe_write_perm(self, command: Command, owner: object) -> Answered:
        return found(wipeTopicCount=str(self._set_write_perm(command, writable=False)))

    def _add_write_perm(self, command: Command, owner: object) -> Answered:
        return found(addTopicCount=str(self._set_write_perm(command, writable=True)))

    def _set_write_perm(self, command: Command, *, writable: bool) -> int:
        return self._table.set_write_perm(command.fields.get("brokerName", ""), writable=writable)

    # --- configuration

    def _put_kv(self, command: Command, owner: object) -> Answered:
        namespace, key = command.fields.get("namespace"), command.fields.get("key")
        if namespace is None or key is None:
            return ResponseCode.SYSTEM_ERROR, "namespace or key is null", {}, b""
        value = command.fields.get("value")
        if value is not None:
            self._kv_config.put(namespace, key, value)
        return found()

    def _get_kv(self, command: Command, owner: object) -> Answered:
        namespace, key = command.fields.get("namespace", "null"), command.fields.get("key", "null")
        value = self._kv_config.value(namespace, key)
        if value is None:
            return ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}", {}, b""
        return found(value=value)

    def _delete_kv(self, command: Command, owner: object) -> Answered:
        self._kv_config.delete(command.fields.get("namespace", ""), command.fields.get("key", ""))
        return found()

    def _kv_list(self, command: Command, owner: object) -> Answered:
        namespace = command.fields.get("namespace", "null")
        values = self._kv_config.values(namespace)
        if values is None:
            return ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}", {}, b""
        return found(dump_bytes({"table": values}))

    def _show_config(self, command: Command, owner: object) -> Answered:
        return found("".join(f"{name}={value}\n" for name, value in sorted(self._config.items())).encode())

    def _update_config(self, command: Command, owner: object) -> Answered:
        return (
            ResponseCode.SYSTEM_ERROR,
            "this name server is configured when it starts: set REPUT_NAMESERVER_... and start it again",
            {},
            b"",
        )


def expire_until(stopping: threading.Event, table: RouteTable) -> None:
    """Take brokers out that do not register any more, every EXPIRE_SECONDS."""
    while not stopping.wait(EXPIRE_SECONDS):
        for address, owner in table.expire():
            _log.warning("broker.gone", address=address, why="it did not register in time")
            if isinstance(owner, Connection):
                owner.close()  # as RocketMQ does: a broker that lives connects and registers again


def _topics(names: list[str]) -> Answered:
    return found(dump_bytes({"topicList": names}))


def _as_document(broker: Broker) -> dict[str, object]:
    return {
        "brokerAddrs": broker.addresses,
        "brokerName": broker.name,
        "cluster": broker.cluster,
        "enableActingMaster": broker.acts_for_master,
    }


def _without_acting(broker: Broker) -> dict[str, object]:
    document = _as_document(broker)
    del document["enableActingMaster"]
    return document


def _queue_document(name: str, queues: QueueData) -> dict[str, object]:
    return {
        "brokerName": name,
        "perm": queues.perm,
        "readQueueNums": queues.read_queue_count,
        "topicSysFlag": queues.sys_flag,
        "writeQueueNums": queues.write_queue_count,
    }
