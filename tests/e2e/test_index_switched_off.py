"""Without an index, a key query never says that nothing is there."""

import pathlib

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.stack import hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX


def test_a_key_query_without_an_index_is_partial(tmp_path: pathlib.Path) -> None:
    """`REPUT_INDEX_ENABLED=false` (RocketMQ: messageIndexEnable) leaves the other modes whole."""
    with hosted_stack(tmp_path / "store", settings={"REPUT_INDEX_ENABLED": "false"}) as stack:
        message = new_message("T", b"hello", keys=["k"])
        result = stack.gateway.AppendMessages(
            pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX
        ).results[0]

        by_key = stack.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="T", key="k"), timeout=WAIT_SECONDS_MAX
        )
        by_id = stack.gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id=result.offset_msg_id), timeout=WAIT_SECONDS_MAX
        )

    assert by_key.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert by_id.message.body == b"hello"
