"""Behind a release without light queues they are built from the log, beside the following, and equal those made at once."""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from consumequeue_svc import light_catch_up
from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.light_queues import UP_TO_DATE
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.derive.read_log import LogBatch
from store.errors import OffsetOutOfRangeError, ServiceUnavailableError, StoreRecoveringError
from tests.consumequeue_svc.test_light_recovery import (
    COUNT,
    END,
    QUEUES,
    expected,
    light,
    lose_checkpoint,
    lose_folder,
    records,
    table_of,
)
from tests.consumequeue_svc.test_recovery import Clock, follow, open_builder
from tests.support.dispatches import file_bytes
from tests.support.waiting import wait_until

OLD_COUNT, OLD_END = 31, 3100
OWN = "reput/consumequeue/light"


class Log:
    """A ReadLog of these records, some a batch; the log may begin later than with the first one.

    Attributes:
        opened_at: where it was read from.
        failures: raised by the next calls, before anything is read.
    """

    def __init__(self, requests: Sequence[DispatchRequest], batch_count: int = 4) -> None:
        self.requests = requests
        self.first_offset = 0
        self.opened_at: list[int] = []
        self.failures: list[Exception] = []
        self._batch_count = batch_count

    @contextmanager
    def __call__(self, offset: int) -> Iterator[Iterator[LogBatch]]:
        self.opened_at.append(offset)
        yield self._batches(offset)

    def _batches(self, offset: int) -> Iterator[LogBatch]:
        if self.failures:
            raise self.failures.pop()
        while True:
            if offset < self.first_offset:
                raise OffsetOutOfRangeError(f"the log begins at {self.first_offset}")
            part = [each for each in self.requests if each.commit_log_offset >= offset][: self._batch_count]
            offset = part[-1].next_offset if part else offset
            yield SimpleNamespace(columns=DispatchColumns.of(part) if part else None, next_offset=offset)


def catch_up(builder: ConsumeQueueBuilder, log_end: int = END, log_first: int = 0) -> None:
    """Heartbeats until the light queues are as far as the others."""

    def is_done() -> bool:
        assert builder.apply(None, builder.progress.next_offset, log_first, log_end)
        return table_of(builder).light.next_offset == UP_TO_DATE

    wait_until(is_done, lambda: f"light queues, which are at {table_of(builder).light.next_offset}")


def as_of_an_older_version(root: Path) -> None:
    """Its checkpoint does not know them."""
    path = root / "reput/consumequeue/checkpoint.json"
    state = json.loads(path.read_text())
    del state["light"]
    path.write_text(json.dumps(state))


def behind_an_older_version(
    root: Path, requests: Sequence[DispatchRequest] = (), *, keeps_folder: bool = False
) -> None:
    """A store with the first records, whose checkpoint does not know light queues."""
    requests = requests or records(OLD_COUNT)
    builder = open_builder(root, requests[-1].next_offset)
    follow(builder, requests)
    builder.stop()
    as_of_an_older_version(root)
    if not keeps_folder:
        lose_folder(root)


def test_light_queues_behind_an_older_version_were_refused_until_retention_had_passed_its_part(tmp_path: Path) -> None:
    behind_an_older_version(tmp_path)
    builder = open_builder(tmp_path, END, read_log=Log(records()))
    assert not builder.is_replay, "queues that are built are served as they are"
    builder.begin()
    for refused in (lambda: table_of(builder).queue("%LMQ%a", 0), lambda: table_of(builder).of_topic("%LMQ%none")):
        with pytest.raises(StoreRecoveringError, match="at byte 0 of 3100"):
            refused()

    follow(builder, records())
    catch_up(builder)

    assert light(builder) == expected()
    assert table_of(builder).queue("orders", 0).units.end == COUNT
    builder.stop()
    log = Log(records())
    builder = open_builder(tmp_path, END, read_log=log)
    builder.begin()
    assert (light(builder), log.opened_at) == (expected(), []), "it is done once"
    builder.stop()


def test_a_kill_in_the_middle_goes_on_at_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light_catch_up, "UNIT_COUNT_MAX", 1)
    behind_an_older_version(tmp_path)
    clock = Clock()
    killed = open_builder(tmp_path, OLD_END, clock=clock, read_log=Log(records()))
    killed.begin()

    def is_in_the_middle() -> bool:
        clock.seconds += 2
        killed.apply(None, OLD_END, 0, OLD_END)
        return table_of(killed).light.next_offset > 0

    wait_until(is_in_the_middle)
    saved = json.loads((tmp_path / "reput/consumequeue/checkpoint.json").read_text())["light"]["next_offset"]
    assert 0 < saved < OLD_END

    log = Log(records())
    builder = open_builder(tmp_path, OLD_END, read_log=log)
    with pytest.raises(StoreRecoveringError, match=f"at byte {saved} of 3100"):
        table_of(builder).queue("%LMQ%a", 0)
    builder.begin()
    catch_up(builder, OLD_END)
    assert (light(builder), log.opened_at) == (expected(OLD_COUNT), [saved])
    follow(builder, records())
    assert light(builder) == expected()
    for each in (builder, killed):
        each.abandon()


@pytest.mark.parametrize("attempt", range(20))
def test_whatever_comes_meanwhile_light_queues_equal_those_made_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    """Records, checkpoints, kills and stops, drawn; the log is judged by brute force."""
    monkeypatch.setattr(light_catch_up, "UNIT_COUNT_MAX", random.randrange(1, 20))
    requests = records()
    old_count = random.randrange(1, COUNT)
    behind_an_older_version(tmp_path, requests[:old_count])
    clock = Clock()
    for _ in range(random.randrange(1, 5)):
        log = Log(requests, random.randrange(1, 9))
        builder = open_builder(tmp_path, END, clock=clock, read_log=log)
        builder.begin()
        for _ in range(random.randrange(12)):
            at = builder.start_offset() // 100
            part = requests[max(at, 0) : at + random.randrange(6)]
            clock.seconds += random.choice((0, 2))
            assert builder.apply(part, part[-1].next_offset if part else builder.progress.next_offset, 0, END)
        if random.randrange(2):
            builder.stop()
        else:
            builder.abandon()
    builder = open_builder(tmp_path, END, read_log=Log(requests))
    builder.begin()
    follow(builder, requests)
    catch_up(builder)

    assert light(builder) == expected()
    builder.stop()
    never_behind = open_builder(tmp_path / "never-behind", END)
    follow(never_behind, requests)
    never_behind.stop()
    assert file_bytes(tmp_path / OWN) == file_bytes(tmp_path / "never-behind" / OWN)


def test_files_that_retention_removes_meanwhile_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(light_catch_up, "RETRY_SECONDS", 0.01)
    behind_an_older_version(tmp_path)
    log = Log(records())
    log.first_offset = 1500
    builder = open_builder(tmp_path, END, read_log=log)
    builder.begin()
    wait_until(lambda: log.opened_at == [0] * len(log.opened_at) != [])

    catch_up(builder, log_first=1500)

    assert light(builder)["%LMQ%a"] == list(range(1600, OLD_END, 200))
    assert light(builder)["%LMQ%b"] == list(range(1500, OLD_END, 300))
    builder.stop()


def test_a_log_that_cannot_be_read_for_a_while_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light_catch_up, "RETRY_SECONDS", 0.01)
    behind_an_older_version(tmp_path)
    log = Log(records())
    log.failures = [ServiceUnavailableError("the log is away"), RuntimeError("what nobody thought of")]
    builder = open_builder(tmp_path, END, read_log=log)
    builder.begin()

    catch_up(builder)

    assert (light(builder), log.opened_at) == (expected(OLD_COUNT), [0, 0, 0])
    builder.stop()


def test_another_log_has_all_light_queues_built_with_the_others(tmp_path: Path) -> None:
    behind_an_older_version(tmp_path)
    builder = open_builder(tmp_path, END, read_log=Log(records()))
    builder.begin()
    wait_until(lambda: not builder._handed_over.empty())  # it is taken behind the rebuild
    builder.rebuild()

    follow(builder, records())

    assert light(builder) == expected()
    builder.stop()


def test_a_stop_does_not_wait_for_the_light_queues(tmp_path: Path) -> None:
    behind_an_older_version(tmp_path)
    builder = open_builder(tmp_path, END, read_log=Log(records()))
    builder.begin()
    builder.stop()
    builder = open_builder(tmp_path, END)
    with pytest.raises(StoreRecoveringError, match="at byte 0 of 3100"):
        table_of(builder).queue("%LMQ%a", 0)


def test_light_queues_of_before_a_downgrade_are_built_again_behind_it(tmp_path: Path) -> None:
    """They were refused, and then all queues were compared with the log for them."""
    behind_an_older_version(tmp_path, keeps_folder=True)
    for _ in range(2):  # it may be killed before it has written anything
        builder = open_builder(tmp_path, END, read_log=Log(records()))
    assert not builder.is_replay
    builder.begin()
    follow(builder, records())
    catch_up(builder)
    assert light(builder) == expected()
    builder.stop()


def test_a_store_with_a_brokers_light_queues_is_looked_through_once_after_an_update(tmp_path: Path) -> None:
    behind_an_older_version(tmp_path)
    file = tmp_path / f"consumequeue/%LMQ%a/0/{0:020d}"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(4000))

    builder = open_builder(tmp_path, END, read_log=Log(records()))
    builder.begin()
    follow(builder, records())
    catch_up(builder)

    assert light(builder) == expected()
    assert file.read_bytes() == bytes(4000)
    builder.stop()


def test_a_large_log_without_a_checkpoint_was_taken_as_it_is_and_its_light_queues_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumequeue_svc.recovery.ADOPTED_LOG_BYTES_MIN", 1)
    builder = open_builder(tmp_path, END)
    follow(builder, records())
    builder.stop()
    lose_checkpoint(tmp_path)

    builder = open_builder(tmp_path, END, read_log=Log(records()))
    assert not builder.is_replay
    builder.begin()
    catch_up(builder)
    assert light(builder) == expected()
    builder.stop()


def test_a_checkpoint_that_knew_light_queues_from_a_byte_on_has_all_built_again(tmp_path: Path) -> None:
    """Versions before this one wrote it behind 0.2.0."""
    builder = open_builder(tmp_path, END)
    follow(builder, records())
    builder.stop()
    path = tmp_path / "reput/consumequeue/checkpoint.json"
    state = json.loads(path.read_text())
    del state["light"]["next_offset"]
    path.write_text(json.dumps(state))
    assert light(open_builder(tmp_path, END)) == expected(), "it knew all of them"
    state["light"]["from_offset"] = OLD_END
    path.write_text(json.dumps(state))

    builder = open_builder(tmp_path, END)
    assert builder.is_replay
    follow(builder, records())
    assert light(builder) == expected()
    builder.stop()


def test_all_queues_of_these_tests_are_judged() -> None:
    assert set(expected()) == set(QUEUES)
