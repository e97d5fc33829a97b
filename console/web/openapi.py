"""The OpenAPI description of the console's JSON, with schemas from the contract's own descriptors.

JSON is in protobuf's mapping: int64 and bytes are text, enums are names, times are RFC 3339, and fields with their default
value are left out.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from console.pages.find import MODES
from console.pages.find import MODES as EXPLAINED_MODES
from console.pages.topics import SORTS
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2

VERSION = "3.1.0"
_INT32 = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_SINT32}
_INT32 |= {FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32}
_FLOAT = {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT}
_WELL_KNOWN: dict[str, dict[str, Any]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string"},
    "google.protobuf.Any": {"type": "object", "required": ["@type"], "properties": {"@type": {"type": "string"}}},
}
_TEXT = {"type": "string"}
_INT64 = {"type": "string", "pattern": "^-?[0-9]+$"}
_MILLIS = {"type": "number", "minimum": 0, "description": "Time of the gateway's calls, in milliseconds."}
ANSWERS = (
    pb.FindMessageResponse,
    pb.QueryMessageByKeyResponse,
    pb.QueryMessageByUniqueKeyResponse,
    pb.QueryMessageByIdResponse,
    pb.QueryMessageByOffsetResponse,
    pb.SearchMessagesResponse,
)


class Schemas:
    """Schemas by name, made at the first reference."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Any]] = {}

    def reference(self, descriptor: Any) -> dict[str, Any]:
        """A reference to a message's schema, or the schema itself for a message with a JSON form of its own."""
        name = descriptor.full_name
        if name in _WELL_KNOWN:
            return _WELL_KNOWN[name]
        if name not in self.by_name:
            self.by_name[name] = {}  # a message may contain itself
            properties = {field.json_name: self._field(field) for field in descriptor.fields}
            self.by_name[name] = {"type": "object", "additionalProperties": False, "properties": properties}
        return {"$ref": f"#/components/schemas/{name}"}

    def _field(self, field: FieldDescriptor) -> dict[str, Any]:
        if not field.is_repeated:
            return self._value(field)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            return {"type": "object", "additionalProperties": self._value(entry.fields_by_name["value"])}
        return {"type": "array", "items": self._value(field)}

    def _value(self, field: FieldDescriptor) -> dict[str, Any]:
        if field.message_type is not None:
            return self.reference(field.message_type)
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return {"type": "boolean"}
        if field.type == FieldDescriptor.TYPE_STRING:
            return _TEXT
        if field.type == FieldDescriptor.TYPE_BYTES:
            return {"type": "string", "contentEncoding": "base64"}
        if field.type in _FLOAT:
            return {"type": ["number", "string"]}
        return {"type": "integer"} if field.type in _INT32 else _INT64

    @staticmethod
    def _enum(enum: EnumDescriptor) -> dict[str, Any]:
        return {"type": "string", "enum": [value.name for value in enum.values]}


def openapi() -> dict[str, Any]:
    """The description."""
    schemas = Schemas()
    answers = [schemas.reference(answer.DESCRIPTOR) for answer in ANSWERS]
    failure = schemas.reference(pb.ShardOutcome.DESCRIPTOR.fields_by_name["error"].message_type)

    def page(summary: str, schema: dict[str, Any], parameters: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
        content = {"application/json": {"schema": schema}, "text/html": {"schema": _TEXT}}
        described = {
            "200": {"description": "The page.", "content": content},
            "default": {"description": "Why there is no page.", "content": {"application/json": {"schema": failure}}},
        }
        return {"get": {"summary": summary, "parameters": list(parameters), "responses": described}}

    topic, queue = _path("topic", _TEXT), _path("queue_id", {"type": "integer", "minimum": 0})
    message_id, broker = _path("offset_msg_id", _TEXT), _query("broker", "The shard; empty: the gateway finds it.")
    shown = [_query("view", "How to show the body."), _query("at", "From this byte of the body on.")]
    shown += [_query("trace_topic", "Where clients with tracing on send traces; empty: as the gateway is set.")]
    shown += [_query("schema", "The digest of an uploaded schema."), _query("type", "A type of the schema.")]
    window = [
        _query("last", "15m, 1h, 6h, 24h, 7d, 30d, all, or custom: begin and end count."),
        _query("begin", "Stored at or after this (UTC)."),
        _query("end", "Stored at or before this (UTC)."),
    ]
    paging = [
        _query("size", "Rows: 25 or 50."),
        _query("page", "The page token of the previous answer; its `next` is the whole link."),
        _query("partial", "1: matches may be missing from an earlier page."),
        _query("matched", "1: an earlier page had matches."),
    ]
    names = ("q", "topic", "key", "unique", "id", "queue", "offset", "tag", "body", "body_as", "cel", "order")
    asked = [{**_query("mode", "The kind of query."), "schema": {"type": "string", "enum": list(MODES)}}]
    asked += [_query(name, f"See the form of the mode that has `{name}`.") for name in names]
    waiting = [
        _query("topic", "Only messages of this topic."),
        _query("page", "The page token of the previous answer."),
    ]
    return {
        "openapi": VERSION,
        "info": {
            "title": "Reput console",
            "version": "1",
            "description": "Every page of the console as JSON: ask with `Accept: application/json` or `format=json`.",
        },
        "paths": {
            "/": page("Find messages.", _find(answers), [*asked, broker, *window, *paging]),
            "/messages/{offset_msg_id}": page("A message.", _message(schemas), [message_id, broker, *shown]),
            "/messages/{offset_msg_id}/body": {
                "get": {
                    "summary": "A message's body, inflated where it can be; with `stored=1` as it is stored.",
                    "parameters": [message_id, broker, _query("stored", "1: as it is stored.")],
                    "responses": {"200": {"description": "The bytes.", "content": {"application/octet-stream": {}}}},
                }
            },
            "/explain": page(
                "The work that the query of the same URL did to find its answer.",
                _object(
                    {
                        "mode": {"type": "string", "enum": list(EXPLAINED_MODES)},
                        "tookMillis": _MILLIS,
                        "answer": schemas.reference(pb.ExplainQueryResponse.DESCRIPTOR),
                    }
                ),
                [*asked, broker, *window, *paging],
            ),
            "/groups": page(
                "Consumer groups with their lag, as far as the time was enough.",
                _groups(schemas),
                [_query("q", "Part of the name.")],
            ),
            "/groups/{consumer_group}": page(
                "A consumer group: members, queues and lag.",
                _object({"answer": schemas.reference(pb.GetConsumerGroupResponse.DESCRIPTOR)}),
                [_path("consumer_group", _TEXT)],
            ),
            "/groups/{consumer_group}/members": page(
                "The members of a consumer group that live; with `member`, what it does now, too, or why that is not known.",
                _object(
                    {
                        "answer": schemas.reference(pb.GetConsumerGroupResponse.DESCRIPTOR),
                        "running": schemas.reference(pb.GetConsumerRunningInfoResponse.DESCRIPTOR),
                        "runningError": _TEXT,
                    },
                    ("running", "runningError"),
                ),
                [_path("consumer_group", _TEXT), _query("member", "Client id of a member, which is asked.")],
            ),
            "/groups/{consumer_group}/dead-letters": page(
                "The dead letters of a consumer group.",
                _object(
                    {
                        "group": schemas.reference(pb.GetConsumerGroupResponse.DESCRIPTOR),
                        "answer": schemas.reference(pb.SearchMessagesResponse.DESCRIPTOR),
                    },
                ),
                [_path("consumer_group", _TEXT), _query("page", "The page token of the previous answer.")],
            ),
            "/groups/{consumer_group}/dead-letters/export": {
                "get": {
                    "summary": "The dead letters of a consumer group as a file; a last line says so when it is not whole.",
                    "parameters": [_path("consumer_group", _TEXT), _query("as", "csv or jsonl.")],
                    "responses": {
                        "200": {
                            "description": "A row for each.",
                            "content": {"text/csv": {}, "application/jsonl": {}},
                        }
                    },
                }
            },
            "/waiting": page(
                "Messages that wait for their time.",
                _object({"scheduled": schemas.reference(pb.ListScheduledMessagesResponse.DESCRIPTOR)}),
                waiting,
            ),
            "/half-messages": page(
                "Half messages that wait for the verdict of their transaction.",
                _object({"transactions": schemas.reference(pb.ListPendingTransactionsResponse.DESCRIPTOR)}),
                waiting,
            ),
            "/tenants": page(
                "Namespaces by name: what they use, and their quotas.",
                _object({"answer": schemas.reference(pb.ListTenantsResponse.DESCRIPTOR), "tookMillis": _MILLIS}),
                [_query("page", "The page token of the previous answer.")],
            ),
            "/replicas": page(
                "The replicas of each shard: the state of the commit log services.",
                _object(
                    {
                        "shards": {
                            "type": "array",
                            "items": schemas.reference(pb.GetStatusResponse.ServiceStatus.DESCRIPTOR),
                        },
                        "tookMillis": _MILLIS,
                    }
                ),
            ),
            "/topics": page(
                "Topics.",
                _topics(schemas),
                [
                    _query("q", "Part of the name."),
                    {**_query("sort", "The order."), "schema": {"type": "string", "enum": list(SORTS)}},
                    _query("from", "Of another order than by name: how many topics are before this page."),
                    _query("page", "The page token of the previous answer."),
                    _query("size", "The most rows."),
                ],
            ),
            "/topics/{topic}": page(
                "A topic's queues, times and rates.",
                _topic(),
                [topic, _query("from", "How many queues are before this page.")],
            ),
            "/topics/{topic}/lite-topics": page(
                "Lite topics of a topic by name, with what groups have still to consume.",
                _object({"answer": schemas.reference(pb.ListLiteTopicsResponse.DESCRIPTOR), "tookMillis": _MILLIS}),
                [
                    topic,
                    _query("q", "Part of the name."),
                    _query("group", "Only those in which this group has a position or a subscriber."),
                    _query("page", "The page token of the previous answer."),
                ],
            ),
            "/topics/{topic}/{queue_id}": page(
                "Messages of a queue.",
                _object(
                    {"answer": schemas.reference(pb.QueryMessageByOffsetResponse.DESCRIPTOR), "tookMillis": _MILLIS}
                ),
                [topic, queue, broker, _query("offset", "First position."), _query("time", "First store time (UTC).")],
            ),
            "/topics/{topic}/tail": {
                "get": {
                    "summary": "New messages of a topic, as server-sent events; each `rows` is an array of StoredMessage, "
                    "each `partial` names the parts that are not read.",
                    "parameters": [
                        topic,
                        _query("format", "json."),
                        _query("from", "The id of the last event."),
                        _query("tag", "Only messages with these tags, `TagA || TagB`; empty or `*`: all."),
                    ],
                    "responses": {"200": {"description": "Events.", "content": {"text/event-stream": {}}}},
                }
            },
            "/store": page(
                "The state of every service.",
                _object({"answer": schemas.reference(pb.GetStatusResponse.DESCRIPTOR), "tookMillis": _MILLIS}),
            ),
            "/reports": page("The reports of the pipeline's jobs.", _reports()),
        },
        "components": {"schemas": schemas.by_name},
    }


def _find(answers: list[dict[str, Any]]) -> dict[str, Any]:
    question = {"type": "object", "additionalProperties": _TEXT}
    mode = {"type": "string", "enum": list(MODES)}
    partial = {"type": "boolean", "description": "Matches may be missing from this page or an earlier one."}
    properties = {"mode": mode, "question": question, "tookMillis": _MILLIS, "answer": {"anyOf": answers}}
    properties |= {"partial": partial, "next": _TEXT}
    return _object(properties, optional=("answer", "partial", "next"))


def _message(schemas: Schemas) -> dict[str, Any]:
    body = dict.fromkeys(("encoding", "compression", "problem"), _TEXT)
    body |= dict.fromkeys(("storedSizeBytes", "sizeBytes"), _INT64)
    position = {"logFile": _TEXT, "logFileOffset": _TEXT, "commitLogOffset": _INT64}
    properties = {
        "message": schemas.reference(message_pb2.StoredMessage.DESCRIPTOR),
        "body": _object(body),
        "position": _object(position),
        "timeline": {"type": "array", "items": _object(dict.fromkeys(("kind", "millis", "topic", "href"), _TEXT))},
        "queue": _object({"minOffset": _INT64, "maxOffset": _INT64}),
        "related": schemas.reference(pb.FindMessageResponse.DESCRIPTOR),
        "explained": schemas.reference(pb.ExplainQueryResponse.DESCRIPTOR),
        "tracks": schemas.reference(pb.TrackMessageResponse.DESCRIPTOR),
        "tookMillis": _MILLIS,
    }
    return _object(properties, optional=("queue", "related", "explained", "tracks"))


def _groups(schemas: Schemas) -> dict[str, Any]:
    lag = _object({"consumerGroup": _TEXT, "lagCount": _INT64})
    answer = schemas.reference(pb.ListConsumerGroupsResponse.DESCRIPTOR)
    return _object({"answer": answer, "lags": {"type": "array", "items": lag}})


def _topics(schemas: Schemas) -> dict[str, Any]:
    last = {"type": ["string", "null"], "description": "Null: none, or there was no time to look for it."}
    line = _object({"topic": _TEXT, "messageCount": _INT64, "lastStoreMillis": last})
    answer = schemas.reference(pb.ListTopicsResponse.DESCRIPTOR)
    return _object({"answer": answer, "topics": {"type": "array", "items": line}, "tookMillis": _MILLIS})


def _topic() -> dict[str, Any]:
    maybe_millis = {"type": ["string", "null"]}
    queue = {
        "brokerName": _TEXT,
        "queueId": {"type": "integer"},
        "minOffset": _INT64,
        "maxOffset": _INT64,
        "firstStoreMillis": maybe_millis,
        "lastStoreMillis": maybe_millis,
    }
    rates = {
        "beginMillis": _INT64,
        "endMillis": _INT64,
        "counts": {"type": "array", "items": _INT64},
        "leftOutQueueCount": {"type": "integer"},
    }
    properties = {
        "topic": _TEXT,
        "queues": {"type": "array", "items": _object(queue)},
        "queueCount": {"type": "integer"},
        "rates": _object(rates),
        "tookMillis": _MILLIS,
    }
    return _object(properties, optional=("rates",))


def _reports() -> dict[str, Any]:
    texts = {"type": "array", "items": _TEXT}
    whole = {"type": "integer"}
    replica = {
        "brokerName": _TEXT,
        "replica": _TEXT,
        **dict.fromkeys(("firstOffset", "endOffset", "lagBytes", "errorCount", "warningCount"), whole),
        "isLogOnly": {"type": "boolean"},
    }
    report = {
        "name": _TEXT,
        "job": _TEXT,
        "isDryRun": {"type": "boolean"},
        "startedAtMillis": {"type": "integer"},
        "seconds": {"type": "number"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "findings": texts,
        "findingCount": {"type": "integer"},
        "notes": texts,
        "problem": _TEXT,
        "replicas": {"type": "array", "items": _object(replica)},
    }
    return _object({"reports": {"type": "array", "items": _object(report)}, "pages": texts})


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _query(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": _TEXT}


def _path(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}
