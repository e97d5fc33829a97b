"""Bodies as they are shown: inflated, named, never cut in silence."""

import json
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.bodies import body as body_module
from console.bodies import body as encoding
from console.bodies.body import HEX_BYTES_MAX, PREVIEW_BYTES_MAX, TEXT_CHARACTERS_MAX, Body, View, preview, show
from reput.message.v1 import message_pb2
from store.format.sys_flag import COMPRESSED
from tests.support.compressed_bodies import BODY, LZ4_FLAG, STORED, ZSTD_FLAG

ZLIB, UNKNOWN = COMPRESSED | 0x300, COMPRESSED | 0x500


@pytest.mark.parametrize(
    ("content", "encoding", "view"),
    [
        (b"", "empty", View.TEXT),
        (b"plain text", "text, ASCII", View.TEXT),
        ("Grüße".encode(), "text, UTF-8", View.TEXT),
        ("\ufeffGrüße".encode(), "text, UTF-8 with BOM", View.TEXT),
        ("Grüße".encode("utf-16"), "text, UTF-16", View.TEXT),
        ('{"a": "ü"}'.encode(), "JSON, UTF-8", View.JSON),
        (b"[1, 2]", "JSON, ASCII", View.JSON),
        (b"{no json", "text, ASCII", View.TEXT),
        ("订单已创建，编号一二三".encode("gb18030"), "text, GB18030 (guessed)", View.TEXT),
        (b"\x1f\x8b\x08rest", "binary (gzip)", View.HEX),
        (b"\xac\xed\x00\x05sr", "binary (Java serialization)", View.HEX),
        (b"\x00\xff\xfe\xfd", "binary", View.HEX),
        (message_pb2.NewMessage(topic="\x01t", body=b"\xff\x00").SerializeToString(), None, View.PROTOBUF),
    ],
)
def test_the_encoding_is_named_and_chooses_the_view(content: bytes, encoding: str | None, view: View) -> None:
    body = Body.of(content, 0)

    assert encoding is None or body.encoding == encoding
    assert body.best_view is view


@pytest.mark.parametrize("sys_flag", STORED)
def test_what_rocketmq_compressed_is_shown_inflated_with_its_size_as_stored(sys_flag: int) -> None:
    stored = STORED[sys_flag]
    body = Body.of(stored, sys_flag)

    assert (body.content, body.problem, body.stored_size_bytes) == (BODY, "", len(stored))
    assert body.encoding == "text, UTF-8"
    assert preview(stored, sys_flag).startswith("again and again, 订单 again")


@pytest.mark.parametrize(
    ("stored", "sys_flag", "words"),
    [
        (STORED[LZ4_FLAG][:-9], LZ4_FLAG, ("damaged, shown as stored", "lz4", "cut short")),
        (STORED[ZSTD_FLAG][:-9], ZSTD_FLAG, ("damaged, shown as stored", "zstd", "cut short")),
        (STORED[ZSTD_FLAG], LZ4_FLAG, ("damaged, shown as stored", "lz4")),
        (b"no zlib", ZLIB, ("damaged, shown as stored", "zlib")),
        (b"anything", UNKNOWN, ("not inflated, shown as stored", "method 5")),
    ],
)
def test_what_does_not_inflate_is_shown_as_stored_with_the_reason(
    stored: bytes, sys_flag: int, words: tuple[str, ...]
) -> None:
    body = Body.of(stored, sys_flag)

    assert body.content == stored
    assert [word for word in words if word not in body.problem] == []
    assert preview(b"plain text", sys_flag) == "plain text"


def test_a_body_cut_short_or_inflating_without_end_is_shown_as_stored() -> None:
    whole = zlib.compress(bytes(17 << 20))

    assert "over" in Body.of(whole, ZLIB).problem
    assert Body.of(zlib.compress(b"abc" * 999)[:-5], ZLIB).problem


def test_numbers_of_json_stay_as_they_were_written() -> None:
    written = '{"id": 12345678901234567890123, "price": 1.10, "e": 1E400, "n": [NaN, -0], "s": "\\u00fc"}'

    shown = show(Body.of(written.encode(), 0), View.JSON).text

    for number in ("12345678901234567890123", "1.10", "1E400", "-0", '"ü"'):
        assert number in shown


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_indented_json_means_what_the_body_means(value: object) -> None:
    body = Body.of(json.dumps([value]).encode(), 0)

    assert json.loads(show(body, View.JSON).text) == [value]


def test_json_nested_without_end_is_a_view_that_says_so_and_no_failure() -> None:
    deep = Body.of(b"[" * 900 + b"]" * 900, 0)

    assert show(deep, deep.best_view).size_bytes == 1_800


@given(st.binary(max_size=9_000), st.integers(0, 10_000))
def test_hex_rows_hold_exactly_the_bytes_they_name(content: bytes, begin: int) -> None:
    shown = show(Body.of(content, 0), View.HEX, begin)

    first = min(begin, len(content)) // 16 * 16
    pairs = [part for row in shown.text.splitlines() for part in row[10:58].split()]
    assert bytes.fromhex("".join(pairs)) == content[first : first + HEX_BYTES_MAX]
    assert shown.shown_size_bytes == len(content[first : first + HEX_BYTES_MAX])


@pytest.mark.parametrize("view", list(View))
def test_a_huge_body_is_cut_in_every_view_and_says_so(view: View) -> None:
    body = Body.of(json.dumps([{"n": number} for number in range(20_000)]).encode(), 0)

    shown = show(body, view)

    assert shown.problem or (shown.is_cut and len(shown.text) <= TEXT_CHARACTERS_MAX)


@given(st.binary(max_size=400), st.integers(0, 0x7FF))
def test_whatever_lies_in_a_body_every_view_has_an_answer(content: bytes, sys_flag: int) -> None:
    body = Body.of(content, sys_flag)

    assert "\n" not in preview(content, sys_flag)
    for view in View:
        assert show(body, view).size_bytes == len(body.content)


@given(st.text(max_size=600), st.booleans())
def test_a_row_shows_the_same_beginning_as_the_whole_body_has(text: str, is_compressed: bool) -> None:
    content = text.encode()
    body = Body.of(content, 0)
    line = " ".join(content[:PREVIEW_BYTES_MAX].decode("utf-8", "ignore").split()) if body.charset else ""

    shown = preview(zlib.compress(content), ZLIB) if is_compressed else preview(content, 0)

    assert body.charset == "" or shown == (line if len(line) <= 96 else line[:95] + "…")


def test_a_row_inflates_and_looks_at_no_more_than_it_shows() -> None:
    stored = zlib.compress("订单 ".encode() * (1 << 21))
    tracemalloc.start()
    try:
        shown = preview(stored, ZLIB)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert shown.startswith("订单 订单")
    assert peak_bytes < 1 << 18


def test_guesses_look_at_the_beginning_of_a_huge_body_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    for name in ("begins_like_fields", "_is_mostly_chinese"):
        guess = getattr(encoding, name)

        def noting(begin, *rest, guess=guess):
            looked_at.append(len(begin))
            return guess(begin, *rest)

        monkeypatch.setattr(encoding, name, noting)

    chinese = Body.of("订单已创建".encode("gb18030") * 500_000, 0)
    fields = Body.of(message_pb2.NewMessage(topic="t", body=b"\xff\x00" * 3_000_000).SerializeToString(), 0)

    assert chinese.encoding == "text, GB18030 (guessed)"
    assert fields.encoding.startswith("protobuf")
    assert looked_at
    assert max(looked_at) <= encoding.GUESS_BYTES_MAX
    assert all(show(fields, view).size_bytes > 0 for view in View)


def test_indenting_stops_where_the_view_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    indented = body_module._indented

    def noting(value):
        for part in indented(value):
            made.append(len(part))
            yield part

    monkeypatch.setattr(body_module, "_indented", noting)
    wide = Body.of(b"[" + b"1," * 100_000 + b"1]", 0)
    deep = Body.of(b"[" * 300 + b"1," * 100_000 + b"1" + b"]" * 300, 0)

    for body in (wide, deep):
        made.clear()
        shown = show(body, View.JSON)
        assert (len(shown.text), shown.is_cut) == (TEXT_CHARACTERS_MAX, True)
        assert sum(made) < 2 * TEXT_CHARACTERS_MAX


def test_json_that_is_nested_too_deeply_for_where_it_is_shown_is_no_failure() -> None:
    body = Body.of(b"[" * 500 + b"]" * 500, 0)

    def show_below(depth: int):
        return show(body, View.JSON) if not depth else show_below(depth - 1)

    shown = show_below(400)

    assert shown.text or "too deeply" in shown.problem
