"""Rows of RocketMQ's JSON files in `config/` that cannot be read: each keeps only its own group, queue or level back.

What can be read is what the decoders of `consumer_files.py` and `delay_offset_file.py` take; the rows of `topics.json` are
decoded by `store/format/topic.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from store.errors import StoreCorruptedError
from store.format.config_json import TABLES, dump_document, load_document
from store.format.delivery.consumer_files import problem_of_group, problem_of_positions
from store.format.delivery.delay_offset_file import problem_of_level

_CHECKS: Mapping[str, Callable[[str, object], str]] = {
    "consumerOffset.json": problem_of_positions,
    "lmqConsumerOffset.json": problem_of_positions,
    "subscriptionGroup.json": problem_of_group,
    "delayOffset.json": problem_of_level,
}


def unreadable_rows(name: str, content: bytes | None) -> dict[str, str]:
    """What is wrong with each row that cannot be read, by its key; of a file of that name, which is sound."""
    check = _CHECKS.get(name)
    if check is None or content is None:
        return {}
    problems = {key: check(key, value) for key, value in _table(name, load_document(content, name)).items()}
    return {key.encode(errors="backslashreplace").decode(): why for key, why in problems.items() if why}


def with_rows_of(
    name: str, content: bytes | None, backup: bytes | None, rows: Mapping[str, str]
) -> tuple[bytes | None, int]:
    """The file with those rows as the `.bak` has them, where they can be read there; and how many these are."""
    if content is None or backup is None:
        return content, 0
    try:
        others = _table(name, load_document(backup, name))
    except StoreCorruptedError:
        return content, 0
    sound = {key: others[key] for key in rows if key in others and not _CHECKS[name](key, others[key])}
    if not sound:
        return content, 0
    document = load_document(content, name)
    _table(name, document).update(sound)
    return dump_document(document), len(sound)


def _table(name: str, document: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = document.get(TABLES[name][0], {})
    return table
