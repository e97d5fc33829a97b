"""The checkpoint page."""

from pathlib import Path

import pytest

from store.errors import StoreCorruptedError
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint

CHECKPOINT = StoreCheckpoint(1, 2, 3, 4, 5)
STORED = b"".join(number.to_bytes(8, "big") for number in (1, 2, 3, 4, 5)) + bytes(4096 - 40)


def test_checkpoint_has_its_page() -> None:
    assert encode_checkpoint(CHECKPOINT) == STORED
    assert decode_checkpoint(STORED) == CHECKPOINT
    assert decode_checkpoint(STORED + b"behind the page") == CHECKPOINT


def test_short_checkpoint_is_refused() -> None:
    for size in range(40):
        with pytest.raises(StoreCorruptedError) as caught:
            decode_checkpoint(STORED[:size])
        assert caught.value.metadata["file"] == "checkpoint"


def test_what_a_newer_broker_keeps_behind_survives() -> None:
    page = STORED[:40] + b"\0\0new" + bytes(4096 - 45)

    assert page == encode_checkpoint(decode_checkpoint(page))


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("broker", (1795256984315, 1795256984315, 1795256960758)),
        ("engine", (1795258800543, 1795258803536, 1795258803534)),
        ("engine_crc", (1795258768341, 1795258771899, 1795258771891)),
    ],
)
def test_checkpoints_of_rocketmq_come_back(
    name: str, times: tuple[int, int, int], request: pytest.FixtureRequest
) -> None:
    root: Path = request.getfixturevalue(f"{name}_store")
    data = (root / "checkpoint").read_bytes()

    assert StoreCheckpoint(*times) == decode_checkpoint(data)
    assert data == encode_checkpoint(decode_checkpoint(data))


def test_the_offset_of_the_queues_that_a_newer_broker_writes_never_lies_behind_the_log() -> None:
    page = STORED[:40] + (700).to_bytes(8, "big") + b"new" + bytes(4096 - 51)
    checkpoint = decode_checkpoint(page)
    assert checkpoint.queues_flushed_offset == 700
    assert checkpoint.limited_to(700) is checkpoint
    lowered = encode_checkpoint(checkpoint.limited_to(650))
    assert lowered == STORED[:40] + (650).to_bytes(8, "big") + page[48:]


def test_a_checkpoint_without_the_offset_of_the_queues_says_zero_there() -> None:
    assert CHECKPOINT.queues_flushed_offset == 0
    assert CHECKPOINT.limited_to(0) is CHECKPOINT
