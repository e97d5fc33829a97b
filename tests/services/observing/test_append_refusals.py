"""Refusals inside answers are counted by code, from 0."""

import grpc

from services.observing.append_refusals import APPEND_REFUSED, refusal_counter
from services.status import CODE_BY_ERROR, to_status
from store.errors import DiskFullError, StoreError, StoreRecoveringError


def counts(method: str) -> dict[str, int]:
    return {labels[1]: counter.read() for labels, counter in APPEND_REFUSED.items() if labels[0] == method}


def test_every_code_is_there_before_its_first_refusal() -> None:
    refusal_counter("Test/Declared")

    assert counts("Test/Declared") == dict.fromkeys({code.name for code in CODE_BY_ERROR.values()} | {"UNKNOWN"}, 0)


def test_a_refusal_is_counted_under_its_code() -> None:
    count = refusal_counter("Test/Counted")
    for error in (StoreRecoveringError(""), DiskFullError(""), StoreRecoveringError(""), StoreError("")):
        count(to_status(error).code)
    count(grpc.StatusCode.OUT_OF_RANGE.value[0])
    count(4711)

    assert {code: number for code, number in counts("Test/Counted").items() if number} == {
        "UNAVAILABLE": 2,
        "RESOURCE_EXHAUSTED": 1,
        "INTERNAL": 1,
        "OUT_OF_RANGE": 1,
        "UNKNOWN": 1,
    }
