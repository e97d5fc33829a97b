"""Bodies for people: inflated, and shown saying how."""

import zlib

import pytest

from cli.bodies import BODY_FORMATS, inflate, read_body, show_body
from tests.support.compressed_bodies import BODY, LZ4_FLAG, STORED, ZSTD_FLAG

COMPRESSED = 0x1
TYPE_ZLIB = 0x300


@pytest.mark.parametrize("sys_flag", [COMPRESSED, COMPRESSED | TYPE_ZLIB, COMPRESSED | TYPE_ZLIB | 0x10])
def test_a_zlib_body_is_inflated_also_without_a_type(sys_flag: int) -> None:
    body = inflate(zlib.compress(b"payload " * 99), sys_flag)

    assert (body.content, body.compression, body.note) == (b"payload " * 99, "zlib", "")


@pytest.mark.parametrize(("sys_flag", "name"), [(LZ4_FLAG, "lz4"), (ZSTD_FLAG, "zstd")])
def test_what_rocketmq_compressed_is_inflated(sys_flag: int, name: str) -> None:
    body = inflate(STORED[sys_flag], sys_flag)

    assert (body.content, body.compression, body.note) == (BODY, name, "")


@pytest.mark.parametrize(
    ("sys_flag", "name"), [(LZ4_FLAG, "lz4"), (ZSTD_FLAG, "zstd"), (COMPRESSED | 0x500, "unknown")]
)
def test_what_cannot_be_inflated_is_shown_as_stored_and_said_so(sys_flag: int, name: str) -> None:
    body = inflate(b"\x04\x22\x4d", sys_flag)

    assert (body.content, body.compression) == (b"\x04\x22\x4d", name)
    assert "as stored" in body.note


@pytest.mark.parametrize("stored", [b"", b"no zlib", zlib.compress(b"cut short" * 50)[:-3]])
def test_a_body_that_does_not_inflate_is_shown_as_stored(stored: bytes) -> None:
    body = inflate(stored, COMPRESSED)

    assert stored == body.content
    assert "as stored" in body.note


def test_the_type_bits_mean_nothing_without_the_compressed_bit() -> None:
    assert inflate(b"plain", TYPE_ZLIB).compression == "none"


@pytest.mark.parametrize(
    ("content", "wanted", "characters", "form"),
    [
        (b'{"a": 1}', "auto", '{"a": 1}', "json"),
        (b"{no json", "auto", "{no json", "text"),
        ("订单".encode(), "auto", "订单", "text"),
        (b"\x1b[31mred", "auto", "\x1b[31mred", "text"),
        (b"\x00\x01", "auto", "0001", "hex"),
        (b"\xff\xfe", "auto", "fffe", "hex"),
        (b"a\xff", "text", "a\\xff", "text"),
        (b"a\xff", "hex", "61ff", "hex"),
        (b"a\xff", "base64", "Yf8=", "base64"),
        (b"[" * 100_000, "auto", "[" * 100_000, "text"),
    ],
)
def test_a_body_is_shown_and_says_how(content: bytes, wanted: str, characters: str, form: str) -> None:
    shown = show_body(content, wanted)

    assert (characters, form) == (shown.characters, shown.form)


@pytest.mark.parametrize("content", [b'["x"]', "文本".encode(), bytes(range(256))])
def test_what_auto_hex_and_base64_show_is_read_back(content: bytes) -> None:
    for wanted in set(BODY_FORMATS) - {"text"}:
        for binary_form in ("hex", "base64"):
            shown = show_body(content, wanted, binary_form)

            assert content == read_body(shown.characters, shown.form)


def test_text_may_have_another_charset() -> None:
    assert show_body("订单".encode("gbk"), "auto", charset="gbk").characters == "订单"
