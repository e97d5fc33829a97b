"""The upper bound of the remoting door: a bare server in Python that takes sends and keeps nothing.

One thread reads frames, finds the code and the number of the request in the header's text, and answers each send with the same
words; the answers to what one read brings go out in one write. It is name server and broker of every topic. RocketMQ's
unmodified clients send to it, so the figure is the rate that no door in this language passes.
"""

import contextlib
import select
import socket
import threading
from multiprocessing.connection import Connection

from benchmarks.sides.echo import running, wait_for_end
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command, encode
from services.rocketmq.fastjson import dump_bytes

QUEUE_COUNT = 8
BROKER = "echo"
READ_BYTES = 256 << 10
_SENDS = tuple(
    b'{"code":%d,' % code
    for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
)
_OPAQUE = b'"opaque":'
_ANSWER_HEAD = (
    b'{"code":0,"extFields":{"MSG_REGION":"DefaultRegion","TRACE_ON":"true","msgId":"7F00000100002A9F0000000000000000",'
    b'"queueId":"0","queueOffset":"1","transactionId":""},"flag":1,"language":"PYTHON","opaque":'
)
_ANSWER_TAIL = b',"serializeTypeCurrentRPC":"JSON","version":479}'


def route_of(port: int) -> bytes:
    """What a name server says of any topic."""
    brokers = [{"brokerAddrs": {"0": f"127.0.0.1:{port}"}, "brokerName": BROKER, "cluster": "DefaultCluster"}]
    queues = {"perm": 6, "readQueueNums": QUEUE_COUNT, "topicSysFlag": 0, "writeQueueNums": QUEUE_COUNT}
    return dump_bytes(
        {"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": [{"brokerName": BROKER, **queues}]}
    )


def answers_to(data: bytearray, route: bytes) -> bytes:
    """The answers to the frames that are whole, which are taken out of the data."""
    at, answers = 0, []
    while len(data) - at >= 8:
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        header_end = at + 8 + int.from_bytes(data[at + 5 : at + 8], "big")
        opaque_at = data.rfind(_OPAQUE, at, header_end) + len(_OPAQUE)
        opaque = data[opaque_at : data.find(b",", opaque_at)]
        if data.startswith(_SENDS, at + 8):
            header = _ANSWER_HEAD + opaque + _ANSWER_TAIL
            answers.append(b"%b%b%b" % ((len(header) + 4).to_bytes(4, "big"), len(header).to_bytes(4, "big"), header))
        elif data.startswith(b'{"code":%d,' % RequestCode.GET_ROUTEINFO_BY_TOPIC, at + 8):
            answers.append(encode(Command(0, body=route, opaque=int(opaque), flag=1)))
        elif b'"flag":0' in data[at:header_end]:
            answers.append(encode(Command(0, opaque=int(opaque), flag=1)))
        at = end
    del data[:at]
    return b"".join(answers)


def _serve(pipe: Connection) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    route = route_of(port)
    pipe.send(port)

    def run() -> None:
        poll = select.epoll()
        poll.register(listener, select.EPOLLIN)
        connected: dict[int, tuple[socket.socket, bytearray]] = {}
        while True:
            for fd, _ in poll.poll():
                if fd == listener.fileno():
                    client, _ = listener.accept()
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connected[client.fileno()] = (client, bytearray())
                    poll.register(client, select.EPOLLIN)
                    continue
                client, data = connected[fd]
                came = b""
                with contextlib.suppress(ConnectionError):
                    came = client.recv(READ_BYTES)
                if not came:
                    poll.unregister(client)
                    connected.pop(fd)[0].close()
                    continue
                data += came
                answers = answers_to(data, route)
                if answers:
                    client.sendall(answers)

    threading.Thread(target=run, daemon=True).start()
    wait_for_end(pipe)


def running_remoting_echo() -> contextlib.AbstractContextManager[str]:
    """The address of the server, in a process of its own, which ends with the block."""
    return running(_serve)
