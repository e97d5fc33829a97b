"""The bare echo: what it answers to frames of RocketMQ's clients."""

from benchmarks.sides.remoting_echo import answers_to, route_of
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import ONEWAY, Command, FrameReader, encode

TAIL = b"half of a frame"


def test_the_echo_answers_whole_frames_in_order_and_keeps_the_rest() -> None:
    asked = [
        Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}, opaque=1),
        Command(RequestCode.HEART_BEAT, body=b"{}", opaque=2),
        Command(RequestCode.SEND_MESSAGE_V2, {"i": '"opaque":9,'}, b"body", opaque=3),
        Command(RequestCode.UNREGISTER_CLIENT, opaque=4, flag=ONEWAY),
        Command(RequestCode.SEND_BATCH_MESSAGE, {}, b"many", opaque=5),
    ]
    data = bytearray(b"".join(map(encode, asked)) + TAIL)
    reader = FrameReader()
    reader.add(answers_to(data, route_of(1)))
    answers = []
    while (answer := reader.next()) is not None:
        answers.append(answer)
    assert [(answer.opaque, answer.code, answer.is_answer) for answer in answers] == [
        (1, 0, True), (2, 0, True), (3, 0, True), (5, 0, True),
    ]  # fmt: skip
    assert b'"127.0.0.1:1"' in answers[0].body
    assert len(answers[2].fields["msgId"]) == 32
    assert data == TAIL
