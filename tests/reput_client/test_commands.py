"""Delays, handles and verdicts as requests of the contract, without a network."""

from datetime import UTC, datetime, timedelta

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import AsyncTransactionProducer, NewMessage, SendReceipt, TransactionProducer, TransactionResolution
from reput_client.commands import end_question, recall_question, topic_of_handle, with_delay
from reput_client.encoding import to_message
from reput_client.producing.requests import reply_of
from reput_client.producing.transactions import half_of
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, encode_handle

HANDLE = WaitingHandle("Orders", "broker-a", 5_000, "a key with spaces")


@pytest.mark.parametrize("kind", [RECALL, TRANSACTION])
def test_the_topic_in_a_handle_of_the_server_is_read(kind: str) -> None:
    assert topic_of_handle(encode_handle(kind, HANDLE)) == "Orders"


@pytest.mark.parametrize("text", ["", "made up", "bm90IGEgaGFuZGxl", "djEgYSBi"])
def test_a_text_that_is_no_handle_is_refused_before_any_call(text: str) -> None:
    with pytest.raises(ValueError, match=r"no recall handle|no recall_handle"):
        recall_question(text)


def test_a_recall_takes_a_receipt_or_its_handle() -> None:
    text = encode_handle(RECALL, HANDLE)
    receipt = SendReceipt(message_pb2.AppendResult(recall_handle=text))
    expected = pb.RecallMessageRequest(topic="Orders", recall_handle=text)
    assert recall_question(receipt).request == recall_question(text).request == expected
    with pytest.raises(ValueError, match="does not wait"):
        recall_question(SendReceipt(message_pb2.AppendResult()))


def test_a_verdict_names_the_topic_of_its_id_and_unknown_is_none() -> None:
    text = encode_handle(TRANSACTION, HANDLE)
    request = end_question("", text, TransactionResolution.ROLLBACK, is_from_check=True).request
    assert (request.topic, request.resolution, request.is_from_check) == (
        "Orders",
        pb.TRANSACTION_RESOLUTION_ROLLBACK,
        True,
    )
    with pytest.raises(ValueError, match="UNKNOWN"):
        end_question("Orders", text, TransactionResolution.UNKNOWN)


def test_a_delay_becomes_rocketmqs_property_which_the_store_counts_from_its_own_clock() -> None:
    assert with_delay({"a": "b"}, timedelta(seconds=1.5)) == {"a": "b", "TIMER_DELAY_MS": "1500"}
    assert with_delay(None, None) is None
    assert with_delay(None, timedelta()) is None
    with pytest.raises(ValueError, match="negative"):
        with_delay(None, timedelta(seconds=-1))


def test_a_message_has_its_delivery_time_and_delay_level() -> None:
    due = datetime(2030, 1, 1, tzinfo=UTC)
    message = to_message(*NewMessage("T", b"x", delivery_time=due, delay_level=3))
    assert (message.delivery_time.seconds, message.delay_level) == (int(due.timestamp()), 3)
    with pytest.raises(ValueError, match="time zone"):
        to_message(*NewMessage("T", b"x", delivery_time=datetime(2030, 1, 1)))  # what is refused


def test_a_half_message_is_marked_for_all_producers_of_its_topic() -> None:
    half = half_of(NewMessage("Orders", b"x", properties={"a": "b"}), "K", 90)
    assert half.properties == {
        "a": "b",
        "TRAN_MSG": "true",
        "PGROUP": "Orders",
        "CHECK_IMMUNITY_TIME_IN_SECONDS": "90",
    }
    assert half.unique_key == "K"
    assert half_of(NewMessage("T", b"x", unique_key="mine"), "K", None).unique_key == "mine"
    for waiting in (NewMessage("T", b"x", delay_level=1), NewMessage("T", b"x", delivery_time=datetime.now(UTC))):
        with pytest.raises(ValueError, match="delivery_time"):
            half_of(waiting, "K", None)


@pytest.mark.parametrize("kind", [TransactionProducer, AsyncTransactionProducer])
@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"topics": ["T"]}, ValueError), ({"checker": print}, ValueError), ({"topics": "T", "checker": print}, TypeError)],
)
def test_a_checker_and_its_topics_belong_together(kind: type, arguments: dict, error: type) -> None:
    with pytest.raises(error):
        kind("127.0.0.1:1", **arguments)


def test_a_reply_goes_to_the_topic_of_its_cluster_with_the_names_of_its_request() -> None:
    request = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "r", "TTL": "3000", "CLUSTER": "Home", "mine": "x"}
    reply = reply_of(request, b"yes", {"colour": "red"})
    assert (reply.topic, reply.body) == ("Home_REPLY_TOPIC", b"yes")
    assert reply.properties == {
        "colour": "red",
        "CORRELATION_ID": "c",
        "REPLY_TO_CLIENT": "r",
        "TTL": "3000",
        "MSG_TYPE": "reply",
    }
    for missing in ("CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER"):
        with pytest.raises(ValueError, match=missing):
            reply_of({name: value for name, value in request.items() if name != missing}, b"", None)
