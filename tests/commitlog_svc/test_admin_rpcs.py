"""Config files, topics and fenced appends over gRPC, with the client that other services use."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from commitlog_svc.append.message_check import MESSAGE_COUNT_MAX
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.config_files import CONFIG_FILE_BYTES_MAX
from commitlog_svc.servicer import CommitLogServicer, add_to_server
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from services.calling.commitlog import CommitLogClient
from services.rpcs import commitlog as rpc
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from services.status import error_info, status_of
from store.errors import (
    FollowerFencedError,
    InvalidArgumentError,
    InvalidMessageError,
    StoreReadOnlyError,
    TopicExistsError,
    TopicNotFoundError,
)
from tests.commitlog_svc.internal import all_records, internal_record
from tests.commitlog_svc.support import append, new_message, open_log
from tests.support.waiting import WAIT_SECONDS_MAX

NAME = "subscriptionGroup.json"
FIFO, DELAY = message_pb2.MESSAGE_TYPE_FIFO, message_pb2.MESSAGE_TYPE_DELAY


class Served:
    """A log, the address of its service, and a client."""

    def __init__(self, log: CommitLog, address: str) -> None:
        self.log = log
        self.address = address
        self.client = CommitLogClient(address)


@contextlib.contextmanager
def serving(root: Path, **settings: Any) -> Iterator[Served]:
    with open_log(root, **settings) as log:
        server = ServiceServer("commitlog", ServiceSettings(address="127.0.0.1:0", worker_count=8))
        servicer = CommitLogServicer(log, "broker-a", "127.0.0.1:10911")
        server.add("reput.commitlog.v1.CommitLogService", add_to_server, servicer)
        address = server.start()
        ended = threading.Thread(target=server.serve_until_stopped)
        ended.start()
        served = Served(log, address)
        try:
            yield served
        finally:
            served.client.close()
            server.stop()
            ended.join()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "store") as served:
        yield served


def test_a_file_larger_than_a_message_of_grpc_goes_there_and_back_in_parts(served: Served, tmp_path: Path) -> None:
    content = b'{"text":"%s"}' % (b"0123456789abcdef" * (CONFIG_FILE_BYTES_MAX // 16 - 1))
    assert served.client.read_config_file(NAME) is None

    served.client.write_config_file(NAME, content, timeout_seconds=60)

    assert (tmp_path / "store" / "config" / NAME).read_bytes() == content
    assert served.client.read_config_file(NAME, timeout_seconds=60) == content
    served.client.write_config_file(NAME, b"{}")
    assert served.client.read_config_file(NAME) == b"{}"
    assert (tmp_path / "store" / "config" / f"{NAME}.bak").read_bytes() == content


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        ("topics.json", b"{}", "name"),
        ("../checkpoint", b"{}", "name"),
        (NAME, b"", "content"),
        (NAME, bytes(CONFIG_FILE_BYTES_MAX + 1), "content"),
    ],
)
def test_a_file_that_is_not_allowed_is_refused_by_its_field(
    served: Served, tmp_path: Path, name: str, content: bytes, field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        served.client.write_config_file(name, content, timeout_seconds=60)
    assert refused.value.metadata["field"] == field
    assert not (tmp_path / "store" / "config").exists()


def test_a_call_that_ends_before_its_last_part_changes_nothing(served: Served) -> None:
    served.client.write_config_file(NAME, b'{"old":1}')
    with grpc.insecure_channel(served.address) as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        parts = [
            pb.WriteConfigFileRequest(name=NAME, content=b"ne"),
            pb.WriteConfigFileRequest(name=NAME, content=b"w"),
        ]

        assert len(list(stub.WriteConfigFile(iter(parts), timeout=WAIT_SECONDS_MAX))) == 2
    assert served.client.read_config_file(NAME) == b'{"old":1}'


def test_one_request_is_enough_for_a_small_file(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        request = pb.WriteConfigFileRequest(name="delayOffset.json", content=b"{}", is_last=True)
        assert len(list(stub.WriteConfigFile(iter([request]), timeout=WAIT_SECONDS_MAX))) == 1
        (answer,) = stub.ReadConfigFile(pb.ReadConfigFileRequest(name="delayOffset.json"), timeout=WAIT_SECONDS_MAX)
        assert (answer.exists, answer.content) == (True, b"{}")
        (absent,) = stub.ReadConfigFile(pb.ReadConfigFileRequest(name="timercheck"), timeout=WAIT_SECONDS_MAX)
        assert (absent.exists, absent.content) == (False, b"")


def test_a_topic_is_created_changed_listed_and_deleted(served: Served) -> None:
    client = served.client
    created = client.call(
        rpc.CREATE_TOPIC, pb.CreateTopicRequest(topic="Orders", queue_count=4, message_type=FIFO)
    ).topic
    assert (created.write_queue_count, created.read_queue_count, created.perm) == (4, 4, 6)
    assert (
        created
        == client.call(rpc.CREATE_TOPIC, pb.CreateTopicRequest(topic="Orders", queue_count=4, message_type=FIFO)).topic
    )

    updated = client.call(
        rpc.UPDATE_TOPIC, pb.UpdateTopicRequest(topic="Orders", write_queue_count=2, message_type=DELAY)
    ).topic
    assert (updated.write_queue_count, updated.read_queue_count, updated.message_type) == (2, 4, DELAY)
    append(served.log, new_message(topic="Plain"))
    listed = {topic.topic: topic for topic in client.call(rpc.LIST_TOPICS, pb.ListTopicsRequest()).topics}
    assert listed["Orders"] == updated
    assert (listed["Plain"].message_type, listed["Plain"].perm) == (message_pb2.MESSAGE_TYPE_UNSPECIFIED, 6)

    assert client.call(rpc.DELETE_TOPIC, pb.DeleteTopicRequest(topic="Orders")).existed is True
    assert client.call(rpc.DELETE_TOPIC, pb.DeleteTopicRequest(topic="Orders")).existed is False
    assert {topic.topic for topic in client.call(rpc.LIST_TOPICS, pb.ListTopicsRequest()).topics} == {"Plain"}


@pytest.mark.parametrize(
    "number",
    [
        FIFO,
        DELAY,
        message_pb2.MESSAGE_TYPE_NORMAL,
        message_pb2.MESSAGE_TYPE_TRANSACTION,
        message_pb2.MESSAGE_TYPE_MIXED,
    ],
)
def test_each_message_type_is_listed_as_it_was_given(served: Served, number: int) -> None:
    created = served.client.call(rpc.CREATE_TOPIC, pb.CreateTopicRequest(topic="T", message_type=number)).topic
    (listed,) = served.client.call(rpc.LIST_TOPICS, pb.ListTopicsRequest()).topics

    assert created.message_type == listed.message_type == number
    assert served.log.topics.all()[0].attributes == {
        "message.type": message_pb2.MessageType.Name(number).removeprefix("MESSAGE_TYPE_")
    }
    request = pb.UpdateTopicRequest(topic="T", message_type=message_pb2.MESSAGE_TYPE_UNSPECIFIED)
    taken_away = served.client.call(rpc.UPDATE_TOPIC, request).topic
    assert taken_away.message_type == message_pb2.MESSAGE_TYPE_UNSPECIFIED
    assert served.log.topics.all()[0].attributes == {}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"topic": "a b"}, "topic"),
        ({"topic": "TBW102"}, "topic"),
        ({"topic": "a", "queue_count": -1}, "queue_count"),
        ({"topic": "a", "queue_count": 65_537}, "queue_count"),
        ({"topic": "a", "perm": 3}, "perm"),
        ({"topic": "a", "message_type": 9}, "message_type"),
    ],
)
def test_a_refused_creation_names_its_field(served: Served, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        served.client.call(rpc.CREATE_TOPIC, pb.CreateTopicRequest(**fields))
    assert refused.value.metadata["field"] == field
    assert list(served.client.call(rpc.LIST_TOPICS, pb.ListTopicsRequest()).topics) == []


def test_an_update_of_no_topic_and_a_creation_of_another_have_errors_of_their_own(served: Served) -> None:
    with pytest.raises(TopicNotFoundError):
        served.client.call(rpc.UPDATE_TOPIC, pb.UpdateTopicRequest(topic="a", perm=4))
    served.client.call(rpc.CREATE_TOPIC, pb.CreateTopicRequest(topic="a", queue_count=1))
    with pytest.raises(TopicExistsError):
        served.client.call(rpc.CREATE_TOPIC, pb.CreateTopicRequest(topic="a", queue_count=2))
    with grpc.insecure_channel(served.address) as channel, pytest.raises(grpc.RpcError) as refused:
        pb_grpc.CommitLogServiceStub(channel).CreateTopic(
            pb.CreateTopicRequest(topic="a", perm=4), timeout=WAIT_SECONDS_MAX
        )
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    status = status_of(refused.value)
    assert status is not None
    info = error_info(status)
    assert info is not None
    assert info.reason == "TOPIC_EXISTS"


def test_a_follower_that_has_started_again_fences_its_earlier_life(served: Served) -> None:
    flush = message_pb2.FLUSH_MODE_SYNC
    old = served.client.append_internal([internal_record(b"1")], flush=flush, follower="consumer", follower_epoch=5)
    served.client.append_internal([internal_record(b"2")], flush=flush, follower="consumer", follower_epoch=6)

    with pytest.raises(FollowerFencedError) as refused:
        served.client.append_internal([internal_record(b"3")], flush=flush, follower="consumer", follower_epoch=5)

    assert refused.value.metadata["currentEpoch"] == "6"
    assert old[0].commit_log_offset == 0
    assert [record.body for record in all_records(served.log)] == [b"1", b"2"]
    with grpc.insecure_channel(served.address) as channel, pytest.raises(grpc.RpcError) as by_stub:
        request = pb.AppendInternalRequest(records=[internal_record()], follower="consumer", follower_epoch=1)
        pb_grpc.CommitLogServiceStub(channel).AppendInternal(request, timeout=WAIT_SECONDS_MAX)
    assert by_stub.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    served.client.append_internal([internal_record(b"no name")], flush=flush)


def test_topics_that_are_not_there_are_made_together_and_nothing_is_appended(served: Served) -> None:
    made = [f"%RETRY%g{number}" for number in range(MESSAGE_COUNT_MAX)]
    writes: list[None] = []
    served.client.call(rpc.CREATE_TOPIC, pb.CreateTopicRequest(topic="%RETRY%g0", queue_count=4), WAIT_SECONDS_MAX)
    topics = served.log.topics
    topics.on_written.append(lambda: writes.append(None))

    def make(names: list[str]) -> pb.AppendInternalResponse:
        return served.client.call(rpc.APPEND_INTERNAL, pb.AppendInternalRequest(new_topics=names), WAIT_SECONDS_MAX)

    for names in ([*made, "%RETRY%g"], ["%RETRY%g", "no topic"]):
        with pytest.raises(InvalidArgumentError if len(names) > MESSAGE_COUNT_MAX else InvalidMessageError):
            make(names)
    assert not make(made).results
    make(made)

    assert len(writes) == 1
    assert [topics.readable_queue_count(name) for name in made] == [4] + [1] * (MESSAGE_COUNT_MAX - 1)
    assert topics.find("%RETRY%g") is None
    assert all_records(served.log) == []


def test_a_read_only_store_shows_files_and_topics_and_takes_none(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as served:
        served.client.write_config_file(NAME, b"{}")
        served.client.call(rpc.CREATE_TOPIC, pb.CreateTopicRequest(topic="a"))

    with serving(tmp_path / "store", read_only=True) as served:
        client = served.client
        assert client.read_config_file(NAME) == b"{}"
        assert [topic.topic for topic in client.call(rpc.LIST_TOPICS, pb.ListTopicsRequest()).topics] == ["a"]
        for call in (
            lambda: client.write_config_file(NAME, b"[]"),
            lambda: client.call(rpc.CREATE_TOPIC, pb.CreateTopicRequest(topic="b")).topic,
            lambda: client.call(rpc.APPEND_INTERNAL, pb.AppendInternalRequest(new_topics=["b"])),
            lambda: client.call(rpc.UPDATE_TOPIC, pb.UpdateTopicRequest(topic="a", perm=4)).topic,
            lambda: client.call(rpc.DELETE_TOPIC, pb.DeleteTopicRequest(topic="a")).existed,
        ):
            with pytest.raises(StoreReadOnlyError):
                call()


def test_a_service_that_asks_what_was_deleted_gets_no_row_of_the_topics(served: Served) -> None:
    append(served.log, new_message(topic="Gone"), new_message(topic="Kept"))
    end = served.log.status.end_offset
    served.log.opened.topic_commands.delete("Gone")
    answer = served.client.call(rpc.LIST_TOPICS, pb.ListTopicsRequest(without_topics=True))
    assert (list(answer.topics), dict(answer.deleted_before)) == ([], {"Gone": end})
    assert served.client.call(
        rpc.LIST_TOPICS, pb.ListTopicsRequest(known_version=answer.version)
    ) == pb.ListTopicsResponse(version=answer.version)
    assert [row.topic for row in served.client.call(rpc.LIST_TOPICS, pb.ListTopicsRequest()).topics] == ["Kept"]
