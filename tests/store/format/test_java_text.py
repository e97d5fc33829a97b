"""UTF-8 the Java way and the string hash; the expected texts and numbers are what a JDK 17 gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.format.java_text import decode_java_utf8, encode_java_utf8, java_string_hash

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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("AaAa", 2031744),
        ("BBBB", 2031744),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("topic#key", 386934027),
        ("订单", 1129459),
        ("创建", 675903),
        ("\U0001f600", 1772899),
        ("a\U0001f600z", 57849718),
        ("\ud83d\ude00", 1772899),
        ("\ud800", 55296),
        ("\udc00x", 1746040),
        ("é", 233),
        ("b_order#订单1196", -481818814),
    ],
)
def test_hash_is_java_s(text: str, expected: int) -> None:
    assert expected == java_string_hash(text)


@given(st.text(st.characters(), max_size=1100))
def test_hash_equals_the_textbook_loop(text: str) -> None:
    """Short and long texts take different ways; lone surrogates are units like any other."""
    wide = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(wide), 2):
        value = (value * 31 + int.from_bytes(wide[at : at + 2], "big")) % (1 << 32)

    assert (value + (1 << 31)) % (1 << 32) - (1 << 31) == java_string_hash(text)


@pytest.mark.parametrize("length", [511, 512, 513, 32767])
def test_hash_of_long_texts(length: int) -> None:
    """A text of one letter is a geometric series: x * (31^n - 1) / 30."""
    value = 120 * ((31**length - 1) // 30) % (1 << 32)

    assert (value + (1 << 31)) % (1 << 32) - (1 << 31) == java_string_hash("x" * length)
