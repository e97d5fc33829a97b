"""A damaged file of `config/` never keeps a service from starting: what `ConfigManager.load` of RocketMQ would use is used."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from store.files.config_file import (
    DAMAGED_COUNT_MAX,
    RememberedCheck,
    read_config_file,
    replace_config_file,
)
from store.files.file_system import RealFileSystem
from store.format.config_json import TABLES, load_document

NAME = "consumerOffset.json"
SOUND = b'{"offsetTable":{"T@g":{0:10,1:7}},"dataVersion":{"counter":3}}'
OTHER = b'{"offsetTable":{"T@g":{"0":9}}}'
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda good: bytes(len(good)),
    "cut in the middle": lambda good: good[: len(good) // 2],
    "cut by a byte": lambda good: good[:-1],
    "stale bytes behind": lambda good: good + b"12}}}",
    "zeros behind": lambda good: good + bytes(100),
    "zeros before": lambda good: bytes(8) + good[8:],
    "no UTF-8": lambda good: good.replace(b"T@g", b"T@\xff"),
    "a list": lambda good: b"[" + good + b"]",
    "nothing of JSON": lambda _: b"null",
    "a text": lambda _: b'"offsetTable"',
    "a table that is a list": lambda _: b'{"offsetTable":[1,2]}',
    "a table that is a number": lambda _: b'{"offsetTable":7}',
    "endless nesting": lambda _: b"[" * 200_000,
    "a number without end": lambda _: b'{"offsetTable":{"T@g":{"0":' + b"9" * 5_000 + b"}}}",
    "random bytes": lambda _: bytes(range(1, 256)),
}
FS = RealFileSystem()


@pytest.mark.parametrize("nesting", [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_file_that_nests_nearly_too_deep_and_has_more_behind_it_was_not_read_at_all(
    tmp_path: Path, nesting: tuple[bytes, bytes]
) -> None:
    """Found by fuzzing: what could be read of it could not be written again, and the error of that ended the start."""
    path = tmp_path / NAME
    begin, end = nesting
    for depth in range(900, sys.getrecursionlimit()):
        path.write_bytes(b'{"x":' + begin * depth + b"1" + end * depth + b"}more")
        assert read_config_file(FS, path).problem


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_read_from_its_bak_and_says_so(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / NAME
    path.write_bytes(damage(SOUND))
    path.with_name(f"{NAME}.bak").write_bytes(OTHER)
    found = read_config_file(FS, path)
    assert (found.content, found.is_backup) == (OTHER, True)
    assert found.problem.startswith(f"config/{NAME} cannot be read")
    assert found.problem.endswith(f"; {NAME}.bak is used")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_when_the_bak_is_damaged_too_what_can_be_read_is_used(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / NAME
    path.write_bytes(damage(SOUND))
    path.with_name(f"{NAME}.bak").write_bytes(b"{")
    found = read_config_file(FS, path)
    assert f"{NAME}.bak" in found.problem
    if found.content is None:
        assert found.problem.endswith("nothing of it is used")
    else:
        assert isinstance(load_document(found.content, NAME)["offsetTable"], dict)
    behind = damage in (DAMAGES["stale bytes behind"], DAMAGES["zeros behind"])
    assert not behind or load_document(found.content or b"", NAME)["offsetTable"] == {"T@g": {"0": 10, "1": 7}}


def test_what_is_no_file_at_all_keeps_nothing_from_starting(tmp_path: Path) -> None:
    path = tmp_path / NAME
    assert read_config_file(FS, path) == (None, "", False)
    path.mkdir()
    assert "no regular file" in read_config_file(FS, path).problem
    path.with_name(f"{NAME}.bak").write_bytes(OTHER)
    assert read_config_file(FS, path).content == OTHER
    path.rmdir()
    assert read_config_file(FS, path) == (OTHER, "", True)  # RocketMQ's own writer leaves no file for a moment
    path.write_bytes(b"")
    assert read_config_file(FS, path) == (OTHER, f"config/{NAME} is empty; {NAME}.bak is used", True)


@pytest.mark.parametrize("name", TABLES)
def test_each_file_with_its_own_table_is_checked(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for table in TABLES[name]:
        path.write_text(json.dumps({table: {"row": {}}}))
        assert read_config_file(FS, path).problem == ""
        path.write_text(json.dumps({table: "text"}))
        assert f"config/{name} cannot be read: {table} is no object" in read_config_file(FS, path).problem


def test_a_damaged_file_is_kept_aside_and_never_becomes_the_bak(tmp_path: Path) -> None:
    path, backup = tmp_path / NAME, tmp_path / f"{NAME}.bak"
    backup.write_bytes(OTHER)
    for number in (1, 2):
        path.write_bytes(b"damaged %d" % number)
        assert replace_config_file(FS, path, SOUND)
        assert path.with_name(f"{NAME}.damaged-{number}").read_bytes() == b"damaged %d" % number
        assert (path.read_bytes(), backup.read_bytes()) == (SOUND, OTHER)
    backup.write_bytes(b"damaged bak")
    assert not replace_config_file(FS, path, SOUND)
    assert replace_config_file(FS, path, OTHER)
    assert (path.read_bytes(), backup.read_bytes()) == (OTHER, SOUND)
    assert path.with_name(f"{NAME}.bak.damaged-1").read_bytes() == b"damaged bak"


def test_of_many_damaged_files_the_first_ones_and_the_newest_are_kept(tmp_path: Path) -> None:
    path = tmp_path / NAME
    for number in range(1, DAMAGED_COUNT_MAX + 4):
        path.write_bytes(b"damaged %d" % number)
        assert replace_config_file(FS, path, SOUND)
    kept = {each.name: each.read_bytes() for each in tmp_path.glob("*.damaged-*")}
    expected = {f"{NAME}.damaged-{number}": b"damaged %d" % number for number in range(1, DAMAGED_COUNT_MAX)}
    assert kept == expected | {f"{NAME}.damaged-{DAMAGED_COUNT_MAX}": b"damaged %d" % (DAMAGED_COUNT_MAX + 3)}


def test_numbers_as_keys_are_quoted_and_texts_that_look_like_them_stay() -> None:
    text = rb'{"a,1:b":"{2:\"",{3:4},5:6}'.replace(b"{3:4}", b'"c":{3:4}')
    assert load_document(text) == {"a,1:b": '{2:"', "c": {"3": 4}, "5": 6}


def test_a_large_file_that_is_written_often_is_not_parsed_at_each_write(tmp_path: Path) -> None:
    looks: list[bytes] = []

    def look(data: bytes, name: str) -> None:
        looks.append(data)
        load_document(data, name)

    path, check = tmp_path / NAME, RememberedCheck(look)
    path.write_bytes(SOUND)
    assert read_config_file(FS, path, check).content == SOUND
    for number in range(5):
        content = b'{"offsetTable":{"T@g":{"0":%d}}}' % number
        check.trust(content, NAME)
        assert replace_config_file(FS, path, content, check)
        assert read_config_file(FS, path, check).content == content
    assert looks == [SOUND]
    assert path.with_name(f"{NAME}.bak").read_bytes() == b'{"offsetTable":{"T@g":{"0":3}}}'
    path.write_bytes(SOUND[:-1])
    assert read_config_file(FS, path, check).is_backup
