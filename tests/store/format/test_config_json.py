"""What can be read of RocketMQ's JSON files, also of damaged ones."""

import json
import tracemalloc

import pytest

from store.errors import StoreCorruptedError
from store.format.config_json import load_document, salvage_document


@pytest.mark.parametrize(
    "data",
    [
        b'{"offsetTable": {"T@g": {"0": 3}}}\0\0\0 stale bytes',
        b'{"offsetTable": {"T@g": {0: 3}}} {"offsetTable": {}}',
        b'\xef\xbb\xbf {"offsetTable": {"T@g": {"0": 3}}}',
    ],
)
def test_the_object_at_the_begin_of_a_damaged_file_is_read(data: bytes) -> None:
    assert salvage_document(data, "consumerOffset.json")["offsetTable"] == {"T@g": {"0": 3}}


def test_bytes_that_are_no_text_keep_only_their_own_name_back() -> None:
    data = json.dumps({"offsetTable": {"T@g": {"0": 3}, "X": {}}}).encode().replace(b"X", b"\xff\xfe")
    assert salvage_document(data, "consumerOffset.json")["offsetTable"]["T@g"] == {"0": 3}


@pytest.mark.parametrize("data", [b"", bytes(64), b'{"offsetTable": {"T@g"', b"[" * 100_000])
def test_a_file_of_which_nothing_can_be_read_is_named(data: bytes) -> None:
    with pytest.raises(StoreCorruptedError, match=r"consumerOffset\.json"):
        salvage_document(data, "consumerOffset.json")


@pytest.mark.parametrize("text", [b'"' + b"[" * 100_000, b'\\"' * 50_000, b'{"a":' * 20_000])
def test_a_damaged_file_takes_no_memory_for_each_of_its_characters_or_texts(text: bytes) -> None:
    damaged = b'{"topicConfigTable":{1:' + text
    tracemalloc.start()
    try:
        for read in (load_document, salvage_document):
            with pytest.raises(StoreCorruptedError):
                read(damaged, "topics.json")
        assert tracemalloc.get_traced_memory()[1] < 10 * len(damaged)
    finally:
        tracemalloc.stop()
