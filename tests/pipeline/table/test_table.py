"""The job `table` over a real gateway: every message is in the table once, with its body as columns."""

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pipeline.rocketmq.errors import DataLostError
from pipeline.scan.options import OptionError
from pipeline.table import table as job
from pipeline.table.iceberg import TopicTable, opened_catalog
from reput.gateway.v1.gateway_service_pb2 import AppendMessagesRequest, DeleteTopicRequest
from reput.gateway.v1.gateway_service_pb2_grpc import GatewayServiceStub
from reput.message.v1.message_pb2 import NewMessage
from reput_client import Producer
from store.errors import InvalidArgumentError, ResourceBusyError
from tests.pipeline.rocketmq.bodies.test_protobuf import shop
from tests.pipeline.rocketmq.gateways import append, read_batch
from tests.pipeline.table.lakes import TABLE, catalog_flags, data_files, faulty, lake, rows
from tests.pipeline.table.rest_catalog import rest_catalog
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ROOT = Path(__file__).parents[3]
JSON = {"bodyFormat": "json", "bodySchema": "id long, note string"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("table") / "store") as stack:
        yield stack


@pytest.fixture(scope="module")
def endpoint(stack: HostedStack) -> str:
    return str(stack.addresses["gateway"])


def fill(stack: HostedStack, topic: str, bodies: list[bytes], **fields: Any) -> None:
    append(stack.addresses["gateway"], topic, bodies, **fields)
    stack.wait_until_built()


def caught_up(endpoint: str, topic: str, catalog: Any, **options: str) -> dict[str, int]:
    return job.run(endpoint, topic, catalog, TABLE, options, until_caught_up=True).counts


def ids(catalog: Any) -> list[int]:
    return sorted(row["bodyValue"]["id"] for row in rows(catalog))


def test_the_table_has_the_rows_of_the_format_with_each_body_once(
    stack: HostedStack, endpoint: str, tmp_path: Path
) -> None:
    with Producer(endpoint) as producer:
        for i in range(40):
            producer.send("Same", b'{"id":%d}' % i, keys=[f"k{i}"], tags="T", properties={"p": str(i)}, queue_id=i % 4)
        producer.send("Same", b"no JSON", queue_id=0)
    stack.wait_until_built()
    catalog = lake(tmp_path)

    counts = caught_up(endpoint, "Same", catalog, **JSON)

    expected = read_batch(endpoint, subscribe="Same", includeBroker="true", **JSON)
    for row in expected:
        if row["bodyValue"] is not None:
            row["body"] = None
    found = rows(catalog)
    key = lambda row: (row["queueId"], row["queueOffset"])  # noqa: E731
    assert sorted(found, key=key) == sorted(expected, key=key)
    assert [row["body"] for row in found if row["bodyValue"] is None] == [b"no JSON"]
    assert (counts["row_count"], counts["commit_count"], counts["file_count"]) == (41, 1, 1)
    assert caught_up(endpoint, "Same", catalog, **JSON)["commit_count"] == 0


def test_a_run_goes_on_behind_the_one_before_with_new_queues_too(
    stack: HostedStack, endpoint: str, tmp_path: Path
) -> None:
    catalog = lake(tmp_path)
    fill(stack, "On", [b'{"id":%d}' % i for i in range(10)], queue_id=0)
    caught_up(endpoint, "On", catalog, **JSON)
    fill(stack, "On", [b'{"id":%d}' % i for i in range(10, 25)], queue_id=3)

    counts = caught_up(endpoint, "On", catalog, maxOffsetsPerTrigger="4", **JSON)

    assert ids(catalog) == list(range(25))
    assert (counts["row_count"], counts["commit_count"]) == (15, 4)


def test_a_table_that_begins_at_the_newest_message_misses_none_that_comes_later(
    stack: HostedStack, endpoint: str, tmp_path: Path
) -> None:
    """Each look for messages once began anew at what was the newest one then."""
    fill(stack, "Newest", [b'{"id":0}'])
    catalog = lake(tmp_path)
    assert caught_up(endpoint, "Newest", catalog, startingOffsets="latest", **JSON)["row_count"] == 0
    fill(stack, "Newest", [b'{"id":1}', b'{"id":2}'])
    assert caught_up(endpoint, "Newest", catalog, startingOffsets="latest", **JSON)["row_count"] == 2
    assert ids(catalog) == [1, 2]


def test_a_body_of_which_only_a_part_could_be_decoded_stays_beside_it(
    stack: HostedStack, endpoint: str, tmp_path: Path
) -> None:
    in_part = [b'{"id":9223372036854775808,"note":"n"}', b'{"id":"7"}', b'{"id":3} and more', b'{"id":4,"note":"\xff"}']
    fill(stack, "Parts", [b'{"id":1,"other":5}', *in_part, b'{"id":2}'])
    catalog = lake(tmp_path)
    caught_up(endpoint, "Parts", catalog, **JSON)
    found = rows(catalog)
    assert sorted(row["body"] for row in found if row["body"] is not None) == sorted(in_part)
    assert all(row["bodyValue"] is not None for row in found)


def test_a_body_that_cannot_be_decompressed_stays_as_it_is_and_stops_no_table(
    stack: HostedStack, endpoint: str, tmp_path: Path
) -> None:
    bodies = [zlib.compress(b'{"id":1}'), b"no zlib at all", zlib.compress(b"no JSON"), b'{"id":2}']
    messages = [
        NewMessage(topic="Damaged", body=body, queue_id=0, sys_flag=0x1 if number < 3 else 0)
        for number, body in enumerate(bodies)
    ]
    with grpc.insecure_channel(endpoint) as channel:
        GatewayServiceStub(channel).AppendMessages(AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
    stack.wait_until_built()

    caught_up(endpoint, "Damaged", lake(tmp_path / "plain"))
    assert [row["body"] for row in rows(lake(tmp_path / "plain"))] == [b'{"id":1}', bodies[1], b"no JSON", bodies[3]]

    for name, filtered in (("records", {}), ("messages", {"sql": "1 = 1"})):
        caught_up(endpoint, "Damaged", lake(tmp_path / name), **JSON, **filtered)
        found = rows(lake(tmp_path / name))
        assert [row["body"] for row in found] == [None, bodies[1], b"no JSON", None]
        assert [row["bodyValue"] and row["bodyValue"]["id"] for row in found] == [1, None, None, 2]


def test_a_rest_catalog_that_refuses_or_does_not_answer_gets_each_message_once(
    stack: HostedStack, endpoint: str, tmp_path: Path
) -> None:
    fill(stack, "Rest", [b'{"id":%d}' % i for i in range(20)])
    statuses = iter([0, 409, 0, 504, 0, 0])  # the first commit makes the table
    with rest_catalog(lake(tmp_path), lambda: next(statuses, 0)) as uri:
        catalog = opened_catalog("rest", {"type": "rest", "uri": uri})
        counts = caught_up(endpoint, "Rest", catalog, maxOffsetsPerTrigger="10", **JSON)
        assert ids(catalog) == list(range(20))
    assert (counts["row_count"], counts["refused_commit_count"]) == (20, 1)


def test_bodies_without_a_format_stay_and_are_decompressed(stack: HostedStack, endpoint: str, tmp_path: Path) -> None:
    fill(stack, "Plain", [b"a", b"b"])
    caught_up(endpoint, "Plain", lake(tmp_path))
    found = rows(lake(tmp_path))
    assert sorted(row["body"] for row in found) == [b"a", b"b"]
    assert "bodyValue" not in found[0]


def test_avro_and_protobuf_bodies_are_columns(stack: HostedStack, endpoint: str, tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro", reason="Avro bodies need the optional library fastavro")
    point = {"type": "record", "name": "P", "fields": [{"name": "id", "type": "long"}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, point, {"id": 7})
    fill(stack, "Avro", [out.getvalue()])
    caught_up(endpoint, "Avro", lake(tmp_path / "avro"), bodyFormat="avro", bodySchema=json.dumps(point))
    assert ids(lake(tmp_path / "avro")) == [7]

    shop(tmp_path)
    given = {"bodyFormat": "protobuf", "bodyDescriptor": str(tmp_path / "shop.binpb")}
    fill(stack, "Protobuf", [b"\x08\x05"])
    caught_up(endpoint, "Protobuf", lake(tmp_path / "protobuf"), bodyMessage="shop.v1.Point", **given)
    assert [row["bodyValue"]["x"] for row in rows(lake(tmp_path / "protobuf"))] == [5]
    with pytest.raises(InvalidArgumentError, match=r"bodyValue\.cash has no fields"):
        caught_up(endpoint, "Protobuf", lake(tmp_path / "order"), bodyMessage="shop.v1.Order", **given)


def test_a_schema_that_grows_changes_the_table_and_one_that_cannot_is_refused(
    stack: HostedStack, endpoint: str, tmp_path: Path
) -> None:
    catalog = lake(tmp_path)
    fill(stack, "Grows", [b'{"id":1}'])
    caught_up(endpoint, "Grows", catalog, bodyFormat="json", bodySchema="id int")
    fill(stack, "Grows", [b'{"id":5000000000,"note":"x"}'])
    with pytest.raises(InvalidArgumentError, match=r"bodyValue\.id is int in the table and string in the schema"):
        caught_up(endpoint, "Grows", catalog, bodyFormat="json", bodySchema="id string")
    caught_up(endpoint, "Grows", catalog, **JSON)
    assert sorted((row["bodyValue"]["id"], row["bodyValue"]["note"]) for row in rows(catalog)) == [
        (1, None),
        (5000000000, "x"),
    ]


@pytest.mark.parametrize("fault", ["refused", "lost", "answer lost"])
def test_every_second_commit_fails_and_each_message_is_there_once(
    stack: HostedStack, endpoint: str, tmp_path: Path, fault: str
) -> None:
    topic = f"Faults{fault[:3]}{len(fault)}"
    fill(stack, topic, [b'{"id":%d}' % i for i in range(30)])
    catalog = faulty(tmp_path)
    catalog.create_namespace("shop")
    catalog.fault = lambda number: fault if number % 2 and number > 2 else ""

    counts = caught_up(endpoint, topic, catalog, maxOffsetsPerTrigger="7", **JSON)

    assert ids(catalog) == list(range(30))
    assert counts["row_count"] == 30


def test_two_runs_at_once_add_each_message_once(stack: HostedStack, endpoint: str, tmp_path: Path) -> None:
    fill(stack, "Two", [b'{"id":%d}' % i for i in range(200)])
    lake(tmp_path)
    counts: list[dict[str, int]] = []

    def keep() -> None:
        counts.append(caught_up(endpoint, "Two", lake(tmp_path), maxOffsetsPerTrigger="20", **JSON))

    threads = [threading.Thread(target=keep) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)

    assert ids(lake(tmp_path)) == list(range(200))
    assert [sum(each["row_count"] for each in counts), len(counts)] == [200, 2]
    assert len(data_files(tmp_path)) == sum(each["file_count"] for each in counts), "what was overtaken is removed"


def test_a_run_that_is_always_overtaken_ends_with_a_name(
    stack: HostedStack, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(stack, "Late", [b'{"id":%d}' % i for i in range(10)])
    slow = faulty(tmp_path)
    monkeypatch.setattr(job, "OVERTAKEN_COUNT_MAX", 3)

    def overtake() -> None:
        if slow.commit_count > 1:
            run = {"maxOffsetsPerTrigger": "1", **JSON}
            job.run(endpoint, "Late", lake(tmp_path), TABLE, run, stop_event=_stopped_after_one(), commit_seconds=0.1)

    slow.before = overtake
    with pytest.raises(ResourceBusyError, match=r"shop\.orders 3 times in a row"):
        caught_up(endpoint, "Late", slow, maxOffsetsPerTrigger="2", **JSON)
    assert ids(lake(tmp_path)) == [0, 1, 2]


def _stopped_after_one() -> threading.Event:
    """An event that is set when it is asked for the second time: the run makes one micro-batch."""

    class Once(threading.Event):
        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 1

        def wait(self, timeout: float | None = None) -> bool:
            return True

    return Once()


def test_messages_that_the_store_lost_are_named_and_skipped_only_if_told(
    stack: HostedStack, endpoint: str, tmp_path: Path
) -> None:
    """A queue that ends before the table's position: its log was cut or replaced."""
    fill(stack, "Lost", [b'{"id":1}', b'{"id":2}'], queue_id=0)
    ahead = json.dumps({"Lost": {"0": 9} | {str(queue): 0 for queue in range(1, 8)}})
    with pytest.raises(DataLostError, match="queue 0 of topic 'Lost'"):
        caught_up(endpoint, "Lost", lake(tmp_path), startingOffsets=ahead, **JSON)
    shown = run_command(*command(tmp_path, endpoint, "Lost", "--until-caught-up", f"--option=startingOffsets={ahead}"))
    assert (shown.returncode, "DATA_LOST" in shown.stderr, "failOnDataLoss=false" in shown.stderr) == (3, True, True)
    assert (
        caught_up(endpoint, "Lost", lake(tmp_path), startingOffsets=ahead, failOnDataLoss="false", **JSON)["row_count"]
        == 0
    )


def test_a_queue_that_begins_anew_is_named_and_read_from_its_first_message_if_told(tmp_path: Path) -> None:
    """A broker that deletes a topic and makes it again begins its queues at 0; our own go on behind what was deleted."""
    catalog = lake(tmp_path / "lake")
    with hosted_stack(tmp_path / "before") as stack:
        fill(stack, "Anew", [b'{"id":%d}' % i for i in range(10)], queue_id=0)
        caught_up(stack.addresses["gateway"], "Anew", catalog, **JSON)
    with hosted_stack(tmp_path / "after") as stack:
        endpoint = stack.addresses["gateway"]
        fill(stack, "Anew", [b'{"id":%d}' % i for i in range(100, 104)], queue_id=0)
        with pytest.raises(
            DataLostError, match=r"Messages 4 to 9 of queue 0 of topic 'Anew'.* the queue ends at 4.*made again"
        ):
            caught_up(endpoint, "Anew", catalog, **JSON)
        assert ids(catalog) == list(range(10))

        counts = caught_up(endpoint, "Anew", catalog, failOnDataLoss="false", **JSON)

        assert counts["row_count"] == 4
        assert ids(catalog) == [*range(10), *range(100, 104)]
        fill(stack, "Anew", [b'{"id":104}'], queue_id=0)
        assert caught_up(endpoint, "Anew", catalog, **JSON)["row_count"] == 1
    assert ids(catalog) == [*range(10), *range(100, 105)]


def test_of_a_log_that_was_cut_only_what_is_new_is_added(tmp_path: Path) -> None:
    """A store that is restored from a copy: its queue ends before the table's position, too, and the table has its messages."""
    catalog = lake(tmp_path / "lake")
    with hosted_stack(tmp_path / "store") as stack:
        fill(stack, "Cut", [b'{"id":%d}' % i for i in range(4)], queue_id=0)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with hosted_stack(tmp_path / "store") as stack:
        fill(stack, "Cut", [b'{"id":%d}' % i for i in range(4, 10)], queue_id=0)
        caught_up(stack.addresses["gateway"], "Cut", catalog, **JSON)
    with hosted_stack(tmp_path / "copy") as stack:
        fill(stack, "Cut", [b'{"id":50}', b'{"id":51}'], queue_id=0)
        lenient = {"failOnDataLoss": "false", **JSON}
        assert caught_up(stack.addresses["gateway"], "Cut", catalog, **lenient)["row_count"] == 2
    assert ids(catalog) == [*range(10), 50, 51]


def test_a_topic_that_is_deleted_and_made_again_here_goes_on(stack: HostedStack, endpoint: str, tmp_path: Path) -> None:
    fill(stack, "Again", [b'{"id":%d}' % i for i in range(5)], queue_id=0)
    caught_up(endpoint, "Again", lake(tmp_path), **JSON)
    stack.gateway.DeleteTopic(DeleteTopicRequest(topic="Again"), timeout=WAIT_SECONDS_MAX)
    fill(stack, "Again", [b'{"id":%d}' % i for i in range(5, 7)], queue_id=0)
    assert caught_up(endpoint, "Again", lake(tmp_path), **JSON)["row_count"] == 2
    assert ids(lake(tmp_path)) == list(range(7))


def test_a_worker_that_fails_in_the_middle_of_a_micro_batch_adds_nothing_of_it(
    stack: HostedStack, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue_id in range(2):
        fill(stack, "Half", [b'{"id":%d}' % (10 * queue_id + i) for i in range(10)], queue_id=queue_id)
    catalog = lake(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(job, "FILE_ROW_COUNT_MIN", 1)  # two workers, each with files of its own
        written = TopicTable.write
        calls = itertools.count()

        def write(target: TopicTable, rows: Any) -> Any:
            if next(calls):
                raise OSError("the disk is full")
            return written(target, rows)

        patched.setattr(TopicTable, "write", write)
        with pytest.raises(OSError, match="the disk is full"):
            caught_up(endpoint, "Half", catalog, **JSON)
    assert (rows(catalog), len(data_files(tmp_path))) == ([], 1)

    caught_up(endpoint, "Half", catalog, **JSON)

    assert ids(catalog) == list(range(20))


def test_bodies_that_inflate_to_much_are_never_in_memory_together(
    stack: HostedStack, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 bodies of 300 bytes inflate to 15 MiB here; 64 MiB of a micro-batch once did to as many GiB."""
    body = zlib.compress(bytes(256 << 10))
    messages = [NewMessage(topic="Bombs", body=body, queue_id=number % 2, sys_flag=0x1) for number in range(60)]
    with grpc.insecure_channel(endpoint) as channel:
        GatewayServiceStub(channel).AppendMessages(AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
    stack.wait_until_built()
    monkeypatch.setattr(job, "BATCH_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(job, "HELD_BYTES_MAX", 3 << 20)
    sizes: list[int] = []
    written = TopicTable.write

    def write(target: TopicTable, rows: Any) -> Any:
        sizes.extend([rows.nbytes] if len(rows) else [])
        return written(target, rows)

    monkeypatch.setattr(TopicTable, "write", write)

    counts = caught_up(endpoint, "Bombs", lake(tmp_path))

    assert max(sizes) <= 5 << 20, "what is held, and a batch of each thread"
    assert counts["file_count"] == len(sizes) >= 4
    assert [row["body"] for row in rows(lake(tmp_path))] == [bytes(256 << 10)] * 60


def test_options_that_the_job_sets_are_refused(endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="Option view is set by the job itself"):
        caught_up(endpoint, "Same", lake(tmp_path), VIEW="kafka")
    with pytest.raises(OptionError, match="There is no option 'bodyformats'"):
        caught_up(endpoint, "Same", lake(tmp_path), bodyformats="json")


def test_a_group_of_the_table_has_its_positions(stack: HostedStack, endpoint: str, tmp_path: Path) -> None:
    fill(stack, "Grouped", [b"a", b"b", b"c"], queue_id=0)
    caught_up(endpoint, "Grouped", lake(tmp_path), consumerGroup="table-grouped")
    done = run_command("lag", "table-grouped", "-o", "json", REPUT_ADDRESS=endpoint)
    assert done.returncode == 0, done.stderr
    assert sum(int(queue.get("lag") or 0) for queue in json.loads(done.stdout)["queues"]) == 0


def command(directory: Path, endpoint: str, topic: str, *more: str) -> list[str]:
    options = [f"--option={name}={value}" for name, value in JSON.items()]
    verb = ["pipeline", "table", "--topic", topic, "--table", TABLE, "--address", endpoint]
    return [*verb, *catalog_flags(directory), *options, *more]


def test_the_command_adds_deletes_and_refuses(stack: HostedStack, endpoint: str, tmp_path: Path) -> None:
    fill(stack, "Command", [b'{"id":%d}' % i for i in range(3)], keys=["k"])
    fill(stack, "Command", [b'{"id":9}'], keys=["user-9"])

    done = run_command(*command(tmp_path, endpoint, "Command", "--until-caught-up"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["row_count"] == 4

    deleted = run_command(*command(tmp_path, endpoint, "Command", "--delete-key", "user-9"))
    assert (deleted.returncode, json.loads(deleted.stdout)["counts"]["deleted_count"]) == (0, 1)
    assert "expire them" in json.loads(deleted.stdout)["notes"][0]
    assert run_command(*command(tmp_path, endpoint, "Command", "--delete-key", "user-9")).returncode == 1
    assert ids(lake(tmp_path)) == [0, 1, 2]

    for wrong, said in (
        (("--option", "bodyformat"), "--option 'bodyformat' is not NAME=VALUE"),
        (("--option", "bodySchema=id"), "bodySchema"),
        (("--topic", ""), "--topic is missing"),
        (("--table", "orders"), "'orders' is not NAMESPACE.TABLE"),
        (("--catalog-property", "type=none"), "The catalog 'lake' cannot be opened"),
    ):
        refused = run_command(*command(tmp_path, endpoint, "Command", *wrong))
        assert refused.returncode == 2
        assert said in " ".join(refused.stderr.split())
    gone = run_command(*command(tmp_path, endpoint, "NoTopic", "--table", "shop.none"))
    assert (gone.returncode, "No shard has a topic 'NoTopic'" in gone.stderr) == (1, True)
    assert not lake(tmp_path).table_exists("shop.none"), "what is refused makes no table"


def test_without_pyiceberg_the_command_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    refused = run_command("pipeline", "table", "--topic", "T", "--table", TABLE)
    assert refused.returncode == 2
    assert "reput[pipeline,table]" in refused.stderr


@pytest.mark.long
def test_a_run_killed_again_and_again_adds_each_message_once(stack: HostedStack, endpoint: str, tmp_path: Path) -> None:
    fill(stack, "Killed", [b'{"id":%d}' % i for i in range(300)])
    arguments = command(tmp_path, endpoint, "Killed", "--option=maxOffsetsPerTrigger=5", "--commit-seconds=0.1")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))}
    lake(tmp_path)
    for life in (1, 2):
        process = subprocess.Popen([sys.executable, "-m", "cli.main", *arguments], cwd=ROOT, env=environ)
        try:
            wait_until(lambda: len(data_files(tmp_path)) >= 10 * life, "files of the table")  # noqa: B023
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(WAIT_SECONDS_MAX)
    half = ids(lake(tmp_path))
    assert len(half) == len(set(half)) < 300

    caught_up(endpoint, "Killed", lake(tmp_path), **JSON)

    assert ids(lake(tmp_path)) == list(range(300))
