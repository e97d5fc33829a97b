"""Traces of RocketMQ's clients: recorded ones of 4.9.8, 5.3.3 and 5.5.0, damaged ones, and old forms of entries."""

import json
import pathlib
import random

import pytest

from store.format.message_trace import (
    LOOKED_COUNT_MAX,
    TEXT_CHARACTERS_MAX,
    ConsumeReturn,
    MessageType,
    TraceBody,
    TraceEntry,
    TraceEvent,
    TraceKind,
    decode_trace_body,
    join_traces,
)

RECORDED = json.loads((pathlib.Path(__file__).parents[2] / "fixtures" / "traces.json").read_text())
KEY = "7F0000010000000000000000000000AA"
OTHER = "7F0000010000000000000000000000BB"
HOST = "10.0.0.7:50123"


def body_of(*entries: str) -> bytes:
    return "".join(entry.replace("|", "\x01") + "\x02" for entry in entries).encode()


def decoded(*entries: str, count_max: int = 100) -> TraceBody:
    return decode_trace_body(body_of(*entries), KEY, HOST, count_max)


SEND = f"Pub|1700000000000|DefaultRegion|senders|Orders|{KEY}|TagA|k1 k2|127.0.0.1:10911|7|12|0|7F0000|true"
BEFORE = f"SubBefore|1700000000100|DefaultRegion|readers|req1|{KEY}|2|k1"
AFTER = f"SubAfter|req1|{KEY}|30|false|k1|2|1700000000130|readers"
END = f"EndTransaction|1700000000050|R|verdicts|Orders|{KEY}|TagA|k1|127.0.0.1:10911|2|tx|COMMIT_MESSAGE|true"
RECALL = f"Recall|1700000000060|R|senders|Orders|{KEY}|true"


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.5.0"])
def test_each_recorded_message_has_the_events_that_its_clients_had(version: str) -> None:
    recorded = RECORDED[version]
    group = recorded["group"]
    seen = {}
    for name, unique_key in recorded["messages"].items():
        bodies = [decode_trace_body(bytes.fromhex(body), unique_key, HOST, 500) for body in recorded["bodies"]]
        assert [(each.damaged_count, each.is_cut) for each in bodies] == [(0, False)] * len(bodies)
        events = join_traces(entry for each in bodies for entry in each.entries)
        seen[name] = [
            (event.entry.kind, event.entry.group.removeprefix(group), event.end and event.end.is_success)
            for event in events
        ]
        assert all((event.entry.time_millis or 0) > 1_700_000_000_000 for event in events)
    send, consume = (TraceKind.SEND, "-senders", None), (TraceKind.BEFORE_CONSUMING, "", True)
    half, end = (TraceKind.SEND, "-verdicts", None), (TraceKind.END_TRANSACTION, "-verdicts", None)
    assert seen == {
        "plain": [send, (TraceKind.BEFORE_CONSUMING, "", False), consume],
        "delayed": [send, consume],
        "ordered": [send, consume],
        "committed": [half, end, consume],
        "rolled-back": [half, end],
    }


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.5.0"])
def test_recorded_fields_are_what_mqadmin_prints_of_them(version: str) -> None:
    recorded = RECORDED[version]
    for name, unique_key in recorded["messages"].items():
        entries = [
            entry
            for body in recorded["bodies"]
            for entry in decode_trace_body(bytes.fromhex(body), unique_key, HOST, 500).entries
        ]
        shown = sorted(
            (
                {"Pub": "Pub", "SubAfter": "Sub"}[entry.kind.value],
                entry.group,
                f"{entry.cost_millis}ms",
                "success" if entry.is_success else "failed",
            )
            for entry in entries
            if entry.kind in (TraceKind.SEND, TraceKind.AFTER_CONSUMING)
        )
        printed = [line.split() for line in recorded["mqadmin"][name] if not line.startswith("#")]
        assert shown == sorted((row[0], row[1], row[5], row[6]) for row in printed)


def test_an_entry_of_each_kind_has_its_fields() -> None:
    assert decoded(SEND, BEFORE, AFTER, END, RECALL) == TraceBody(
        [
            TraceEntry(
                TraceKind.SEND,
                KEY,
                HOST,
                time_millis=1_700_000_000_000,
                cost_millis=12,
                is_success=True,
                group="senders",
                topic="Orders",
                store_host="127.0.0.1:10911",
                offset_msg_id="7F0000",
                message_type=MessageType.NORMAL,
            ),
            TraceEntry(
                TraceKind.BEFORE_CONSUMING,
                KEY,
                HOST,
                time_millis=1_700_000_000_100,
                group="readers",
                request_id="req1",
                retry_count=2,
            ),
            TraceEntry(
                TraceKind.AFTER_CONSUMING,
                KEY,
                HOST,
                time_millis=1_700_000_000_130,
                cost_millis=30,
                is_success=False,
                group="readers",
                request_id="req1",
                consume_return=ConsumeReturn.EXCEPTION,
            ),
            TraceEntry(
                TraceKind.END_TRANSACTION,
                KEY,
                HOST,
                time_millis=1_700_000_000_050,
                group="verdicts",
                topic="Orders",
                store_host="127.0.0.1:10911",
                message_type=MessageType.COMMIT,
                verdict="COMMIT_MESSAGE",
                is_from_check=True,
            ),
            TraceEntry(
                TraceKind.RECALL,
                KEY,
                HOST,
                time_millis=1_700_000_000_060,
                is_success=True,
                group="senders",
                topic="Orders",
            ),
        ],
        0,
        is_cut=False,
    )


def test_entries_of_old_clients_lack_fields_or_have_one_more() -> None:
    without_id = SEND.replace("|7F0000|true", "|true")
    with_host = SEND + "|10.0.0.9"
    (first, second) = decoded(without_id, with_host).entries
    assert (first.offset_msg_id, first.is_success) == ("", True)
    assert (second.offset_msg_id, second.is_success) == ("7F0000", True)

    without_code, in_a_cloud = f"SubAfter|a|{KEY}|30|true|k1", f"SubAfter|b|{KEY}|30|true|k1|0|"
    (first, second) = decoded(without_code, in_a_cloud).entries
    assert (first.consume_return, first.time_millis, first.group) == (None, None, "")
    assert (second.consume_return, second.time_millis, second.group) == (ConsumeReturn.SUCCESS, None, "")


def test_the_word_null_is_no_text() -> None:
    (entry,) = decoded(SEND.replace("senders", "null").replace("127.0.0.1:10911", "null")).entries
    assert (entry.group, entry.store_host) == ("", "")


def test_entries_of_other_messages_are_passed_over_also_where_the_key_is_a_business_key_of_theirs() -> None:
    of_other = SEND.replace(KEY, OTHER).replace("k1 k2", KEY)
    longer = SEND.replace(KEY, f"{KEY}00")
    assert decoded(of_other, longer, of_other) == TraceBody([], 0, is_cut=False)
    assert len(decoded(of_other, SEND, longer).entries) == 1


@pytest.mark.parametrize(
    "entry",
    [
        SEND.replace("1700000000000", "yesterday"),
        SEND.replace("1700000000000", "-1"),
        SEND.replace("1700000000000", "253402300800000"),
        SEND.replace("1700000000000", "9" * 400),
        SEND.replace("1700000000000", "\u0661"),
        SEND.replace("|12|0|", "|12|2147483648|"),
        SEND.replace("|true", "|tru"),
        f"Pub|1700000000000|R|senders|Orders|{KEY}",
        f"Pub|{KEY}",
        f"{BEFORE.rpartition('|2|')[0]}",
        f"SubAfter|req1|{KEY}|30",
        f"SubAfter|req1|{KEY}|30|true|k1|0|later|readers",
        f"Later|1|{KEY}",
        END.replace("|COMMIT_MESSAGE|true", ""),
        RECALL.replace("|true", ""),
    ],
)
def test_a_damaged_entry_is_counted_and_the_others_are_read(entry: str) -> None:
    assert decoded(entry, RECALL) == TraceBody(decoded(RECALL).entries, 1, is_cut=False)


def test_more_entries_than_are_wanted_are_not_read() -> None:
    assert decoded(RECALL, RECALL, count_max=2) == TraceBody(decoded(RECALL).entries * 2, 0, is_cut=False)
    assert decoded(RECALL, "Pub|" + KEY, RECALL, count_max=2) == TraceBody(decoded(RECALL).entries, 1, is_cut=True)


def test_a_body_without_the_last_separator_is_read_to_its_end() -> None:
    assert decode_trace_body(body_of(SEND, RECALL)[:-1], KEY, HOST, 100) == decoded(SEND, RECALL)


def test_long_texts_are_cut() -> None:
    (entry,) = decoded(SEND.replace("senders", "s" * 4_000)).entries
    assert entry.group == "s" * TEXT_CHARACTERS_MAX


@pytest.mark.parametrize("unique_key", ["", "\x02", "a\x01b", "\x02\x02"])
def test_a_key_that_can_be_no_field_has_no_entries(unique_key: str) -> None:
    assert decode_trace_body(b"\x02\x02\x01\x01", unique_key, HOST, 100) == TraceBody([], 0, is_cut=False)


def test_no_bytes_make_the_decoder_fail() -> None:
    chance = random.Random(random.randrange(1 << 32))
    sound = body_of(SEND, BEFORE, AFTER, END, RECALL)
    for _ in range(2_000):
        damaged = bytearray(sound)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.randrange(3)] = chance.choice((b"", b"\x01", b"\x02", b"\xff", KEY.encode()))
        found = decode_trace_body(bytes(damaged), KEY, HOST, 7)
        assert len(found.entries) + found.damaged_count <= 7


def test_a_consumption_is_joined_by_its_request_id() -> None:
    again = BEFORE.replace("req1", "req2")
    before, after, other = decoded(BEFORE, AFTER, again).entries
    assert join_traces([after, other, before]) == [TraceEvent(other), TraceEvent(before, after)]
    assert [event.begin_millis for event in join_traces([before, after])] == [1_700_000_000_100]


def test_an_end_without_a_beginning_is_an_event_of_its_own() -> None:
    (after,) = decoded(AFTER).entries
    (event,) = join_traces([after])
    assert (event, event.begin_millis) == (TraceEvent(after, after), None)


def test_events_are_in_the_order_of_time_and_told_once() -> None:
    entries = decoded(AFTER, BEFORE, RECALL, END, SEND, SEND, f"SubAfter|old|{KEY}|1|true|k").entries
    kinds = [event.entry.kind.value for event in join_traces(entries)]
    assert kinds == ["SubAfter", "Pub", "EndTransaction", "Recall", "SubBefore"]


def test_entries_of_others_that_hold_a_short_key_are_looked_at_up_to_a_limit() -> None:
    others = b"ba\x02" * LOOKED_COUNT_MAX
    own = RECALL.replace(KEY, "a").replace("|", "\x01").encode()

    assert decode_trace_body(others, "a", HOST, 100) == TraceBody([], 0, is_cut=False)
    assert decode_trace_body(others + own, "a", HOST, 100) == TraceBody([], 0, is_cut=True)
    assert len(decode_trace_body(others[3:] + own, "a", HOST, 100).entries) == 1
