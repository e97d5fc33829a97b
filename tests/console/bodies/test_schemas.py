"""Bodies by a Protobuf descriptor set or an Avro schema: configured for a topic, or uploaded."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, json_format
from hypothesis import given
from hypothesis import strategies as st

from console.bodies.body import TEXT_CHARACTERS_MAX, Body, show_by
from console.bodies.schemas import (
    SCHEMA_BYTES_MAX,
    UPLOADED_COUNT_MAX,
    AvroFile,
    BodyNotReadableError,
    DescriptorSet,
    Schemas,
    _in_order,
)
from reput.message.v1 import message_pb2
from store.errors import InvalidArgumentError
from store.format.message_id import encode_offset_msg_id
from tests.console.asking import Browser, Tags, console_over
from tests.gateway.memory_shard import MemoryShard

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))}
NEW_MESSAGE = "reput.message.v1.NewMessage"
CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}
CLICKED = {"page": "/kasse", "at": 1_700_000_000_000, "tags": ["a", "订单"], "raw": b"\x00\xff"}


def descriptor_set() -> bytes:
    """The contract's own messages with all that they import, an importing file before the imported one."""
    files, waiting = {}, [message_pb2.DESCRIPTOR]
    while waiting:
        file = waiting.pop()
        files[file.name] = file
        waiting += [each for each in file.dependencies if each.name not in files]
    made = descriptor_pb2.FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(made.file.add())
    return made.SerializeToString()


@pytest.fixture(scope="module")
def contract() -> bytes:
    return descriptor_set()


def avro_body(datum: dict) -> bytes:
    fastavro = pytest.importorskip("fastavro", reason="Avro bodies need the optional library fastavro")
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(CLICK), datum)
    return written.getvalue()


@given(topic=st.text(max_size=20), body=st.binary(max_size=40), keys=st.lists(st.text(max_size=5), max_size=3))
def test_a_protobuf_body_is_the_json_that_protobuf_makes_of_it(topic: str, body: bytes, keys: list[str]) -> None:
    message = message_pb2.NewMessage(topic=topic or "t", body=body, keys=keys)

    text = DescriptorSet("contract.binpb", descriptor_set()).to_json(NEW_MESSAGE, message.SerializeToString())

    assert json.loads(text) == json_format.MessageToDict(message, preserving_proto_field_name=True)


def test_the_types_are_all_messages_also_nested_ones_but_no_map_entries(contract: bytes) -> None:
    types = DescriptorSet("contract.binpb", contract).types

    assert NEW_MESSAGE in types
    assert not [name for name in types if name.endswith("Entry")]
    assert list(types) == sorted(types)


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x08\x01garbage", b'{"a": 1}'])
def test_bytes_that_are_not_of_the_type_are_not_shown_by_it(contract: bytes, content: bytes) -> None:
    with pytest.raises(BodyNotReadableError, match="not a reput"):
        DescriptorSet("contract.binpb", contract).to_json(NEW_MESSAGE, content)


def test_a_set_without_its_imports_says_how_to_make_a_whole_one() -> None:
    alone = descriptor_pb2.FileDescriptorSet()
    message_pb2.DESCRIPTOR.CopyToProto(alone.file.add())

    with pytest.raises(InvalidArgumentError, match="--include_imports"):
        DescriptorSet("alone.binpb", alone.SerializeToString())


def test_an_avro_body_is_read_plain_and_behind_the_head_of_a_registry() -> None:
    body = avro_body(CLICKED)
    schema = AvroFile("click.avsc", json.dumps(CLICK).encode())

    for content in (body, b"\x00\x00\x00\x00\x07" + body):
        assert json.loads(schema.to_json("Click", content)) == {**CLICKED, "raw": "00ff"}
    assert list(schema.types) == ["Click"]


@pytest.mark.parametrize("content", [b"", b"\x02", b"\xff" * 40])
def test_bytes_that_are_no_avro_datum_are_refused(content: bytes) -> None:
    pytest.importorskip("fastavro", reason="Avro bodies need the optional library fastavro")
    with pytest.raises(BodyNotReadableError, match="not a Click"):
        AvroFile("click.avsc", json.dumps(CLICK).encode()).to_json("Click", content)


LIST = {"type": "record", "name": "List", "fields": [{"name": "next", "type": ["null", "List"]}]}
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "leaves", "type": {"type": "array", "items": "Tree"}}]}
TABLE = {
    "type": "record",
    "name": "T",
    "namespace": "a.b",
    "fields": [{"name": "m", "type": {"type": "map", "values": "a.b.T"}}],
}


@pytest.mark.parametrize("schema", [LIST, TREE, TABLE, [LIST, "string"]])
def test_a_body_that_nests_a_schema_in_itself_ended_the_gateway(schema: object) -> None:
    """Found by fuzzing: the compiled reader of Avro has no limit of depth, and its process died of a stack overflow."""
    pytest.importorskip("fastavro", reason="Avro bodies need the optional library fastavro")
    made = json.dumps(schema).encode()
    script = f"""
from console.bodies.schemas import AvroFile, BodyNotReadableError
schema = AvroFile("x.avsc", {made!r})
for body in (b"\\x02", b"\\x00" + b"\\x02", b"\\x02\\x00", b"\\x02\\x02a"):
    try:
        schema.to_json("x", body * 400_000)
    except BodyNotReadableError:
        pass
print("read")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr[-2000:]


def test_a_list_of_avro_is_read_as_before() -> None:
    pytest.importorskip("fastavro", reason="Avro bodies need the optional library fastavro")

    text = AvroFile("x.avsc", json.dumps(LIST).encode()).to_json("List", b"\x02" * 20 + b"\x00")

    assert text.count("next") == 21


@pytest.mark.parametrize(
    "schema", ['{"type":' * 5000 + '"int"' + "}" * 5000, '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000]
)
def test_an_avro_schema_that_nests_without_limit_is_refused(schema: str) -> None:
    pytest.importorskip("fastavro", reason="Avro bodies need the optional library fastavro")
    with pytest.raises(InvalidArgumentError, match="is not an Avro schema"):
        AvroFile("x.avsc", schema.encode())


class _File:
    """A file of a descriptor set that counts how often it is asked for its imports."""

    def __init__(self, name: str, imports: list[str], asked: list[str]) -> None:
        self.name = name
        self._imports = imports
        self._asked = asked

    @property
    def dependency(self) -> Iterator[str]:
        for each in self._imports:
            self._asked.append(each)
            yield each


def test_files_that_import_many_others_took_the_square_of_their_number() -> None:
    """Found while fuzzing: a set of a megabyte held a thread of the console for minutes."""
    asked: list[str] = []
    names = [f"{number}.proto" for number in range(300)]
    files = [_File("all.proto", names, asked), *(_File(name, ["all.proto", "absent"], asked) for name in names)]

    ordered = [file.name for file in _in_order(files)]

    assert ordered == [*names, "all.proto"]
    assert len(asked) == 300 + 300 * 2


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "null"},
        {"type": "record", "name": "Empty", "fields": []},
        {"type": "record", "name": "Outer", "fields": [{"name": "x", "type": "null"}]},
        {"type": "fixed", "name": "None", "size": 0},
        "a.Before",  # found while fuzzing: a full name was not known
        "Before",
    ],
)
def test_an_array_of_items_without_bytes_is_refused_since_a_body_could_announce_any_number(items: object) -> None:
    pytest.importorskip("fastavro", reason="Avro bodies need the optional library fastavro")
    before = {"name": "b", "type": {"type": "record", "name": "Before", "fields": []}}
    bomb = {"name": "a", "type": {"type": "array", "items": items}}
    schema = {"type": "record", "name": "Bomb", "namespace": "a", "fields": [before, bomb]}

    with pytest.raises(InvalidArgumentError, match="without bytes"):
        AvroFile("bomb.avsc", json.dumps(schema).encode())


def test_a_body_that_is_too_long_is_cut_and_said_to_be(contract: bytes) -> None:
    message = message_pb2.NewMessage(topic="t", keys=["k" * 50] * 2_000)
    shown = show_by(DescriptorSet("c", contract), NEW_MESSAGE, Body.of(message.SerializeToString(), 0))

    assert (len(shown.text), shown.is_cut) == (TEXT_CHARACTERS_MAX, True)


@pytest.fixture
def directory(tmp_path: Path, contract: bytes) -> Path:
    (tmp_path / "contract.binpb").write_bytes(contract)
    (tmp_path / "topics.toml").write_text(
        f'[topics]\nb_order = "{NEW_MESSAGE}"\n"b_p*" = "{NEW_MESSAGE}"\nwrong = "no.such.Type"\nlost = "lost.avsc"\n'
    )
    return tmp_path


def test_a_topic_has_the_type_of_its_name_or_of_the_first_pattern(directory: Path) -> None:
    schemas = Schemas(directory)

    for topic in ("b_order", "b_payment"):
        found = schemas.of_topic(topic)
        assert found is not None
        assert found[1] == NEW_MESSAGE
    assert schemas.of_topic("b_log") is None
    assert Schemas(None).of_topic("b_order") is None


@pytest.mark.parametrize(("topic", "said"), [("wrong", "no.such.Type"), ("lost", "lost.avsc")])
def test_what_the_directory_lacks_is_named(directory: Path, topic: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        Schemas(directory).of_topic(topic)


def test_a_table_of_topics_that_nests_without_limit_is_named(directory: Path) -> None:
    (directory / "topics.toml").write_text("topics = " + "[" * 100_000)
    with pytest.raises(InvalidArgumentError, match=r"topics\.toml"):
        Schemas(directory).of_topic("orders")


def test_a_changed_file_is_read_again(directory: Path) -> None:
    schemas = Schemas(directory)
    assert schemas.of_topic("b_order") is not None
    (directory / "contract.binpb").write_bytes(b"broken")

    with pytest.raises(InvalidArgumentError, match="not a descriptor set"):
        schemas.of_topic("b_order")


def test_the_newest_uploads_are_kept_and_the_others_are_said_to_be_gone(contract: bytes) -> None:
    schemas = Schemas(None)
    made = descriptor_pb2.FileDescriptorSet.FromString(contract)
    digests = []
    for number in range(UPLOADED_COUNT_MAX + 1):
        made.file[0].options.java_package = f"p{number}"
        digests.append(schemas.upload("x.binpb", made.SerializeToString()))

    assert NEW_MESSAGE in schemas.uploaded(digests[-1]).types
    with pytest.raises(InvalidArgumentError, match="upload it again"):
        schemas.uploaded(digests[0])


def test_a_schema_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="larger than"):
        Schemas(None).upload("x.binpb", b"\x00" * (SCHEMA_BYTES_MAX + 1))


@pytest.fixture
def pages(records, fan_out, contract: bytes):
    body = message_pb2.NewMessage(topic="inner", keys=["k <b>"], body=b"x").SerializeToString()
    record = replace(next(record for record in records if record.topic == "b_log"), body=body)
    app = console_over([MemoryShard([record])], fan_out)
    path = f"/messages/{encode_offset_msg_id(record.store_host, record.commit_log_offset)}?broker=broker-a"
    yield Browser(app), path
    app.close()


def test_an_uploaded_schema_shows_the_body_with_its_names(pages, contract: bytes) -> None:
    browser, path = pages
    uploaded = browser.post("/schemas?name=contract.binpb", contract)
    digest = uploaded.json["schema"]

    page = browser.get(f"{path}&view=schema&schema={digest}&type={NEW_MESSAGE}")

    assert uploaded.status == 200
    assert '"topic": "inner"' in Tags(page.text).text
    assert "k <b>" in Tags(page.text).text
    assert f"<option selected>{NEW_MESSAGE}</option>" in page.text


def test_an_upload_that_is_no_schema_is_refused_with_the_reason(pages) -> None:
    answer = pages[0].post("/schemas?name=x.binpb", b"no schema")

    assert answer.status == 400
    assert "not a descriptor set" in answer.json["message"]


def test_the_page_without_a_schema_offers_the_upload(pages) -> None:
    browser, path = pages
    page = browser.get(f"{path}&view=schema").text

    assert "data-upload" in page
    assert "The topic has no configured schema." in page


def test_the_page_with_a_schema_that_is_gone_says_so(pages) -> None:
    browser, path = pages
    assert "upload it again" in browser.get(f"{path}&view=schema&schema=0123").text
