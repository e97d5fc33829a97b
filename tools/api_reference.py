"""The API reference, made from the comments of the protos: Markdown pages for docs/api, and one page for the console.

`EXAMPLES` has a request for each RPC that clients call; all work on the sample messages of `make run`. Ids are those of the
first sample message. Handles and transactions are placeholders: only their owner has one.
"""

import html
import json
import pathlib
import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

FIRST_ID = "7F00000100002A9F0000000000000000"
UNIQUE_KEY = "7F0000010A2B18B4AAC20000000000"
TIME = "2026-11-21T10:29:12Z"
_QUEUE = {"topic": "Orders", "queue_id": 0}

EXAMPLES: dict[str, tuple[dict[str, Any], ...]] = {
    "AppendMessages": (
        {
            "messages": [{"topic": "Orders", "body": "aGVsbG8=", "keys": ["order-9002"], "tags": "Paid"}],
            "flush": "FLUSH_MODE_SYNC",
        },
    ),
    "AppendMessageStream": (
        {"messages": [{"topic": "Orders", "body": "b25l", "keys": ["order-9003"]}]},
        {"messages": [{"topic": "Orders", "body": "dHdv", "keys": ["order-9003"]}]},
    ),
    "QueryMessageByKey": ({"topic": "Orders", "key": "order-1001", "page_size": 10},),
    "QueryMessageById": ({"offset_msg_id": FIRST_ID},),
    "QueryMessageByUniqueKey": ({"topic": "Orders", "unique_key": UNIQUE_KEY},),
    "QueryMessageByOffset": ({**_QUEUE, "queue_offset": 0, "max_messages": 2},),
    "FindMessage": ({"text": "order-1001"},),
    "SearchMessages": ({"topic": "Orders", "body_text": "cup", "max_records": 1000},),
    "ExplainQuery": ({"by_key": {"topic": "Orders", "key": "order-1001"}},),
    "DownloadBody": ({"offset_msg_id": FIRST_ID},),
    "SearchOffset": ({**_QUEUE, "time": TIME, "boundary": "BOUNDARY_LOWER"},),
    "ListTopics": ({"name_contains": "Ord"},),
    "CreateTopic": ({"topic": "Refunds", "queue_count": 4, "message_type": "MESSAGE_TYPE_FIFO"},),
    "UpdateTopic": ({"topic": "Refunds", "queue_count": 8},),
    "DeleteTopic": ({"topic": "Refunds"},),
    "PullMessages": ({**_QUEUE, "queue_offset": 0, "filter": {"tags": "created || paid"}},),
    "CommitOffsets": ({"consumer_group": "billing", "positions": [{**_QUEUE, "consumer_offset": 1}]},),
    "SendBackMessages": ({"consumer_group": "billing", **_QUEUE, "queue_offsets": [0], "delay_level": 1},),
    "LockQueues": ({"consumer_group": "billing", "client_id": "worker-1", "queues": [_QUEUE]},),
    "GetOffsets": ({"consumer_group": "billing"},),
    "ResetOffsets": ({"consumer_group": "billing", "topic": "Orders", "earliest": True, "dry_run": True},),
    "ListConsumerGroups": ({},),
    "ListLiteTopics": ({"topic": "Chats", "name_contains": "user-"},),
    "GetConsumerGroup": ({"consumer_group": "billing"},),
    "GetConsumerRunningInfo": ({"consumer_group": "billing", "client_id": "worker-1"},),
    "UpdateConsumerGroup": ({"consumer_group": "billing", "delivery_attempts_max": 5},),
    "DeleteConsumerGroup": ({"consumer_group": "a-group-of-the-past"},),
    "TrackMessage": ({"offset_msg_id": FIRST_ID},),
    "ResendDeadLetters": ({"consumer_group": "billing", "dry_run": True},),
    "RecallMessage": ({"topic": "Orders", "recall_handle": "HANDLE"},),
    "EndTransaction": ({"topic": "Orders", "transaction_id": "ID", "resolution": "TRANSACTION_RESOLUTION_ROLLBACK"},),
    "ListPendingTransactions": ({},),
    "ListScheduledMessages": ({"topic": "Orders"},),
    "SendRequest": ({"message": {"topic": "Prices", "body": "Y3Vw"}, "timeout": "3s"},),
    "ListTenants": ({},),
    "GetStatus": ({},),
}


ROOT = pathlib.Path(__file__).resolve().parents[1]
GATEWAY = "127.0.0.1:8081"
# The services behind the gateway and their default ports; clients never call them.
PORTS = {"commitlog": 8082, "consumequeue": 8083, "index": 8084, "consumer": 8085, "schedule": 8086, "nameserver": 8087}
PAGES = ("gateway", "message", *PORTS)
# RocketMQ's contract is described by RocketMQ; the records of state topics are no RPCs.
_SERVICE_FIELD, _MESSAGE_FIELD, _ENUM_FIELD, _METHOD_FIELD = 6, 4, 5, 2
_NESTED_FIELD, _NESTED_ENUM_FIELD, _FIELD_FIELD, _VALUE_FIELD = 3, 4, 2, 2
WIDTH = 128


@dataclass
class Row:
    """A field of a message or a value of an enum."""

    name: str
    type: str
    comment: str


@dataclass
class Shape:
    """A message or an enum."""

    name: str
    comment: str
    rows: list[Row] = field(default_factory=list)
    is_enum: bool = False


@dataclass
class Rpc:
    """One RPC with the lines that call it."""

    service: str
    name: str
    comment: str
    request: str
    response: str
    takes_stream: bool
    gives_stream: bool

    def signature(self) -> str:
        """As the proto says it."""
        takes, gives = ("stream " if each else "" for each in (self.takes_stream, self.gives_stream))
        return f"rpc {self.name}({takes}{self.request}) returns ({gives}{self.response})"

    def lines(self) -> list[str]:
        """The command that calls it in a shell, if clients may call it."""
        if self.name not in EXAMPLES or not self.service.startswith("reput.gateway."):
            return []
        data = "\n".join(json.dumps(each) for each in EXAMPLES[self.name])
        path = f"{self.service}/{self.name}"
        return [
            f"grpcurl -plaintext -d '{data}' {GATEWAY} {path}",
            f"buf curl --protocol grpc --http2-prior-knowledge -d '{data}' http://{GATEWAY}/{path}",
        ]


@dataclass
class Package:
    """The services and messages that one page describes."""

    name: str
    comment: str = ""
    rpcs: list[Rpc] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)


def packages() -> dict[str, Package]:
    """Of each page, by the component's name."""
    descriptors = descriptor_pb2.FileDescriptorSet.FromString((ROOT / "protos/reput/descriptors.binpb").read_bytes())
    found: dict[str, Package] = {}
    for file in descriptors.file:
        component = file.package.split(".")[1] if file.package.startswith("reput.") else ""
        if component in PAGES and not file.name.endswith("/state.proto"):
            package = found.setdefault(component, Package(file.package))
            _add(package, file)
    return {name: found[name] for name in PAGES}


def _add(package: Package, file: FileDescriptorProto) -> None:
    comments = {tuple(each.path): each.leading_comments for each in file.source_code_info.location}
    if file.service:
        package.comment = _said(comments, (_SERVICE_FIELD, 0))
    for place, service in enumerate(file.service):
        for number, method in enumerate(service.method):
            package.rpcs.append(
                Rpc(
                    f"{file.package}.{service.name}",
                    method.name,
                    _said(comments, (_SERVICE_FIELD, place, _METHOD_FIELD, number)),
                    _short(method.input_type, file.package),
                    _short(method.output_type, file.package),
                    method.client_streaming,
                    method.server_streaming,
                )
            )
    for number, message in enumerate(file.message_type):
        _add_message(package, comments, message, (_MESSAGE_FIELD, number), "")
    for number, enum in enumerate(file.enum_type):
        _add_enum(package, comments, enum, (_ENUM_FIELD, number), "")


def _add_message(
    package: Package,
    comments: dict[tuple[int, ...], str],
    message: descriptor_pb2.DescriptorProto,
    path: tuple[int, ...],
    outer: str,
) -> None:
    if message.options.map_entry:
        return
    name = f"{outer}{message.name}"
    entries = {f".{package.name}.{name}.{each.name}": each for each in message.nested_type if each.options.map_entry}
    rows = [
        Row(each.name, _type_of(each, entries, package.name), _said(comments, (*path, _FIELD_FIELD, number)))
        for number, each in enumerate(message.field)
    ]
    package.shapes.append(Shape(name, _said(comments, path), rows))
    for number, nested in enumerate(message.nested_type):
        _add_message(package, comments, nested, (*path, _NESTED_FIELD, number), f"{name}.")
    for number, enum in enumerate(message.enum_type):
        _add_enum(package, comments, enum, (*path, _NESTED_ENUM_FIELD, number), f"{name}.")


def _add_enum(
    package: Package,
    comments: dict[tuple[int, ...], str],
    enum: descriptor_pb2.EnumDescriptorProto,
    path: tuple[int, ...],
    outer: str,
) -> None:
    rows = [
        Row(value.name, str(value.number), _said(comments, (*path, _VALUE_FIELD, number)))
        for number, value in enumerate(enum.value)
    ]
    package.shapes.append(Shape(f"{outer}{enum.name}", _said(comments, path), rows, is_enum=True))


def _said(comments: dict[tuple[int, ...], str], path: tuple[int, ...]) -> str:
    return " ".join(comments.get(path, "").split())


def _short(type_name: str, package: str) -> str:
    return type_name.removeprefix(".").removeprefix(f"{package}.")


def _type_of(row: FieldDescriptorProto, entries: dict[str, descriptor_pb2.DescriptorProto], package: str) -> str:
    if row.type_name in entries:
        key, value = entries[row.type_name].field
        return f"map<{_type_of(key, {}, package)}, {_type_of(value, {}, package)}>"
    kind = FieldDescriptorProto.Type.Name(row.type).removeprefix("TYPE_").lower()
    text = _short(row.type_name, package) if row.type_name else kind
    if row.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {text}"
    return f"optional {text}" if row.proto3_optional else text


def markdown(component: str, package: Package) -> str:
    """The page of a package."""
    parts = [f"# `{package.name}`"]
    if component in PORTS:
        address = f"127.0.0.1:{PORTS[component]}"
        place = f"With default ports it listens on {address}; under `reput serve` on a unix socket."
        line = f"`grpcurl -plaintext {address} describe {package.rpcs[0].service}` shows it."
        parts.append("\n\n".join([package.comment, _wrapped(f"{place} {line}")]))
    elif package.comment:
        parts.append(package.comment)
    if package.rpcs:
        parts.append("\n".join(f"- [{rpc.name}](#{rpc.name.lower()})" for rpc in package.rpcs))
    shapes = {shape.name: shape for shape in package.shapes}
    for rpc in package.rpcs:
        parts += [f"## {rpc.name}", _wrapped(rpc.comment), f"```proto\n{rpc.signature()}\n```"]
        if rpc.lines():
            parts.append("```sh\n" + "\n".join(rpc.lines()) + "\n```")
        for name in (rpc.request, rpc.response):
            if name in shapes:
                parts.append(_section(shapes.pop(name), "###"))
    if shapes and package.rpcs:
        parts.append("## Messages and enums")
    parts += [_section(shape, "###" if package.rpcs else "##") for shape in shapes.values()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(shape: Shape, level: str) -> str:
    head = f"{level} {shape.name}\n\n{_wrapped(shape.comment)}"
    if not shape.rows:
        return head
    rows = [f"| `{row.name}` | `{row.type}` | {row.comment.replace('|', chr(92) + '|')} |" for row in shape.rows]
    kind = "number" if shape.is_enum else "type"
    title = "value" if shape.is_enum else "field"
    return "\n".join([head, "", f"| {title} | {kind} | |", "| --- | --- | --- |", *rows])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


INDEX = """# API reference

Made from the comments of [protos](../../protos/reput) by `tools/docs_pages.py`. Clients call `reput.gateway.v1`; the others
are the services behind it. The lines with grpcurl and `buf curl` need no files, because every service speaks reflection; they
work on the sample messages of `make run`. With TLS and an API key:

```text
grpcurl -cacert ca.crt -H "authorization: Bearer $KEY" ...
buf curl --cacert ca.crt -H "authorization: Bearer $KEY" --protocol grpc ... https://...
```

The console shows the gateway's page under `/api`. `apache.rocketmq.v2` is RocketMQ's own contract
([ADR 0016](../adr/0016-rocketmqs-own-grpc-contract.md)).

| page | package | |
| --- | --- | --- |
"""


def index() -> str:
    """The first page."""
    rows = [
        f"| [{name}.md]({name}.md) | `{package.name}` | {_first(package)} |" for name, package in packages().items()
    ]
    return INDEX + "\n".join(rows) + "\n"


def _first(package: Package) -> str:
    return (
        package.comment.partition(". ")[0].rstrip(".") + "."
        if package.comment
        else "What all services say about messages."
    )


# The script shows the button where a page may write to the clipboard; it copies the line before it.
COPY_LINE = "{% endraw %}{{ copy_line() }}{% raw %}"
COPY_MACRO = (
    '{% macro copy_line() %}<button type="button" class="copy" data-copy-line data-copied="{{ t(\'Copied\') }}" '
    'lang="{{ html_language }}" hidden>{{ t("Copy") }}</button>{% endmacro %}'
)


def console_page() -> str:
    """The gateway's page as a Jinja template of the console; what looks like a template's mark stays text."""
    found = packages()
    parts = []
    for rpc in found["gateway"].rpcs:
        lines = "".join(
            f'<div class="shell-line"><pre tabindex="0"><code>{html.escape(line)}</code></pre>{COPY_LINE}</div>'
            for line in rpc.lines()
        )
        parts.append(
            f'<section id="{rpc.name}"><h2>{rpc.name}</h2><p>{_marked(rpc.comment)}</p>'
            f'<pre tabindex="0"><code>{html.escape(rpc.signature())}</code></pre>{lines}</section>'
        )
    parts.append("<h2>Messages and enums</h2>")
    for name in ("gateway", "message"):
        for shape in found[name].shapes:
            rows = "".join(
                f"<tr><td><code>{row.name}</code></td><td><code>{html.escape(row.type)}</code></td>"
                f"<td>{_marked(row.comment)}</td></tr>"
                for row in shape.rows
            )
            region = f'<div class="scroll" tabindex="0" role="region" aria-label="{shape.name}">'
            table = f"{region}<table>{rows}</table></div>" if rows else ""
            parts.append(
                f'<section id="{shape.name}"><h3>{shape.name}</h3><p>{_marked(shape.comment)}</p>{table}</section>'
            )
    links = " · ".join(f'<a href="#{rpc.name}">{rpc.name}</a>' for rpc in found["gateway"].rpcs)
    body = "\n".join([f'<div lang="en"><nav aria-label="RPCs"><p>{links}</p></nav>', *parts, "</div>"])
    return (
        '{% extends "layout.html" %}' + COPY_MACRO + "{% block title %}API{% endblock %}{% block main %}"
        "{% raw %}\n<h1>API</h1>\n"
        f"{body}\n{{% endraw %}}{{% endblock %}}\n"
    )


def _marked(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def pages() -> dict[pathlib.Path, str]:
    """The text of each generated file."""
    made = {ROOT / "docs/api" / f"{name}.md": markdown(name, package) for name, package in packages().items()}
    return made | {ROOT / "docs/api/README.md": index(), ROOT / "console/templates/api.html": console_page()}
