"""Sent again, written once: receipts of messages whose unique key the log knows already."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from commitlog_svc.append.recent_keys import KeyHash, RecentKeys
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.servicer import CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1.message_pb2 import FLUSH_MODE_SYNC, AppendResult, NewMessage
from store.errors import InvalidMessageError
from tests.commitlog_svc.reput.test_reput import WAIT_SECONDS_MAX, GatedFileSystem
from tests.commitlog_svc.support import BORN_HOST, append, new_message, open_log
from tests.commitlog_svc.twins import Twins, load_kernels, open_twins, request_of
from tests.support.service import Service, hosted_service


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[Twins]:
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message(), new_message(topic="other")))
        yield twins


@pytest.fixture(params=["plain", "fast"])
def send(request: pytest.FixtureRequest) -> Callable[..., list[AppendResult]]:
    """Appends by a log's servicer, with or without kernels."""
    if request.param == "fast":
        load_kernels()

    def send(log: CommitLog, *messages: NewMessage, deduplicate: bool = True, flush: int = 2) -> list[AppendResult]:
        if request.param == "plain":
            # The fast way takes no request, so that each goes the plain way.
            log.opened.appends.write_request = lambda data, **names: None  # type: ignore[method-assign]
        servicer = CommitLogServicer(log, "broker-a", "127.0.0.1:10911")
        data = request_of(*messages, deduplicate=deduplicate, flush=flush)
        return list(pb.AppendMessagesResponse.FromString(servicer.append_bytes(data, BORN_HOST)).results)

    return send


def keyed(*keys: str, topic: str = "orders") -> list[NewMessage]:
    return [new_message(key.encode(), topic, unique_key=key) for key in keys]


def as_first(result: AppendResult) -> AppendResult:
    """A deduplicated receipt as the first one was."""
    assert result.deduplicated
    first = AppendResult()
    first.CopyFrom(result)
    first.deduplicated = False
    return first


def test_a_batch_sent_again_gets_the_first_ones_receipts(twins: Twins) -> None:
    data = request_of(*keyed("a", "b", "c"), deduplicate=True)
    first = twins.append(data).results
    end_offset = twins.fast.status.end_offset
    twins.now_millis += 5
    again = twins.append(data).results

    assert not any(result.deduplicated for result in first)
    assert list(first) == [as_first(result) for result in again]
    assert end_offset == twins.fast.status.end_offset


def test_a_batch_may_be_part_old_and_part_new_in_any_order(twins: Twins) -> None:
    first = {r.unique_key: r for r in twins.append(request_of(*keyed("b", "d"), deduplicate=True)).results}
    mixed = twins.append(request_of(*keyed("a", "b", "c", "a", "d", "b"), deduplicate=True)).results

    assert ["a", "b", "c", "a", "d", "b"] == [result.unique_key for result in mixed]
    assert [False, True, False, True, True, True] == [result.deduplicated for result in mixed]
    assert first["b"] == as_first(mixed[1]) == as_first(mixed[5])
    assert mixed[0] == as_first(mixed[3])
    assert b"a" == twins.fast.opened.reads.get(mixed[0].commit_log_offset).body


def test_fresh_batches_are_taken_the_fast_way(twins: Twins) -> None:
    twins.append(request_of(*keyed("x"), deduplicate=True))
    for number in range(20):
        assert twins.is_taken(request_of(*keyed(*(f"{number}-{n}" for n in range(50))), deduplicate=True))
        written = twins.fast.opened.appends.write_request(
            request_of(*keyed(*(f"again {number}-{n}" for n in range(50))), deduplicate=True),
            born_host=BORN_HOST, id_prefix="", broker_name="")  # fmt: skip
        assert written is not None
        assert isinstance(written[0], bytes)
        twins.plain.opened.appends.append_messages(
            keyed(*(f"again {number}-{n}" for n in range(50))), sync=False, born_host=BORN_HOST, deduplicate=True
        )


def test_what_came_without_the_wish_is_known_too(twins: Twins) -> None:
    twins.append(request_of(*keyed("x"), deduplicate=True))
    first = twins.append(request_of(*keyed("a", "a"))).results
    again = twins.append(request_of(*keyed("a"), deduplicate=True)).results

    assert 2 == len({result.commit_log_offset for result in first})
    assert first[0] == as_first(again[0])


def test_a_key_counts_inside_its_topic(twins: Twins) -> None:
    twins.append(request_of(*keyed("a"), deduplicate=True))
    other = twins.append(request_of(*keyed("a", topic="other"), deduplicate=True)).results

    assert not other[0].deduplicated


def test_each_message_must_have_a_key(twins: Twins) -> None:
    error, _, metadata = twins.append(request_of(*keyed("a"), new_message(), deduplicate=True))

    assert (InvalidMessageError, "unique_key", "1") == (error, metadata["field"], metadata["index"])


def test_of_many_at_the_same_time_one_is_written(tmp_path: Path, send: Callable[..., list[AppendResult]]) -> None:
    with open_log(tmp_path, file_size_bytes=1 << 20) as log:
        append(log, new_message())
        barrier = threading.Barrier(8)

        def work(_: int) -> list[list[AppendResult]]:
            barrier.wait()
            return [send(log, *keyed(*(f"{turn}-{n}" for n in range(5)))) for turn in range(20)]

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(work, range(8)))

        results = [result for answer in answers for batch in answer for result in batch]
        assert 8 * 100 == len(results)
        assert 100 == sum(not result.deduplicated for result in results)
        places = {result.unique_key: result.commit_log_offset for result in results}
        assert all(places[result.unique_key] == result.commit_log_offset for result in results)
        assert 101 == sum(len(batch.requests) for batch in _followed(log))


def _followed(log: CommitLog) -> Iterator[Any]:
    for batch in log.following.follow(-1, 0):
        yield batch
        if batch.next_offset == log.status.end_offset:
            return


@pytest.mark.parametrize("count", [1, 300])
def test_a_restart_forgets_nothing_recent(tmp_path: Path, send: Callable[..., list[AppendResult]], count: int) -> None:
    with open_log(tmp_path) as log:  # files of 16 KiB: the tail lies in many
        first = send(log, *keyed(*map(str, range(count))), deduplicate=False)
    with open_log(tmp_path) as log:
        end_offset = log.status.end_offset
        again = send(log, *keyed(*map(str, range(count))))

        assert first == [as_first(result) for result in again]
        assert end_offset == log.status.end_offset


def test_only_the_tail_of_a_long_log_is_read_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlog_svc.append.recent_keys.TAIL_BYTES_MAX", 3000)
    with open_log(tmp_path, file_size_bytes=1 << 20) as log:
        append(log, *keyed(*map(str, range(100))))
    with open_log(tmp_path, file_size_bytes=1 << 20) as log:
        receipts = log.opened.appends.append_messages(
            keyed("0", "99", "90"), sync=True, born_host=BORN_HOST, deduplicate=True
        )

        assert [False, True, True] == [receipt.deduplicated for receipt in receipts]


def test_a_record_inside_a_body_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_log(tmp_path / "forged", file_size_bytes=1 << 20) as log:
        append(log, new_message(b"x" * 1100))
        forged = append(log, *keyed("victim"))[0]
        frame = log._files.read(forged.commit_log_offset, forged.store_size_bytes)
    with open_log(tmp_path / "s", file_size_bytes=1 << 20) as log:
        append(log, new_message())
        # Its body begins where the forged record says it stands.
        begin = log.status.end_offset
        padding = forged.commit_log_offset - begin - 88
        assert padding > 0
        append(log, new_message(b"x" * padding + frame + b"y" * 500))
        monkeypatch.setattr("commitlog_svc.append.recent_keys.TAIL_BYTES_MAX", log.status.end_offset - begin - 50)
    with open_log(tmp_path / "s", file_size_bytes=1 << 20) as log:
        receipt = log.opened.appends.append_messages(keyed("victim"), sync=True, born_host=BORN_HOST, deduplicate=True)[
            0
        ]

        assert not receipt.deduplicated


def test_two_keys_with_one_hash_are_two(
    tmp_path: Path, send: Callable[..., list[AppendResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyHash, "of", lambda self, topic, unique_key: 42)
    with open_log(tmp_path) as log:
        log.opened.appends._recent = recent = RecentKeys()
        log.opened.appender.begin_recent_keys(recent)
        # No kernel: its hash would differ.
        first = log.opened.appends.append_messages(keyed("a", "b"), sync=True, born_host=BORN_HOST, deduplicate=True)
        again = log.opened.appends.append_messages(
            keyed("b", "c", "a"), sync=True, born_host=BORN_HOST, deduplicate=True
        )

        assert [False, False] == [receipt.deduplicated for receipt in first]
        assert [True, False, True] == [receipt.deduplicated for receipt in again]
        assert first[1].commit_log_offset == again[0].commit_log_offset


def test_a_record_that_rotted_is_written_again(tmp_path: Path, send: Callable[..., list[AppendResult]]) -> None:
    with open_log(tmp_path, file_size_bytes=1 << 20) as log:
        append(log, new_message())
        first = send(log, *keyed("a", "b"))
        log._files.write(first[0].commit_log_offset + 90, b"?")
        again = send(log, *keyed("a", "b"))

        assert [False, True] == [result.deduplicated for result in again]


def test_an_answer_waits_for_the_flush_of_what_was_there(
    tmp_path: Path, send: Callable[..., list[AppendResult]]
) -> None:
    disk = GatedFileSystem()
    with open_log(tmp_path, disk, file_size_bytes=1 << 20, flush_interval_millis=60_000) as log:
        append(log, new_message())
        disk.gate.clear()
        send(log, *keyed("a"), flush=1)
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(send, log, *keyed("a"), flush=2)
            assert disk.is_waiting.wait(WAIT_SECONDS_MAX)
            assert not again.done()
            disk.gate.set()
            result = again.result(WAIT_SECONDS_MAX)[0]
        assert result.deduplicated
        assert log.status.flushed_offset == log.status.end_offset > result.commit_log_offset


def test_after_a_kill_what_is_sent_again_is_there_once(tmp_path: Path) -> None:
    requests = [
        pb.AppendMessageStreamRequest(
            messages=keyed(*(f"{number}-{n}" for n in range(8))), deduplicate=True, flush=FLUSH_MODE_SYNC
        )
        for number in range(200)
    ]
    with Service("commitlog", tmp_path) as service:
        answers = service.stub.AppendMessageStream(iter(requests))
        acknowledged = [next(answers) for _ in range(20)]
        service.kill()
        with pytest.raises(grpc.RpcError):
            acknowledged.extend(answers)
    with hosted_service("commitlog", tmp_path) as service:
        again = list(service.stub.AppendMessageStream(iter(requests)))
        status = service.stub.GetStatus(pb.GetStatusRequest())
        keys: list[str] = []
        tail = service.stub.Reput(pb.ReputRequest(start_offset=-1))
        for batch in tail:
            keys += [request.unique_key for request in batch.requests]
            if batch.next_offset == status.log_end_offset:
                break
        tail.cancel()

    assert 20 <= len(acknowledged) < 200 == len(again)
    for first, second in zip(acknowledged, again, strict=False):
        assert list(first.results) == [as_first(result) for result in second.results]
    assert [f"{number}-{n}" for number in range(200) for n in range(8)] == sorted(keys, key=_in_order)
    assert 1600 == len(set(keys))


def _in_order(key: str) -> tuple[int, ...]:
    return tuple(map(int, key.split("-")))
