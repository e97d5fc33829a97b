"""What a search looked at for a page."""

from dataclasses import dataclass
from enum import Enum

from reput.gateway.v1 import gateway_service_pb2 as pb


class SearchStop(Enum):
    """Why a page of a search ends where it does."""

    END = pb.SEARCH_STOP_END  # everything was looked at
    PAGE = pb.SEARCH_STOP_PAGE  # the page is full
    RECORDS = pb.SEARCH_STOP_RECORDS  # `max_records` is used up
    BYTES = pb.SEARCH_STOP_BYTES  # `max_bytes` is used up
    TIME = pb.SEARCH_STOP_TIME  # `max_millis` is used up, or the call's time was nearly over


@dataclass(frozen=True, slots=True)
class ScannedRange:
    """Positions `[begin_offset, end_offset)` of a queue, in messages."""

    broker_name: str
    queue_id: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Scan:
    """How a page of a search came about.

    Attributes:
        ranges: what was looked at; over all pages each position once.
        stop: why it ends here.
        record_count: positions looked at.
        size_bytes: sizes of the records that were read.
        unreadable_count: messages that could not be read or inflated; the page is PARTIAL then.
        cel_error_count: messages for which the expression has no value; they are no matches.
        cel_error: why it had none for the first of them; empty when it always had one.
        total_record_count: positions that there were when the search began; 0 when they were not to be counted.
        passed_record_count: those of them that the pages so far have passed; 0 likewise.
    """

    ranges: tuple[ScannedRange, ...]
    stop: SearchStop
    record_count: int
    size_bytes: int
    unreadable_count: int
    cel_error_count: int
    cel_error: str
    total_record_count: int = 0
    passed_record_count: int = 0


def scan_of(response: pb.SearchMessagesResponse) -> Scan:
    """How the page came about."""
    return Scan(
        tuple(
            ScannedRange(each.broker_name, each.queue_id, each.begin_offset, each.end_offset)
            for each in response.scanned_ranges
        ),
        SearchStop(response.stop),
        response.scanned_record_count,
        response.scanned_bytes,
        response.unreadable_count,
        response.cel_error_count,
        response.cel_error,
        response.total_record_count,
        response.passed_record_count,
    )
