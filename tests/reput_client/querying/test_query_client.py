"""Both query clients against a gateway that answers as a test says: parts that are missing, bodies, trouble."""

import inspect
import zlib
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import (
    AsyncQueryClient,
    BodyCompressionError,
    BodyOmittedError,
    Completeness,
    InvalidRequestError,
    MatchedBy,
    PartialAnswerError,
    QueryClient,
    Scan,
    ScannedRange,
    SearchStop,
    SendReceipt,
    TopicNotFoundError,
    UnavailableError,
)
from reput_client.errors import DeadlineExceededError, DiskFullError, ServiceUnavailableError
from reput_client.querying import queries
from reput_client.querying.explanation import PassedOver, Rejected, Rejection
from tests.reput_client.fake_gateway import refusal
from tests.reput_client.querying.conftest import Ask
from tests.support import compressed_bodies

COMPLETE = message_pb2.COMPLETENESS_COMPLETE
TRUNCATED = message_pb2.COMPLETENESS_TRUNCATED
PARTIAL = message_pb2.COMPLETENESS_PARTIAL
NOW = datetime(2026, 1, 2, tzinfo=UTC)
GONE = refusal(grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE")
WRONG = refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")


def page(completeness: int, bodies: list[bytes], token: str = "", shards: Any = ()) -> pb.QueryMessageByKeyResponse:
    messages = [message_pb2.StoredMessage(topic="T", body=body) for body in bodies]
    return pb.QueryMessageByKeyResponse(
        messages=messages, completeness=completeness, next_page_token=token, shards=shards
    )


RECEIPTS = [SendReceipt(message_pb2.AppendResult(freshness_token=token)) for token in ("t1", "t2")]


@pytest.mark.parametrize(
    ("after", "expected"),
    [((), []), ("t1", ["t1"]), (RECEIPTS[0], ["t1"]), ([RECEIPTS[0], "t3", RECEIPTS[1], "t1"], ["t1", "t3", "t2"])],
)
def test_every_query_takes_receipts_or_their_tokens_on_every_page(ask, after: Any, expected: list[str]) -> None:
    pages = [page(TRUNCATED, [], "a"), page(COMPLETE, [])]
    rows = pb.QueryMessageByOffsetResponse(completeness=COMPLETE)
    for request_class, script, question in (
        (pb.QueryMessageByKeyRequest, pages, lambda client: client.by_key("T", "k", after=after).pages()),
        (pb.QueryMessageByUniqueKeyRequest, pages, lambda client: client.by_unique_key("T", "u", after=after).pages()),
        (pb.QueryMessageByOffsetRequest, [rows], lambda client: client.by_offset("T", 0, after=after).pages()),
        (
            pb.SearchOffsetRequest,
            [pb.SearchOffsetResponse(completeness=COMPLETE)],
            lambda client: client.search_offset("T", 0, NOW, after=after),
        ),
        (
            pb.FindMessageRequest,
            [
                pb.FindMessageResponse(completeness=TRUNCATED, next_page_token="a"),
                pb.FindMessageResponse(completeness=COMPLETE),
            ],
            lambda client: client.find("k", after=after).pages(),
        ),
        (
            pb.SearchMessagesRequest,
            [
                pb.SearchMessagesResponse(completeness=TRUNCATED, next_page_token="a", stop=pb.SEARCH_STOP_PAGE),
                pb.SearchMessagesResponse(completeness=COMPLETE, stop=pb.SEARCH_STOP_END),
            ],
            lambda client: client.search("T", after=after).pages(),
        ),
    ):
        fake, _ = ask(script, question)
        assert len(fake.requests) == len(script)
        assert all(list(request_class.FromString(each).freshness_tokens) == expected for each in fake.requests)


def test_a_time_is_answered_with_the_span_of_the_queue(ask) -> None:
    answer = pb.SearchOffsetResponse(completeness=COMPLETE)
    question = lambda client: client.search_offset("T", 0, NOW)  # noqa: E731
    _, found = ask([answer], question)
    assert (found.first_store_time, found.last_store_time) == (None, None)
    answer.first_store_time.FromMilliseconds(1_700_000_000_001)
    answer.last_store_time.FromMilliseconds(1_700_000_000_002)
    _, found = ask([answer], question)
    assert [int(each.timestamp() * 1000) for each in (found.first_store_time, found.last_store_time)] == [
        1_700_000_000_001,
        1_700_000_000_002,
    ]


def asked(ask: Ask, request_class: Any, response: Any, question: Callable[[Any], Any]) -> Any:
    """The request that a question sends."""
    fake, _ = ask([response], question)
    (request,) = fake.requests
    return request_class.FromString(request)


def test_every_argument_of_a_search_is_a_field_of_its_request(ask) -> None:
    done = pb.SearchMessagesResponse(completeness=COMPLETE, stop=pb.SEARCH_STOP_END)
    request = asked(
        ask,
        pb.SearchMessagesRequest,
        done,
        lambda client: client.search(
            "T",
            tags=["A", "B"],
            properties={"color": "red", "size": None},
            body="bö",
            cel="true",
            begin=NOW,
            end=NOW,
            broker_name="broker-b",
            queue_id=0,
            begin_queue_offset=0,
            end_queue_offset=9,
            newest_first=True,
            page_size=5,
            max_records=6,
            max_bytes=7,
            max_millis=8,
            count_total=True,
            after="t1",
            page_token="p",
        ).pages(),
    )
    now = {"seconds": int(NOW.timestamp())}
    color = pb.SearchMessagesRequest.Property(name="color", value="red")
    size = pb.SearchMessagesRequest.Property(name="size")
    every = {
        "topic": "T", "broker_name": "broker-b", "queue_id": 0, "begin_queue_offset": 0, "end_queue_offset": 9,
        "begin_time": now, "end_time": now, "order": pb.SEARCH_ORDER_NEWEST_FIRST, "tags": ["A", "B"],
        "properties": [color, size], "body_text": "bö", "cel": "true", "page_size": 5, "max_records": 6, "max_bytes": 7,
        "max_millis": 8, "count_total": True, "freshness_tokens": ["t1"], "page_token": "p",
    }  # fmt: skip
    assert request == pb.SearchMessagesRequest(**every)
    unset = {"body_hex", "read"}  # the needle's other form; the client's own choice
    assert set(every) | unset == {field.name for field in pb.SearchMessagesRequest.DESCRIPTOR.fields}

    request = asked(ask, pb.SearchMessagesRequest, done, lambda client: client.search("T", body=b"\0\xff").pages())
    assert (request.WhichOneof("needle"), request.body_hex) == ("body_hex", "00ff")
    request = asked(ask, pb.SearchMessagesRequest, done, lambda client: client.search("T").pages())
    assert request.WhichOneof("needle") is None
    with pytest.raises(TypeError, match=r"such as \[tag\]"):
        ask([], lambda client: client.search("T", tags="A"))


def test_every_argument_of_the_other_new_questions_is_a_field_of_its_request(ask) -> None:
    request = asked(
        ask,
        pb.FindMessageRequest,
        pb.FindMessageResponse(completeness=COMPLETE),
        lambda client: client.find("k", "T", NOW, NOW, page_size=5, max_millis=6, after="t1", with_tracks=True).pages(),
    )
    now = {"seconds": int(NOW.timestamp())}
    every = {"text": "k", "topic": "T", "begin_time": now, "end_time": now, "page_size": 5, "max_millis": 6}
    every |= {"freshness_tokens": ["t1"], "with_tracks": True}
    assert request == pb.FindMessageRequest(**every)
    assert {*every, "page_token", "read"} == {field.name for field in pb.FindMessageRequest.DESCRIPTOR.fields}
    request = asked(
        ask,
        pb.ListTopicsRequest,
        pb.ListTopicsResponse(completeness=COMPLETE),
        lambda client: client.topics(5, "T", name_contains="t").pages(),
    )
    assert request == pb.ListTopicsRequest(page_size=5, topic="T", name_contains="t")


def test_a_page_of_a_search_says_what_was_looked_at(ask) -> None:
    scanned = pb.SearchMessagesResponse.ScannedRange(broker_name="b", queue_id=3, begin_offset=10, end_offset=20)
    _, (page,) = ask(
        [
            pb.SearchMessagesResponse(
                completeness=PARTIAL,
                stop=pb.SEARCH_STOP_BYTES,
                scanned_ranges=[scanned],
                scanned_record_count=1,
                scanned_bytes=2,
                unreadable_count=3,
                cel_error_count=4,
                cel_error="no such key",
                total_record_count=5,
                passed_record_count=6,
            )
        ],
        lambda client: client.search("T").pages(),
    )
    assert page.scan == Scan((ScannedRange("b", 3, 10, 20),), SearchStop.BYTES, 1, 2, 3, 4, "no such key", 5, 6)
    _, (page,) = ask([pb.FindMessageResponse(completeness=COMPLETE)], lambda client: client.find("x").pages())
    assert (page.scan, page.items) == (None, ())


def test_a_match_says_what_of_its_message_the_text_is(ask) -> None:
    kinds = (pb.MATCHED_BY_OFFSET_MSG_ID, pb.MATCHED_BY_UNIQUE_KEY, pb.MATCHED_BY_KEY)
    matches = [
        pb.FindMessageResponse.Match(message=message_pb2.StoredMessage(topic=f"T{kind}"), matched_by=kind)
        for kind in kinds
    ]
    _, (page,) = ask(
        [pb.FindMessageResponse(matches=matches, completeness=COMPLETE)], lambda client: client.find("x").pages()
    )
    assert [(match.message.topic, match.matched_by) for match in page.items] == [
        ("T1", MatchedBy.OFFSET_MSG_ID),
        ("T2", MatchedBy.UNIQUE_KEY),
        ("T3", MatchedBy.KEY),
    ]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (lambda: queries.by_key("T", "k", begin=NOW), {"by_key": {"topic": "T", "key": "k"}}),
        (lambda: queries.by_unique_key("T", "u"), {"by_unique_key": {"topic": "T", "unique_key": "u"}}),
        (lambda: queries.by_id("0" * 32), {"by_id": {"offset_msg_id": "0" * 32}}),
        (lambda: queries.by_offset("T", 1, 2, max_messages=3), {"by_offset": {"topic": "T", "max_messages": 3}}),
        (lambda: queries.find("k", "T"), {"find": {"text": "k", "topic": "T"}}),
    ],
)
def test_what_can_be_asked_can_be_explained(ask, question: Any, expected: dict[str, dict[str, Any]]) -> None:
    answer = pb.ExplainQueryResponse(message_count=2, completeness=TRUNCATED, elapsed_micros=3)
    shard = answer.shards.add(broker_name="b", elapsed_micros=4, error=GONE)
    lookup = shard.lookups.add(topic="T", key="k", key_hash=5, passed_over=pb.PASSED_OVER_FILTER)
    lookup.visits.add(name="2026", candidate_count=6)
    lookup.rejected.add(commit_log_offset=7, reason=pb.REJECTION_OTHER_KEY, detail="K")
    shard.steps.add(name="log.read", call_count=8)
    request = asked(ask, pb.ExplainQueryRequest, answer, lambda client: client.explain(question()))
    ((kind, fields),) = expected.items()
    assert request.WhichOneof("query") == kind
    assert {name: getattr(getattr(request, kind), name) for name in fields} == fields

    _, found = ask([answer], lambda client: client.explain(question()))
    assert (found.message_count, found.completeness, found.error) == (2, Completeness.TRUNCATED, None)
    (shard,) = found.shards
    assert isinstance(shard.error, ServiceUnavailableError)
    assert [(lookup.key_hash, lookup.passed_over) for lookup in shard.lookups] == [(5, PassedOver.FILTER)]
    (lookup,) = shard.lookups
    assert [(visit.name, visit.passed_over, visit.candidate_count) for visit in lookup.visits] == [("2026", None, 6)]
    assert lookup.rejected == (Rejected(7, Rejection.OTHER_KEY, "K"),)
    assert [(step.name, step.call_count) for step in shard.steps] == [("log.read", 8)]


def test_what_cannot_be_explained_is_refused_before_it_is_asked(ask) -> None:
    for question in (
        queries.search("T"),
        queries.topics(),
        queries.status(),
        queries.by_offset("T", 0, max_messages=0),
    ):
        with pytest.raises(ValueError, match="cannot be explained"):
            ask([], lambda client, question=question: client.explain(question))


def test_the_explanation_of_a_query_that_fails_has_its_error(ask) -> None:
    error = refusal(grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")
    _, found = ask([pb.ExplainQueryResponse(error=error)], lambda client: client.explain(queries.find("k", "T")))
    assert (type(found.error), found.completeness) == (TopicNotFoundError, None)


def test_both_clients_have_every_question_with_its_arguments_and_words() -> None:
    questions = [value for value in vars(queries).values() if inspect.isfunction(value)]
    names = {each.__name__ for each in questions if each.__module__ == queries.__name__ and each.__name__[0] != "_"}
    for name in names - {"download", "tokens_of"}:
        question = getattr(queries, name)
        for client in (QueryClient, AsyncQueryClient):
            method = getattr(client, name)
            assert method.__doc__ == question.__doc__
            shown = inspect.signature(method).parameters
            assert [*shown] == ["self", *inspect.signature(question).parameters]


DOWN = pb.ShardOutcome(broker_name="broker-b", error=GONE)
BEHIND = pb.ShardOutcome(broker_name="broker-a", indexed_up_to_offset=10, log_end_offset=30)
WELL = pb.ShardOutcome(broker_name="broker-c", indexed_up_to_offset=30, log_end_offset=30)


def test_once_a_page_was_partial_the_run_stays_so(ask) -> None:
    kept: list[Any] = []

    def question(client: Any) -> Any:
        kept.append(client.by_key("T", "k"))
        return kept[0].pages()

    script = [page(TRUNCATED, [b"0"], "a"), page(PARTIAL, [b"1"], "b", [DOWN, BEHIND, WELL]), page(COMPLETE, [b"2"])]
    _, pages = ask(script, question)
    assert [[message.body for message in each.items] for each in pages] == [[b"0"], [b"1"], [b"2"]]
    assert [each.completeness for each in pages] == [
        Completeness.TRUNCATED,
        Completeness.PARTIAL,
        Completeness.COMPLETE,
    ]
    assert kept[0].completeness is Completeness.PARTIAL
    assert [type(shard.error) for shard in pages[1].shards] == [ServiceUnavailableError, type(None), type(None)]


def test_a_partial_page_is_an_error_for_who_wants_all_and_says_what_is_missing(ask) -> None:
    script = [page(TRUNCATED, [b"0"], "a"), page(PARTIAL, [b"1"], "b", [DOWN, BEHIND, WELL])]
    with pytest.raises(PartialAnswerError) as caught:
        ask(script, lambda client: client.by_key("T", "k").pages(), require_complete=True)
    assert dict(caught.value.missing) == {
        "broker-a": "built up to 10 of 30 bytes",
        "broker-b": "refused: SERVICE_UNAVAILABLE",
    }
    assert "broker-c" not in str(caught.value)


@pytest.mark.parametrize("require_complete", [False, True])
def test_a_partial_position_is_an_error_for_who_wants_all(ask, require_complete: bool) -> None:
    script = [pb.SearchOffsetResponse(queue_offset=3, completeness=PARTIAL, shards=[BEHIND])]
    question = lambda client: client.search_offset("T", 0, NOW)  # noqa: E731
    if require_complete:
        with pytest.raises(PartialAnswerError, match="broker-a: built up to 10 of 30 bytes"):
            ask(script, question, require_complete=True)
    else:
        assert ask(script, question)[1].completeness is Completeness.PARTIAL


TEXT = b"hello, hello, hello, hello"


@pytest.mark.parametrize(
    ("sys_flag", "stored", "compression", "body"),
    [
        (0, TEXT, "none", TEXT),
        (0x300, TEXT, "none", TEXT),  # a kind without the bit that says compressed
        (0x001, zlib.compress(TEXT), "zlib", TEXT),
        (0x301, zlib.compress(TEXT), "zlib", TEXT),
        (0x101, compressed_bodies.LZ4, "lz4", compressed_bodies.BODY),
        (0x201, compressed_bodies.ZSTD, "zstd", compressed_bodies.BODY),
        (0x101, compressed_bodies.LZ4[:-9], "lz4", None),
        (0x201, compressed_bodies.ZSTD[:-5], "zstd", None),
        (0x101, b"not lz4", "lz4", None),
        (0x201, b"not zstd", "zstd", None),
        (0x701, b"?", "unknown", None),
        (0x301, b"not zlib", "zlib", None),
        (0x301, zlib.compress(TEXT)[:-5], "zlib", None),
    ],
)
def test_a_body_is_inflated_or_it_is_said_why_not(ask, sys_flag: int, stored: bytes, compression: str, body) -> None:
    message = message_pb2.StoredMessage(body=stored, sys_flag=sys_flag)
    _, got = ask([pb.QueryMessageByIdResponse(message=message)], lambda client: client.by_id("0" * 32))
    assert (got.stored_body, got.compression) == (stored, compression)
    if body is not None:
        assert got.body == body
    else:
        with pytest.raises(BodyCompressionError):
            _ = got.body


@pytest.mark.parametrize(("sys_flag", "stored"), compressed_bodies.STORED.items())
def test_what_inflates_without_an_end_is_refused(ask, monkeypatch, sys_flag: int, stored: bytes) -> None:
    monkeypatch.setattr("reput_client.querying.message.INFLATED_BYTES_MAX", 1000)
    message = message_pb2.StoredMessage(body=stored, sys_flag=sys_flag)
    _, got = ask([pb.QueryMessageByIdResponse(message=message)], lambda client: client.by_id("0" * 32))
    with pytest.raises(BodyCompressionError):
        _ = got.body


def test_an_omitted_body_is_not_an_empty_one_and_can_be_downloaded(ask) -> None:
    stored = message_pb2.StoredMessage(offset_msg_id="0" * 32, body_omitted=True, broker_name="broker-a")
    _, got = ask([pb.QueryMessageByIdResponse(message=stored)], lambda client: client.by_id("0" * 32))
    with pytest.raises(BodyOmittedError) as caught:
        _ = got.body
    assert caught.value.metadata == {"offsetMsgId": "0" * 32}
    assert ask([[b"one ", b"two"]], lambda client: client.download_body(got))[1] == b"one two"


def each_of(pages):
    """What a loop over the pages of either client goes through."""
    return pages.__aiter__() if hasattr(pages, "__aiter__") else iter(pages)


def test_a_loop_over_messages_gets_each_body_also_one_that_its_page_had_no_room_for(ask) -> None:
    answer = page(COMPLETE, [b"first", b"", b"third"])
    answer.messages[1].body_omitted = True
    fake, pages = ask([answer, [b"sec", b"ond"]], lambda client: each_of(client.by_key("T", "k")))
    assert [message.body for message in pages] == [b"first", b"second", b"third"]
    assert fake.methods == ["call", "download"]


def test_a_body_that_retention_removed_during_the_loop_stays_omitted_and_the_loop_goes_on(ask) -> None:
    gone = refusal(grpc.StatusCode.NOT_FOUND, "RECORD_NOT_FOUND")
    answer = page(COMPLETE, [b"", b"second"])
    answer.messages[0].body_omitted = True
    _, pages = ask([answer, [gone]], lambda client: each_of(client.by_key("T", "k")))
    assert [message.body_omitted for message in pages] == [True, False]


def test_pages_come_as_the_gateway_sent_them_without_downloads(ask) -> None:
    answer = page(COMPLETE, [b""])
    answer.messages[0].body_omitted = True
    fake, pages = ask([answer], lambda client: client.by_key("T", "k").pages())
    assert [message.body_omitted for each in pages for message in each.items] == [True]
    assert fake.methods == ["call"]


def test_a_download_that_breaks_begins_anew(ask) -> None:
    fake, body = ask([[b"one ", GONE], [GONE], [b"one ", b"two"]], lambda client: client.download_body("0" * 32))
    assert body == b"one two"
    assert len(fake.methods) == 3


def test_a_question_is_asked_again_until_it_is_answered(ask) -> None:
    busy = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL", retry_seconds=0.001)
    script = [GONE, page(TRUNCATED, [b"0"], "a"), busy, GONE, page(COMPLETE, [b"1"])]
    fake, pages = ask(script, lambda client: client.by_key("T", "k").pages())
    assert [message.body for each in pages for message in each.items] == [b"0", b"1"]
    assert len(fake.methods) == 5


def test_attempts_have_an_end_and_the_last_error_is_told(ask) -> None:
    busy = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL")
    script = deque([GONE] * 3 + [busy] * 10)
    with pytest.raises(DiskFullError):
        ask(script, lambda client: client.status())


def test_time_has_an_end_though_attempts_are_left(ask) -> None:
    later = refusal(grpc.StatusCode.UNAVAILABLE, "STORE_RECOVERING", retry_seconds=60)
    with pytest.raises(UnavailableError):
        ask([later] * 2, lambda client: client.status(), timeout_seconds=5)
    with pytest.raises(DeadlineExceededError):
        ask([later], lambda client: client.status(), timeout_seconds=0)


def test_what_another_try_does_not_cure_is_not_tried_again(ask) -> None:
    with pytest.raises(InvalidRequestError):
        ask([WRONG, page(COMPLETE, [])], lambda client: client.by_key("T", "k").pages())
