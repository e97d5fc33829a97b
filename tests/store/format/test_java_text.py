"""UTF-8 the Java way; the expected texts are what `new String(bytes, UTF_8)` of a JDK 17 gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.format.java_text import decode_java_utf8, encode_java_utf8

BAD = "\ufffd"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff", BAD),
        (b"a\x80b", f"a{BAD}b"),
        (b"\xc0\x80", BAD * 2),
        (b"\xe4\xbd", BAD),
        (b"\xf0\x9f\x98", BAD),
        (b"\xed\xa0\x80", BAD),  # a surrogate: one, where Python says three
        (b"\xed\xa0\xbd\xed\xb8\x80", BAD * 2),  # CESU-8
        (b"\xed\xa0", BAD),
        (b"a\xed\xa0x", f"a{BAD}x"),
        (b"\xed", BAD),
        (b"\xf5\x80\x80\x80", BAD * 4),
        (b"\xe4\xbdx", f"{BAD}x"),
    ],
)
def test_bad_bytes_become_replacement_characters(data: bytes, expected: str) -> None:
    assert expected == decode_java_utf8(data)


def test_lone_surrogates_are_written_as_question_marks() -> None:
    assert encode_java_utf8("a\ud800b") == b"a?b"
    assert encode_java_utf8("\udc00\udc01") == b"??"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_valid_text_comes_back(text: str) -> None:
    assert text == decode_java_utf8(encode_java_utf8(text))


@given(st.binary())
def test_any_bytes_decode_to_some_text(data: bytes) -> None:
    assert isinstance(decode_java_utf8(data), str)
