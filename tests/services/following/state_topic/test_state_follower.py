"""A life on a log in memory: when its state is written again, and how far it lets go of the log."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from services.following.follower_process import LifeOverError
from services.following.follower_progress import FollowerProgress
from services.following.state_topic.state_follower import (
    FULL_LOG_BYTES,
    READ_AGAIN_LOG_BYTES,
    REPORT_SECONDS,
    StateFollower,
)
from services.reading.recent_units import RecentUnits
from store.errors import ServiceUnavailableError, StoreError

STATE_OFFSET = 1_000
BEGIN_OFFSET = 2_000


class Service(StateFollower):
    """A service whose answers the test sets; `log_end` is the end of the log."""

    def __init__(
        self,
        *,
        writes: bool = True,
        reports: bool = True,
        first_offset: int = STATE_OFFSET,
        begin_offset: int = BEGIN_OFFSET,
    ) -> None:
        self.now = 0.0
        self.log_end = begin_offset
        self.failure: StoreError | None = None
        self.state, self.has_many, self.needed = True, False, None
        self.fulls: list[Future[int]] = []
        self.reported: list[int] = []
        self.progress = FollowerProgress()
        writer: Any = SimpleNamespace() if writes else None
        flushed = (lambda offset, _millis: self.reported.append(offset)) if reports else None
        super().__init__(
            writer,
            self.progress,
            RecentUnits(),
            begin_offset,
            first_offset,
            flushed,
            lambda: self.log_end,
            lambda: self.now,
        )

    def follow(self, next_offset: int) -> None:
        """Reput has shown everything before that offset; a second has passed."""
        self.now += REPORT_SECONDS
        self.log_end = max(self.log_end, next_offset)
        self.apply(None, next_offset, 0, self.log_end)

    def begin(self) -> None: ...

    def stop(self) -> None: ...

    def abandon(self) -> None: ...

    def hear(self, queues: Any, store_time_millis: int) -> None: ...

    def do_what_is_due(self) -> None: ...

    def error(self) -> StoreError | None:
        return self.failure

    def has_state(self) -> bool:
        return self.state

    def has_many_changes(self) -> bool:
        return self.has_many

    def write_full(self) -> Future[int]:
        self.fulls.append(Future())
        return self.fulls[-1]

    def needed_offset(self) -> int | None:
        return self.needed


def test_retention_waits_for_the_begin_of_the_newest_full_state() -> None:
    service = Service()
    service.follow(5_000)
    assert service.reported == [STATE_OFFSET]
    service.has_many = True
    service.follow(6_000)
    service.fulls[0].set_result(5_500)
    service.has_many = False
    service.follow(7_000)
    assert service.reported[-1] == 5_500
    assert len(service.fulls) == 1


def test_one_full_state_is_under_way_at_a_time() -> None:
    service = Service()
    service.has_many = True
    for end in range(3_000, 9_000, 1_000):
        service.follow(end)
    assert len(service.fulls) == 1


def test_the_full_state_is_written_before_it_is_far_behind_the_log() -> None:
    service = Service()
    service.follow(STATE_OFFSET + FULL_LOG_BYTES)
    assert not service.fulls
    service.follow(STATE_OFFSET + FULL_LOG_BYTES + 1)
    assert len(service.fulls) == 1


def test_a_service_without_state_needs_no_old_record() -> None:
    service = Service(first_offset=-1)
    service.state = False
    service.follow(FULL_LOG_BYTES * 3)
    assert service.reported == [FULL_LOG_BYTES * 3]
    assert not service.fulls


def test_a_record_that_is_needed_besides_the_state_is_kept() -> None:
    service = Service()
    service.needed = 700
    service.follow(5_000)
    assert service.reported == [700]


def test_records_were_let_go_of_before_reput_had_shown_what_replaced_them() -> None:
    """A power cut, or another leader, takes the end of the log: with it what says that older records are not needed."""
    service = Service()
    service.state = False
    service.follow(4_000)
    assert service.reported == [4_000]
    service.log_end = 9_000  # written, and not shown yet
    service.follow(5_000)
    assert service.reported == [4_000]
    service.follow(8_999)
    assert service.reported == [4_000]
    service.follow(9_000)
    assert service.reported == [4_000, 5_000]


def test_a_life_that_only_reads_ends_when_the_log_must_have_a_newer_state() -> None:
    service = Service(writes=False)
    service.follow(BEGIN_OFFSET + READ_AGAIN_LOG_BYTES)
    assert service.reported == [STATE_OFFSET]
    with pytest.raises(LifeOverError):
        service.follow(BEGIN_OFFSET + READ_AGAIN_LOG_BYTES + 1)


def test_a_replica_whose_state_begins_far_back_read_it_again_without_end() -> None:
    """It passes over the full states of a leader of an earlier release. Each of its lives ended before it had reported."""
    begin_offset = READ_AGAIN_LOG_BYTES * 4
    service = Service(writes=False, first_offset=0, begin_offset=begin_offset)
    service.follow(begin_offset + 1)
    assert service.reported == [0]
    service.follow(begin_offset + READ_AGAIN_LOG_BYTES)
    with pytest.raises(LifeOverError):
        service.follow(begin_offset + READ_AGAIN_LOG_BYTES + 1)


def test_a_life_on_a_log_that_nobody_expires_for_it_goes_on() -> None:
    service = Service(writes=False, reports=False)
    service.follow(STATE_OFFSET + READ_AGAIN_LOG_BYTES * 2)
    assert service.progress.next_offset == STATE_OFFSET + READ_AGAIN_LOG_BYTES * 2


def test_a_life_whose_writer_broke_applies_nothing_more() -> None:
    service = Service()
    service.failure = ServiceUnavailableError("its state could not be written")
    with pytest.raises(ServiceUnavailableError):
        service.follow(5_000)
    assert service.progress.next_offset == 2_000
