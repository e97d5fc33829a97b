"""A store with a batch queue (`queue.type=BatchCQ`) that RocketMQ 5.5.0 wrote: recognised, refused by name, never changed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import COMPLETENESS_PARTIAL
from tests.gateway.rocketmq.consumers import Consumer
from tests.support.fixture_stores import unpack_store
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

BATCHED, PLAIN = "Batched", "Plain"
BROKERS = ("batchconsumequeue/Batched/0/00000000000000000000", "commitlog/00000000000000000000")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_store("batch", tmp_path_factory.mktemp("batch") / "store")


@pytest.fixture(scope="module")
def before(root: Path) -> dict[str, bytes]:
    """Files of the broker, before Reput opens them."""
    return {name: (root / name).read_bytes() for name in BROKERS}


@pytest.fixture(scope="module")
def stack(root: Path, before: dict[str, bytes]) -> Iterator[HostedStack]:
    with hosted_stack(root) as one:
        one.wait_until_built()
        yield one
    assert {name: (root / name).read_bytes() for name in BROKERS[:1]} == {name: before[name] for name in BROKERS[:1]}
    assert not (root / "consumequeue" / BATCHED).exists()


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return str(caught.value.details())


def test_the_feature_is_told_by_name_with_its_topic(stack: HostedStack) -> None:
    status = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
    (log,) = [each for each in status.services if each.service == "commitlog"]
    assert any(f"batch queues ({BATCHED})" in told for told in log.features), log.features


@pytest.mark.parametrize(("key", "queue_offset"), [("b0", 0), ("b10", 4), ("b20", 8), ("alone", 12)])
def test_a_batch_is_found_by_its_key_as_mqadmin_finds_it(stack: HostedStack, key: str, queue_offset: int) -> None:
    """5.5.0's queryMsgByKey finds none by the keys of the messages inside of a batch."""
    request = pb.QueryMessageByKeyRequest(topic=BATCHED, key=key)
    (found,) = stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX).messages
    assert found.queue_offset == queue_offset
    inner = pb.QueryMessageByKeyRequest(topic=BATCHED, key="k11")
    assert not stack.gateway.QueryMessageByKey(inner, timeout=WAIT_SECONDS_MAX).messages


def test_the_range_of_the_queue_is_that_of_mqadmins_topic_status_and_the_list_says_partial(stack: HostedStack) -> None:
    answer = stack.gateway.ListTopics(pb.ListTopicsRequest(), timeout=WAIT_SECONDS_MAX)
    ranges = {row.topic: [(queue.min_offset, queue.max_offset) for queue in row.queues] for row in answer.topics}
    assert (ranges[BATCHED], ranges[PLAIN]) == ([(0, 13)], [(0, 3)])
    assert answer.completeness == COMPLETENESS_PARTIAL


def test_its_queues_are_refused_by_the_name_of_the_feature(stack: HostedStack) -> None:
    by_offset = pb.QueryMessageByOffsetRequest(topic=BATCHED, queue_id=0, queue_offset=4, max_messages=1)
    pull = pb.PullMessagesRequest(topic=BATCHED, queue_id=0, queue_offset=0)
    send = pb.AppendMessagesRequest(messages=[new_message(BATCHED, b"x")])
    for call in (
        lambda: stack.gateway.QueryMessageByOffset(by_offset, timeout=WAIT_SECONDS_MAX),
        lambda: list(stack.gateway.PullMessages(pull, timeout=WAIT_SECONDS_MAX)),
        lambda: stack.gateway.AppendMessages(send, timeout=WAIT_SECONDS_MAX),
    ):
        said = refused(call)
        assert BATCHED in said
        assert "batch queues" in said
    consumer = Consumer(stack.addresses["gateway"], topic=BATCHED)
    consumer.tell(consumer.settings())
    status = next(iter(consumer.poll(seconds=5))).status
    assert "batch queues" in status.message


def test_other_topics_of_the_store_go_on_where_the_broker_stopped(stack: HostedStack) -> None:
    request = pb.AppendMessagesRequest(messages=[new_message(PLAIN, b"next", queue_id=0)])
    (result,) = stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results
    assert result.queue_offset == 3


def test_the_log_of_the_broker_is_unchanged_up_to_its_end(
    stack: HostedStack, root: Path, before: dict[str, bytes]
) -> None:
    log = before[BROKERS[1]].rstrip(b"\0")
    assert (root / BROKERS[1]).read_bytes()[: len(log)] == log
