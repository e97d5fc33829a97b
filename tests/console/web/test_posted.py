"""Forms in both encodings: any bytes of a file come through, and what is broken is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.web.posted import FIELD_COUNT_MAX, URL_ENCODED_BYTES_MAX, read_posted
from store.errors import InvalidArgumentError

BOUNDARY = "----WebKitFormBoundaryx1"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"


def multipart(*parts: tuple[str, bytes]) -> bytes:
    """As chromium sends it: the head behind the name, and the bytes."""
    content = b""
    for head, value in parts:
        content += f"--{BOUNDARY}\r\nContent-Disposition: form-data; name={head}\r\n\r\n".encode() + value + b"\r\n"
    return content + f"--{BOUNDARY}--\r\n".encode()


@given(st.binary(max_size=300), st.text(max_size=50))
def test_every_byte_of_a_file_and_every_character_of_a_field_comes_through(content: bytes, text: str) -> None:
    posted = read_posted(
        MULTIPART, multipart(('"topic"', text.encode()), ('"file"; filename="a.bin"', content), ('"x"', b"1"))
    )

    assert posted.files == {"file": content}
    assert posted.fields == {"topic": [text], "x": ["1"]}


def test_a_part_with_further_heads_is_read() -> None:
    posted = read_posted(MULTIPART, multipart(('"file"; filename="a"\r\nContent-Type: image/png', b"\r\n\r\n--x")))

    assert posted.files == {"file": b"\r\n\r\n--x"}


def test_a_file_that_was_not_chosen_is_none_and_an_empty_one_is_empty() -> None:
    assert read_posted(MULTIPART, multipart(('"file"; filename=""', b""))).files == {}
    assert read_posted(MULTIPART, multipart(('"file"; filename="empty"', b""))).files == {"file": b""}


def test_repeated_fields_keep_their_order_in_both_encodings() -> None:
    assert read_posted("application/x-www-form-urlencoded", b"id=b&id=a&x=").fields == {"id": ["b", "a"], "x": [""]}
    assert read_posted(MULTIPART, multipart(('"id"', b"b"), ('"id"', b"a"))).fields == {"id": ["b", "a"]}


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        (MULTIPART, b""),
        (MULTIPART, multipart(('"a"', b"1"))[:-8]),
        (MULTIPART, multipart(("<b>", b"1"))),
        (MULTIPART, multipart(('"a"', b"1")).replace(b"\r\n\r\n", b"\n\n")),
        (MULTIPART, multipart(*[('"a"', b"1")] * (FIELD_COUNT_MAX + 1))),
        (MULTIPART, multipart((f"\"a\"{'x' * 5_000}", b"1"))),
        ("", b"&".join([b"a=1"] * (FIELD_COUNT_MAX + 1))),
        ("", b"a=" + b"1" * URL_ENCODED_BYTES_MAX),
    ],
)  # fmt: skip
def test_a_form_that_is_broken_or_too_long_is_refused(content_type: str, content: bytes) -> None:
    with pytest.raises(InvalidArgumentError):
        read_posted(content_type, content)
