"""Names of files and folders, against those in the fixtures."""

from datetime import datetime
from pathlib import Path

import pytest

from store.errors import InvalidArgumentError
from store.format import paths


def test_log_file_names_have_twenty_digits() -> None:
    assert paths.log_file_name(1048576) == "00000000000001048576"
    assert paths.parse_log_file_name("00000000000001048576") == 1048576
    assert paths.log_file_name((1 << 63) - 1) == "09223372036854775807"


@pytest.mark.parametrize("name", ["", "0", "0000000000000104857x", "000000000000010485760", "٠" * 20, "abort"])
def test_other_names_are_no_log_files(name: str) -> None:
    assert paths.parse_log_file_name(name) is None
    assert not paths.has_log_file_form(name)


@pytest.mark.parametrize("name", ["09223372036854775808", "9" * 20])
def test_a_number_that_no_offset_can_be_names_no_file(name: str) -> None:
    assert paths.parse_log_file_name(name) is None
    assert paths.has_log_file_form(name)


def test_batch_queues_lie_beside_the_plain_ones() -> None:
    assert paths.batch_queue_dir("/store") == "/store/batchconsumequeue"
    assert paths.consume_queue_dir("/store") == "/store/consumequeue"


@pytest.mark.parametrize("topic", ["t" * 255, "订" * 85])
def test_a_topic_of_255_bytes_names_a_folder(topic: str) -> None:
    assert paths.queue_dir("/store", topic, (1 << 31) - 1) == f"/store/consumequeue/{topic}/2147483647"


@pytest.mark.parametrize("topic", ["t" * 256, "订" * 86, "\ufffd" * 86, "t" * 32_767, "a\udcffb"])
def test_a_topic_that_no_folder_can_be_named_by_is_refused(topic: str) -> None:
    """Bytes that are no UTF-8 become three each, so a topic may be short in the log and long on the disk."""
    with pytest.raises(InvalidArgumentError):
        paths.queue_dir("/store", topic, 0)


@pytest.mark.parametrize("name", ["-1", "01", "1x", "", "2147483648", "9" * 255, "٣", "1 "])
def test_other_folders_are_no_queues(name: str) -> None:
    assert paths.parse_queue_folder_name(name) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "../../x", "a/b", "a\0b"])
def test_topic_that_leaves_the_folder_is_refused(topic: str) -> None:
    """A record of a damaged or hostile log could say it."""
    with pytest.raises(InvalidArgumentError):
        paths.queue_dir("/store", topic, 0)


def test_negative_queue_id_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        paths.queue_dir("/store", "t", -1)
    with pytest.raises(InvalidArgumentError):
        paths.queue_dir("/store", "t", 1 << 31)


def test_every_file_of_a_broker_s_root_has_the_name_that_we_would_give(broker_store: Path) -> None:
    root = str(broker_store)
    expected = {paths.checkpoint_file(root), paths.topics_file(root)}
    for path in Path(paths.commit_log_dir(root)).iterdir():
        expected.add(f"{paths.commit_log_dir(root)}/{paths.log_file_name(int(path.name))}")
    for path in Path(paths.consume_queue_dir(root)).glob("*/*/*"):
        directory = paths.queue_dir(root, path.parent.parent.name, int(path.parent.name))
        expected.add(f"{directory}/{paths.log_file_name(int(path.name))}")
    for path in Path(paths.index_dir(root)).iterdir():
        assert paths.is_index_file_name(path.name)
        expected.add(str(path))
    others = {"config", "compaction"}
    found = {str(path) for path in broker_store.rglob("*") if path.is_file() and path.parent.name not in others}

    assert found | {paths.topics_file(root)} == expected


def test_index_files_are_named_by_local_time_to_the_millisecond() -> None:
    time_millis = int(datetime(2026, 11, 21, 10, 29, 12).timestamp()) * 1000 + 5

    assert paths.index_file_name(time_millis) == "20261121102912005"
    assert paths.is_index_file_name(paths.index_file_name(time_millis))
    assert not paths.is_index_file_name("20261121102912005.tmp")


def test_own_state_lies_apart() -> None:
    assert paths.own_state_dir("/store", "commitlog") == "/store/reput/commitlog"
    assert (paths.abort_file("/store"), paths.lock_file("/store")) == ("/store/abort", "/store/lock")
