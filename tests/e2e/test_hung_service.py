"""A service that hangs is named before the caller's deadline, also with one shard."""

import json
import pathlib
import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.status import from_rpc_error
from store.errors import ServiceUnavailableError
from tests.support.command import run_command
from tests.support.halting import halt, resume
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = pytest.mark.life

TOPIC, KEY = "Hung", "k"
DEADLINE_SECONDS = 8


@pytest.fixture
def stack(tmp_path: pathlib.Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "store", "--followers-apart") as running:
        request = pb.AppendMessagesRequest(messages=[new_message(TOPIC, b"body", keys=[KEY], queue_id=0)])
        running.gateway.AppendMessages(request, timeout=60)
        running.wait_until_built()
        yield running


def test_an_index_that_hangs_took_the_whole_deadline_and_was_not_named(stack: Stack) -> None:
    by_key = pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY)
    by_offset = pb.QueryMessageByOffsetRequest(topic=TOPIC, queue_id=0)
    index = stack.children()["index_svc"]
    halt(index)
    try:
        for _ in range(2):  # also when it is known to hang
            with pytest.raises(grpc.RpcError) as refused:
                stack.gateway.QueryMessageByKey(by_key, timeout=DEADLINE_SECONDS)
            error = from_rpc_error(refused.value)
            assert isinstance(error, ServiceUnavailableError), error
            assert (error.metadata["service"], error.metadata["brokerName"]) == ("index", "broker-a")
            assert "index of shard broker-a" in error.message
        whole = stack.gateway.QueryMessageByOffset(by_offset, timeout=WAIT_SECONDS_MAX)
        found = run_command("find", KEY, "--timeout", str(DEADLINE_SECONDS), REPUT_ADDRESS=stack.addresses["gateway"])
        page = f"http://{stack.addresses['console']}/?mode=key&topic={TOPIC}&key={KEY}&last=all&format=json"
        with pytest.raises(HTTPError) as failed:
            urllib.request.urlopen(page, timeout=60)
        document = json.load(failed.value)
    finally:
        resume(index)

    assert [message.body for message in whole.messages] == [b"body"], "another service of the shard"
    assert whole.completeness == message_pb2.COMPLETENESS_COMPLETE
    assert found.returncode != 0
    assert "index of shard broker-a" in found.stderr
    assert failed.value.code == 503
    assert "index of shard broker-a" in document["message"]
    healed = stack.gateway.QueryMessageByKey(by_key, timeout=60)
    assert [message.body for message in healed.messages] == [b"body"]
