"""The parameters that each page takes: a misspelled one is refused, since the page would answer another question without it."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from store.errors import InvalidArgumentError

# Those that the script and the links add; they are no part of the description.
OF_THE_SCRIPT = {
    "/": {"part", "have", "lang"},
    "/explain": {"part", "have", "lang"},
    "/groups": {"part", "whole"},
    "/replicas": {"part"},
    "/topics": {"part", "whole"},
    "/topics/{topic}": {"part", "tag", "whole"},
    "/store": {"part"},
}
# What the contract calls a parameter that has another name here.
NAMES_OF_THE_CONTRACT = {
    "begin_time": "begin",
    "body_hex": "body",
    "body_text": "body",
    "broker_name": "broker",
    "end_time": "end",
    "name": "q",
    "name_contains": "q",
    "offset_msg_id": "id",
    "page_size": "size",
    "page_token": "page",
    "query": "q",
    "queue_id": "queue",
    "queue_offset": "offset",
    "tags": "tag",
    "text": "body",
    "unique_key": "unique",
}


def parameters_by_path(description: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """The names of the parameters of each path.

    Args:
        description: the OpenAPI description of all pages.
    """
    return {
        path: frozenset(each["name"] for each in page["get"]["parameters"] if each["in"] == "query")
        | OF_THE_SCRIPT.get(path, set())
        | {"format"}
        for path, page in description["paths"].items()
    }


def check_parameters(given: Collection[str], known: frozenset[str]) -> None:
    """InvalidArgumentError for the first name that the page does not take; it says which one may be meant."""
    for name in given:
        if name in known:
            continue
        meant = NAMES_OF_THE_CONTRACT.get(name, "")
        if meant not in known:
            meant = next(iter(difflib.get_close_matches(name, sorted(known), 1)), "")
        taken = ", ".join(sorted(known - {"format", "part", "have", "lang", "whole"}))
        raise InvalidArgumentError(
            f"This page takes no parameter {name!r}{f': {meant} is meant?' if meant else '.'} "
            + (f"It takes {taken}." if taken else "It takes none."),
            field=name,
        )
