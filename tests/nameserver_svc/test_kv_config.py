"""The key-value configuration: its file is RocketMQ's kvConfig.json, and what cannot be kept is refused."""

import errno
import json
from pathlib import Path

import pytest

from nameserver_svc import kv_config
from nameserver_svc.kv_config import KvConfig
from store.errors import FlushFailedError, InvalidArgumentError, InvalidSettingError, ResourceBusyError
from tests.support.faulty_file_system import FaultyFileSystem

# As `mqadmin updateKvConfig` left it in the file of a real name server (5.5.0).
THEIRS = '{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"a:8"}}}'


def test_a_file_of_rocketmqs_name_server_is_read_and_written_in_its_form(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(THEIRS)
    config = KvConfig(path)
    assert config.values("ORDER_TOPIC_CONFIG") == {"t": "a:8"}
    config.put("ORDER_TOPIC_CONFIG", "grüße", "b:4")
    config.put("other", "k", "v")
    config.delete("other", "k")
    config.delete("other", "k")

    wanted = {"configTable": {"ORDER_TOPIC_CONFIG": {"t": "a:8", "grüße": "b:4"}, "other": {}}}
    assert json.loads(path.read_text(encoding="utf-8")) == wanted
    assert KvConfig(path).namespaces() == wanted["configTable"]


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", '{"configTable":[]}', '{"configTable":{"n":[]}}', "{}"])
def test_a_file_that_cannot_be_read_stops_the_start_and_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(InvalidSettingError, match=r"kvConfig\.json cannot be read"):
        KvConfig(path)
    assert path.read_text() == text


def test_a_value_that_the_disk_refuses_is_not_set(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    KvConfig(path).put("n", "k", "old")
    fs = FaultyFileSystem()
    config = KvConfig(path, fs)
    fs.fail("fdatasync", errno.EIO)
    with pytest.raises(FlushFailedError):
        config.put("n", "k", "new")
    assert (config.value("n", "k"), KvConfig(path).value("n", "k")) == ("old", "old")


def test_keys_and_texts_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config, "ENTRY_COUNT_MAX", 2)
    config = KvConfig(None)
    config.put("n", "1", "v")
    config.put("m", "2", "v")
    config.put("m", "2", "w")
    with pytest.raises(ResourceBusyError):
        config.put("m", "3", "v")
    with pytest.raises(InvalidArgumentError):
        config.put("m", "2", "v" * 65_537)
    with pytest.raises(InvalidArgumentError):
        config.put("m", "k" * 256, "v")
    assert config.namespaces() == {"n": {"1": "v"}, "m": {"2": "w"}}


def test_namespaces_without_a_key_and_all_texts_together_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config, "ENTRY_COUNT_MAX", 3)
    config = KvConfig(None)
    for number in range(3):
        config.put(str(number), "k", "v")
        config.delete(str(number), "k")
    with pytest.raises(ResourceBusyError, match="3 keys"):
        config.put("3", "k", "v")
    monkeypatch.setattr(kv_config, "ALL_CHARACTERS_MAX", 10)
    config.put("0", "k", "v" * 9)
    with pytest.raises(ResourceBusyError, match="10 characters"):
        config.put("1", "k", "v")
