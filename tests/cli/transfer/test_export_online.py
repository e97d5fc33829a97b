"""What retention takes while a gateway is exported is counted, told, and makes the export a partial one."""

import pathlib
from collections.abc import Iterator

import grpc
import pytest

import cli.main
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from tests.cli.transfer.conftest import Serve

TOPIC, END = "Orders", 100
TIME_SECONDS = 1_700_000_000


class Gateway(gateway_grpc.GatewayServiceServicer):
    """One queue of messages a second apart; it drops its oldest before the page that is named.

    Attributes:
        first: its first place.
        drops: by how many pages were asked for before, the first place from then on.
        bodies: what DownloadBody says for each place whose body no page has.
    """

    def __init__(self) -> None:
        self.first = 0
        self.drops: dict[int, int] = {}
        self.bodies: dict[int, bytes | grpc.StatusCode] = {}
        self._asked_count = 0

    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        queue = pb.ListTopicsResponse.Queue(broker_name="a", queue_id=0, min_offset=self.first, max_offset=END)
        topic = pb.ListTopicsResponse.Topic(topic=TOPIC, queues=[queue])
        return pb.ListTopicsResponse(topics=[topic], completeness=message_pb2.COMPLETENESS_COMPLETE)

    def SearchMessages(
        self, request: pb.SearchMessagesRequest, context: grpc.ServicerContext
    ) -> pb.SearchMessagesResponse:
        self.first = self.drops.get(self._asked_count, self.first)
        self._asked_count += 1
        begin = max(int(request.page_token or 0), self.first, request.begin_queue_offset)
        places = [
            place
            for place in range(begin, request.end_queue_offset)
            if not request.HasField("begin_time") or TIME_SECONDS + place >= request.begin_time.seconds
            if not request.HasField("end_time") or TIME_SECONDS + place <= request.end_time.seconds
        ]
        page = places[:10]
        token = str(page[-1] + 1) if len(places) > len(page) else ""
        return pb.SearchMessagesResponse(
            messages=map(self._message, page),
            next_page_token=token,
            completeness=message_pb2.COMPLETENESS_TRUNCATED if token else message_pb2.COMPLETENESS_COMPLETE,
            stop=pb.SEARCH_STOP_PAGE if token else pb.SEARCH_STOP_END,
        )

    def DownloadBody(
        self, request: pb.DownloadBodyRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.DownloadBodyResponse]:
        body = self.bodies[int(request.offset_msg_id)]
        if isinstance(body, grpc.StatusCode):
            context.abort(body, "it has gone")
        yield pb.DownloadBodyResponse(chunk=body)

    def _message(self, place: int) -> message_pb2.StoredMessage:
        message = message_pb2.StoredMessage(
            topic=TOPIC, queue_offset=place, commit_log_offset=place * 1000, body=b"x", broker_name="a",
            born_host="10.0.0.1:1", store_host="10.0.0.1:2", offset_msg_id=str(place), body_omitted=place in self.bodies,
        )  # fmt: skip
        message.store_time.seconds = message.born_time.seconds = TIME_SECONDS + place
        return message


@pytest.fixture
def server(serve: Serve) -> Gateway:
    gateway = Gateway()
    serve(gateway)
    return gateway


class Export:
    """Runs `reput export` to a file.

    Attributes:
        count: how many messages the file has.
        err: what was told.
    """

    def __init__(self, out: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.count = 0
        self.err = ""
        self._out = out
        self._capsys = capsys

    def __call__(self, *flags: object) -> int:
        code = cli.main.main(["export", "--out", str(self._out), *map(str, flags)])
        self.count = self._out.read_bytes().count(b"\n") if self._out.exists() else 0
        self.err = self._capsys.readouterr().err
        return code


@pytest.fixture
def export(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Export:
    return Export(tmp_path / "out.jsonl", capsys)


WINDOW = ("--begin", (TIME_SECONDS + 40) * 1000)
UNTIL = ("--end", (TIME_SECONDS + 59) * 1000)


@pytest.mark.parametrize("window", [(), ("--begin", 1)])
@pytest.mark.parametrize(
    ("drops", "flags", "lost_count"),
    [
        ({0: 7}, (), 7),  # between the list and the first page
        ({3: 42}, (), 12),  # the scan stood at 30
        ({0: 3, 2: 55, 4: END}, (), 60),  # given: 3 to 22 and 55 to 74
        ({0: END}, (), 100),
        ({0: 7}, ("-t", TOPIC, "-i", 0, "--fromOffset", 5, "--toOffset", 20), 2),
        ({3: 7}, (), 0),  # what had been exported already
    ],
)
def test_what_retention_took_meanwhile_was_missing_without_a_word(
    drops: dict[int, int],
    flags: tuple[object, ...],
    lost_count: int,
    window: tuple[object, ...],
    server: Gateway,
    export: Export,
) -> None:
    server.drops = drops
    code = export(*flags, *window)

    assert export.count == (15 if flags else END) - lost_count
    assert code == (3 if lost_count else 0)
    assert (f"{lost_count} messages went by retention" in export.err) == bool(lost_count)


@pytest.mark.parametrize(
    ("flags", "drops", "told_count"),
    [
        ((*WINDOW,), {0: 30}, 0),  # what is left before the window shows that the window is whole
        ((*WINDOW,), {0: 50}, 50),  # 40 to 49 were in it, of the others nobody can tell
        ((*WINDOW,), {2: 70}, 50),  # the two pages read were 40 to 59
        ((*WINDOW,), {0: END}, 100),
        ((*WINDOW, *UNTIL), {0: 80}, 80),
        ((*WINDOW, *UNTIL), {2: 80}, 0),
        (("--begin", (TIME_SECONDS + END) * 1000), {0: 50}, 0),
    ],
)
def test_in_a_window_of_times_what_may_be_missing_is_told(
    flags: tuple[object, ...], drops: dict[int, int], told_count: int, server: Gateway, export: Export
) -> None:
    server.drops = drops
    code = export(*flags)

    if told_count:
        assert (code, f"up to {told_count} messages went by retention" in export.err) == (3, True), export.err
    else:
        assert code in (0, 1)
        assert "retention" not in export.err


def test_the_oldest_so_many_are_not_said_to_lack_the_rest(server: Gateway, export: Export) -> None:
    assert (export("-m", 25), export.count, export.err) == (0, 25, "")


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE])
def test_a_body_that_went_meanwhile_ended_the_export(code: grpc.StatusCode, server: Gateway, export: Export) -> None:
    server.bodies = {3: b"whole", 4: code, 70: code}

    assert (export(), export.count) == (3, END - 2)
    assert "2 messages went by retention" in export.err
