"""What answers hold, where the request does not say it: only what the caller may read."""

import asyncio
import contextlib
import json

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import AsyncProducer, AsyncQueryClient, ClientSecurity
from services.status import from_rpc_error, from_status
from store.errors import PermissionDeniedError, RecordNotFoundError, UnauthenticatedError
from store.format.message_id import decode_offset_msg_id, encode_offset_msg_id
from tests.gateway.auth.conftest import OTHER, OWN, As, SecuredStack, key_of, shown
from tests.support.waiting import WAIT_SECONDS_MAX


def refusal(call) -> Exception:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return from_rpc_error(refused.value)


def test_a_message_by_its_id_is_shown_to_those_alone_who_may_read_its_topic(secured: SecuredStack):
    reader = secured.as_client("own-reader")

    found = reader.QueryMessageById(
        pb.QueryMessageByIdRequest(offset_msg_id=secured.ids[OWN]), timeout=WAIT_SECONDS_MAX
    )
    error = refusal(
        lambda: reader.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id=secured.ids[OTHER]), timeout=WAIT_SECONDS_MAX
        )
    )

    assert found.message.topic == OWN
    assert isinstance(error, RecordNotFoundError)
    assert OTHER not in f"{error.message}{error.metadata}"


def _ask_by_id(secured: SecuredStack, client: str, offset_msg_id: str):
    """Each way to name a message by its id: as bytes of the answer or of the refusal, with the id and its offset taken out."""
    stub = secured.as_client(client)
    explain = pb.ExplainQueryRequest()
    explain.by_id.offset_msg_id = offset_msg_id
    _, offset = decode_offset_msg_id(offset_msg_id)
    answers = []
    for call in (
        lambda: stub.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id), timeout=WAIT_SECONDS_MAX
        ),
        lambda: list(stub.DownloadBody(pb.DownloadBodyRequest(offset_msg_id=offset_msg_id), timeout=WAIT_SECONDS_MAX)),
        lambda: stub.FindMessage(pb.FindMessageRequest(text=offset_msg_id), timeout=WAIT_SECONDS_MAX).matches,
        lambda: [
            (row.broker_name, row.error, len(row.lookups))
            for row in stub.ExplainQuery(explain, timeout=WAIT_SECONDS_MAX).shards
        ],
    ):
        try:
            said = str(call())
        except grpc.RpcError as refused:
            error = from_rpc_error(refused)
            said = f"{refused.code()} {type(error)} {error.message} {sorted(error.metadata.items())}"
        answers.append(said.replace(offset_msg_id, "ID").replace(str(offset), "OFFSET"))
    return answers


def test_an_id_of_a_foreign_message_is_answered_as_one_at_which_no_record_starts(secured: SecuredStack):
    """Otherwise anybody could find out where foreign records begin, how long they are and when they come."""
    host, offset = decode_offset_msg_id(secured.ids[OTHER])
    absent_id = encode_offset_msg_id(host, offset + 11)

    hidden = _ask_by_id(secured, "own-reader", secured.ids[OTHER])
    absent = _ask_by_id(secured, "own-reader", absent_id)

    assert hidden == absent
    assert "StatusCode.NOT_FOUND" in hidden[0]
    assert hidden != _ask_by_id(secured, "chief", secured.ids[OTHER])


def test_a_body_is_downloaded_by_those_alone_who_may_read_its_topic(secured: SecuredStack):
    reader = secured.as_client("own-reader")

    def download(topic: str) -> bytes:
        request = pb.DownloadBodyRequest(offset_msg_id=secured.ids[topic])
        return b"".join(part.chunk for part in reader.DownloadBody(request, timeout=WAIT_SECONDS_MAX))

    assert download(OWN) == b"body of shop-orders"
    assert isinstance(refusal(lambda: download(OTHER)), RecordNotFoundError)


@pytest.mark.parametrize(
    ("client", "topics"), [("own-reader", [OWN]), ("other-reader", [OTHER]), ("chief", [OTHER, OWN])]
)
def test_only_topics_that_may_be_read_are_listed_and_found_in(secured: SecuredStack, client, topics):
    stub = secured.as_client(client)

    listed = stub.ListTopics(pb.ListTopicsRequest(), timeout=WAIT_SECONDS_MAX)
    found = stub.FindMessage(pb.FindMessageRequest(text="common-key"), timeout=WAIT_SECONDS_MAX)

    assert [row.topic for row in listed.topics if row.topic in (OWN, OTHER)] == topics
    assert {match.message.topic for match in found.matches} == set(topics)
    assert found.completeness == message_pb2.COMPLETENESS_COMPLETE
    assert client == "chief" or [row.topic for row in listed.topics] == topics


@pytest.mark.parametrize("text_of", ["ids", "unique_keys"])
def test_find_does_not_find_a_foreign_message_by_whatever_names_it(secured: SecuredStack, text_of):
    text = getattr(secured, text_of)[OTHER]

    found = secured.as_client("own-reader").FindMessage(pb.FindMessageRequest(text=text), timeout=WAIT_SECONDS_MAX)

    assert list(found.matches) == []
    assert secured.chief.FindMessage(pb.FindMessageRequest(text=text), timeout=WAIT_SECONDS_MAX).matches


@pytest.mark.parametrize("kind", ["by_id", "find"])
def test_an_explanation_tells_nothing_of_foreign_messages(secured: SecuredStack, kind):
    request = pb.ExplainQueryRequest()
    if kind == "by_id":
        request.by_id.offset_msg_id = secured.ids[OTHER]
    else:
        request.find.text = secured.unique_keys[OTHER]

    try:
        answer = secured.as_client("own-reader").ExplainQuery(request, timeout=WAIT_SECONDS_MAX)
    except grpc.RpcError as error:
        assert error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED)  # noqa: PT017
        return

    assert answer.message_count == 0
    assert OTHER not in str(answer)


def test_a_batch_with_one_foreign_message_is_refused_whole(secured: SecuredStack):
    messages = [message_pb2.NewMessage(topic=topic, body=b"x", keys=["mixed"]) for topic in (OWN, OTHER)]

    error = refusal(
        lambda: secured.as_client("own-writer").AppendMessages(
            pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX
        )
    )

    assert isinstance(error, PermissionDeniedError)
    assert error.metadata["topic"] == OTHER
    secured.stack.wait_until_built()
    assert not secured.chief.FindMessage(pb.FindMessageRequest(text="mixed"), timeout=WAIT_SECONDS_MAX).matches


@pytest.mark.parametrize("message_count", [1, 64])
def test_a_topic_that_is_said_twice_is_one_topic_for_the_guard_and_for_the_store(secured: SecuredStack, message_count):
    """Two readers of the same bytes: what protobuf makes of them is checked, and the log's own scanner stores them."""

    def said_twice(first: str, last: str, body: bytes = b"said twice") -> bytes:
        parts = (message_pb2.NewMessage(topic=first), message_pb2.NewMessage(topic=last, body=body, keys=["twice"]))
        one = b"".join(part.SerializeToString() for part in parts)
        assert message_pb2.NewMessage.FromString(one).topic == last
        return (b"\x0a" + bytes([len(one)]) + one) * message_count

    append = secured.stack.channel.unary_unary("/reput.gateway.v1.GatewayService/AppendMessages")
    error = refusal(lambda: append(said_twice(OWN, OTHER), timeout=WAIT_SECONDS_MAX, metadata=shown("own-writer")))
    for _ in range(3):
        with contextlib.suppress(grpc.RpcError):  # the store may also refuse it, but not for its own reading of it
            append(said_twice(OTHER, OWN), timeout=WAIT_SECONDS_MAX, metadata=shown("own-writer"))
    secured.stack.wait_until_built()
    found = secured.chief.FindMessage(pb.FindMessageRequest(text="twice"), timeout=WAIT_SECONDS_MAX)

    assert isinstance(error, PermissionDeniedError)
    assert {match.message.topic for match in found.matches} == {OWN}


def test_rocketmqs_messages_are_refused_by_the_name_of_their_namespace(secured: SecuredStack):
    """`shop-orders` in a namespace is another topic, `namespace%shop-orders`."""
    channel = grpc.intercept_channel(secured.stack.channel)
    message = v2.Message(topic=v2.Resource(name=OWN, resource_namespace="elsewhere"), body=b"x")
    message.system_properties.message_id = "0123456789"

    with pytest.raises(grpc.RpcError) as refused:
        v2_grpc.MessagingServiceStub(channel).SendMessage(
            v2.SendMessageRequest(messages=[message]), timeout=WAIT_SECONDS_MAX, metadata=shown("own-writer")
        )

    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_stream_answers_a_refused_request_in_its_turn_and_goes_on(secured: SecuredStack):
    def requests():
        for topic in (OWN, OTHER, OTHER, OWN, OTHER):
            messages = [message_pb2.NewMessage(topic=name, body=b"x", keys=["streamed"]) for name in (OWN, topic)]
            yield pb.AppendMessageStreamRequest(messages=messages)

    answers = list(secured.as_client("own-writer").AppendMessageStream(requests(), timeout=WAIT_SECONDS_MAX))

    assert [len(answer.results) for answer in answers] == [2, 0, 0, 2, 0]
    refused = [from_status(answer.error) for answer in answers if answer.HasField("error")]
    assert [type(error) for error in refused] == [PermissionDeniedError] * 3
    assert {error.metadata["index"] for error in refused} == {"1"}
    secured.stack.wait_until_built()
    found = secured.chief.FindMessage(pb.FindMessageRequest(text="streamed"), timeout=WAIT_SECONDS_MAX)
    assert {match.message.topic for match in found.matches} == {OWN}
    assert len(found.matches) == 4


def test_a_stream_of_nobody_ends_before_a_request_is_taken(secured: SecuredStack):
    stream = secured.as_client(None).AppendMessageStream(iter([]), timeout=WAIT_SECONDS_MAX)

    assert isinstance(refusal(lambda: list(stream)), UnauthenticatedError)


def test_health_is_told_to_everybody_and_reflection_only_to_the_known(secured: SecuredStack):
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    channel = secured.stack.channel
    reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
    request = reflection_pb2.ServerReflectionRequest(list_services="")

    health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX)
    assert list(reflect(iter([request]), timeout=WAIT_SECONDS_MAX, metadata=shown("own-reader")))
    assert refusal(lambda: list(reflect(iter([request]), timeout=WAIT_SECONDS_MAX))) is not None


def test_who_did_what_stands_in_the_log_and_no_secret_or_body_does(secured: SecuredStack):
    """Level debug: what is there is there at every level."""
    writer, canary = secured.as_client("own-writer"), "canary-body-91c1"
    message = message_pb2.NewMessage(
        topic=OWN, body=canary.encode(), keys=["k"], properties={"p": f"{canary}-property"}
    )
    writer.AppendMessages(pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX)
    list(
        writer.AppendMessageStream(iter([pb.AppendMessageStreamRequest(messages=[message])]), timeout=WAIT_SECONDS_MAX)
    )
    message.topic = OTHER
    refusal(lambda: writer.AppendMessages(pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX))
    refusal(lambda: As(secured.stack.channel, "stranger").ListTopics(pb.ListTopicsRequest(), timeout=WAIT_SECONDS_MAX))
    secured.stack.wait_until_built()  # GetStatus: for admins

    log = secured.stack.log()
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{") and '"audit.' in line]
    by_event = {event["event"]: event for event in events}

    assert {"audit.denied", "audit.append", "audit.admin"} <= set(by_event)
    denied = next(
        e for e in events if e["event"] == "audit.denied" and e["client"] == "own-writer" and e["topic"] == OTHER
    )
    assert denied["outcome"] == "PERMISSION_DENIED"
    assert denied["method"].startswith("/")
    appended = next(e for e in events if e["event"] == "audit.append" and e["client"] == "own-writer")
    assert (appended["topic"], appended["outcome"]) == (OWN, "OK")
    for secret in (canary, "reput_test-key", "common-key"):
        assert secret not in log, secret


def test_a_client_that_is_taken_out_of_the_file_is_out(secured: SecuredStack, access_file):
    """Also in the middle of a stream; and a file that makes no sense takes nobody out."""
    import time

    text = access_file.read_text()
    wanted = text.replace('name = "own-writer"', 'name = "renamed"').replace('write = ["shop-*"]', "write = []", 1)
    stub = secured.as_client("own-writer")
    request = pb.AppendMessageStreamRequest(messages=[message_pb2.NewMessage(topic=OWN, body=b"x")])
    deadline = time.monotonic() + 20

    def requests():
        while time.monotonic() < deadline:
            yield request
            time.sleep(0.01)  # the pace of a sender

    try:
        stream = stub.AppendMessageStream(requests(), timeout=WAIT_SECONDS_MAX)
        assert next(stream).results
        access_file.write_text("this is no TOML [")
        assert next(stream).results
        access_file.write_text(wanted)
        error = next(from_status(answer.error) for answer in stream if answer.HasField("error"))
        stream.cancel()
    finally:
        access_file.write_text(text)

    assert isinstance(error, PermissionDeniedError)
    while True:  # as it was, for the other tests
        try:
            stub.AppendMessages(pb.AppendMessagesRequest(messages=request.messages), timeout=WAIT_SECONDS_MAX)
            return
        except grpc.RpcError:
            assert time.monotonic() < deadline + 20


def test_the_asyncio_clients_show_their_key_as_well(secured: SecuredStack):
    async def send_and_find() -> tuple[bytes, list[str]]:
        address, security = secured.stack.addresses["gateway"], ClientSecurity(api_key=key_of("own-admin"))
        async with AsyncProducer(address, security=security) as producer:
            receipt = await producer.send_and_wait(OWN, b"from asyncio")
        async with AsyncQueryClient(address, security=security) as client:
            message = await client.by_id(receipt.offset_msg_id)
            assert await client.download_body(message) == b"from asyncio"
            return message.body, [topic.topic async for topic in client.topics()]

    assert asyncio.run(send_and_find()) == (b"from asyncio", [OWN])
