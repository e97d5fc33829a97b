"""A torn tail, cut at every byte: recovery gives back exactly the whole records before the tear, and nothing else.

Behind the cut may lie zeros (a fresh file), bytes of an older log (a reused file) or noise. With `__CRC32#` that is exact at
every byte: a record that lost its own to noise is known by the record before it, so that only these pass: the very first
record of a log, and one whose missing bytes are by chance the last ones of an older log without it, with zeros behind
(1 in 40,000 cuts; it is what a log looks like that was told to write none from here on). Without it only the body has a CRC
(RocketMQ's default): a tear inside topic or properties is seen when they cannot be what a writer meant: a NUL at the end, a
last property without name or value, no UTF-8. What remains are tears that leave valid text, which old bytes (1 in 80) and
noise (1 in 150) make and zeros never do.
"""

import random
import shutil
from pathlib import Path

import pytest

from commitlog_svc.recovery.recovery import recover_log
from gateway.ports.shards import Shards
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.files.mapped_files import MappedFileQueue
from store.format.record import decode_record
from tests.commitlog_svc.support import BORN_HOST, new_message
from tests.support.stack import running_stack
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.torture.amount import amount, level
from tests.torture.answers import FAN_OUT, ask
from tests.torture.local_shard import open_shard
from tests.torture.log_zoo import FILE_BYTES, Zoo, make_zoo
from tests.torture.memory_files import MemoryFileSystem
from tests.torture.seeds import pick_seed

ROOT = Path("/store")
NOISES = ("zeros", "old bytes", "random")


def _tail(noise: str, zoo: Zoo, cut: int, random_: random.Random) -> bytes:
    size = len(zoo.data) - cut
    if noise == "zeros":
        return bytes(size)
    if noise == "random":
        return random_.randbytes(size)
    # The file had another name once: its records say that they stand elsewhere.
    old = make_zoo(with_crc=random_.random() < 0.5, seed=random_.randrange(1, 4)).data
    shift = random_.randrange(1, len(old))
    return (old * 2)[cut + shift :][:size]


def _recover(data: bytes) -> tuple[int, int, bytes]:
    """End of the log, records walked, and the bytes that are left, after an unclean stop without any snapshot."""
    fs = MemoryFileSystem()
    for at in range(0, len(data), FILE_BYTES):
        fs.put(ROOT / "commitlog" / f"{at:020d}", data[at : at + FILE_BYTES])
    files = MappedFileQueue(fs, ROOT / "commitlog", FILE_BYTES)
    files.load()
    found = recover_log(fs, ROOT, files, was_aborted=True, read_only=False)
    left = files.read(0, len(data)).ljust(len(data), b"\0")
    files.close()
    return found.end_offset, found.record_count, left


def _expected_end(zoo: Zoo, data: bytes, cut: int) -> int:
    """The byte behind the last whole record, blanks included, by comparing bytes: no walk takes part.

    A record whose missing bytes happen to be what lies behind the cut is whole.
    """
    end = 0
    for record in zoo.records:
        if record.commit_log_offset != end and end + 8 <= FILE_BYTES and record.commit_log_offset == FILE_BYTES:
            if data[end : end + 8] != zoo.data[end : end + 8]:
                return end
            end = FILE_BYTES
        if data[end : record.next_offset] != zoo.data[end : record.next_offset]:
            return end
        end = record.next_offset
    return end


def _points(zoo: Zoo, count: int, random_: random.Random) -> list[tuple[int, str]]:
    every = [(cut, noise) for cut in range(zoo.end_offset + 1) for noise in NOISES]
    return every if level() != "sample" else sorted(random_.sample(every, count))


def test_rmq_7437_a_tear_at_any_byte_leaves_exactly_the_whole_records_before_it() -> None:
    """Every cut of a log of 24 kinds of records, with `__CRC32#`; RocketMQ accepts 24 of the 137 cuts of one record."""
    random_ = random.Random(pick_seed("torn tail"))
    zoo = make_zoo()
    points = _points(zoo, amount(sample=300, change=0, full=0), random_)
    lost_guards = old_ends = 0
    for cut, noise in points:
        data = zoo.data[:cut] + _tail(noise, zoo, cut, random_)
        expected = _expected_end(zoo, data, cut)
        whole = sum(record.next_offset <= expected for record in zoo.records)
        end, count, left = _recover(data)
        if expected < end == zoo.records[0].next_offset and noise != "zeros":
            # Nothing before it says that this log's records are guarded: judged like one without a CRC of its own.
            assert not decode_record(data, commit_log_offset=0).is_guarded
            lost_guards += 1
            continue
        if end > expected and noise == "old bytes" and not any(data[end : end - end % FILE_BYTES + FILE_BYTES]):
            torn = decode_record(data[expected:], commit_log_offset=expected)
            assert not torn.is_guarded
            assert torn.next_offset == end
            old_ends += 1
            continue
        assert (expected, whole) == (end, count), (cut, noise)
        assert data[:end] == left[:end]
        assert not any(left[end:]), (cut, noise)
    print(f"{len(points)} points; {lost_guards} tears of the very first record not seen, {old_ends} ends of older logs")
    assert lost_guards <= 30
    assert old_ends <= 3


@pytest.mark.parametrize("noise", NOISES)
def test_without_a_crc_of_its_own_a_torn_record_is_cut_as_far_as_anybody_can_know(noise: str) -> None:
    """A prefix always; with zeros exact; else at most one record more, and that has its body whole."""
    random_ = random.Random(pick_seed("torn tail without a CRC"))
    zoo = make_zoo(with_crc=False)
    accepted = 0
    cuts = [cut for cut, kind in _points(zoo, amount(sample=300, change=0, full=0), random_) if kind == noise]
    for cut in cuts:
        data = zoo.data[:cut] + _tail(noise, zoo, cut, random_)
        expected = _expected_end(zoo, data, cut)
        end, _, left = _recover(data)
        assert data[:end] == left[:end]
        assert end >= expected
        if end > expected:
            assert noise != "zeros", cut
            accepted += 1
            torn = decode_record(data[expected:], commit_log_offset=expected)
            assert torn.next_offset <= end
    print(f"{noise}: {accepted} of {len(cuts)} torn records pass for whole ones")
    assert accepted <= len(cuts) * 0.03 + 5


def test_a_service_starts_on_torn_logs_and_appends_behind_them(tmp_path: Path) -> None:
    """The whole stack, restarted on logs cut at random bytes."""
    random_ = random.Random(pick_seed("torn tail, whole service"))
    zoo = make_zoo()
    for number in range(amount(sample=1, change=4, full=500)):
        root = tmp_path / str(number)
        cut = random_.randrange(1, zoo.end_offset)
        data = zoo.data[:cut] + _tail(random_.choice(("zeros", "random")), zoo, cut, random_)
        zoo.write_to(root, data)
        (root / "abort").write_bytes(b"1")
        expected = _expected_end(zoo, data, cut)
        with running_stack(root) as stack:
            stack.wait_until_built()
            rows = {
                row.service: row
                for row in stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
            }
            # Behind the tear stand our message and what other services add: a message that waited may be due.
            assert expected <= rows["commitlog"].log_end_offset, cut
            request = pb.AppendMessagesRequest(messages=[new_message(b"the tear", "after")], flush=2)
            offset = stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results[0].commit_log_offset
            assert expected <= offset
            assert 0 == stack.stop()
        log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
        assert log[:expected] == data[:expected], cut
        assert decode_record(log[offset:], commit_log_offset=offset).body == b"the tear", cut
        shutil.rmtree(root)


def test_rmq_alibaba_358_queues_and_index_are_cut_with_a_damaged_tail_after_a_clean_stop(tmp_path: Path) -> None:
    """RocketMQ's recovery after a normal stop left the queue beyond the log."""
    fs = MemoryFileSystem()
    fs.mkdirs(tmp_path)
    with open_shard(tmp_path, fs) as shard:
        sent = [new_message(b"%d" % number, queue_id=0, keys=["k"]) for number in range(5)]
        receipts = shard.log.opened.appends.append_messages(sent, sync=True, born_host=BORN_HOST)
    for lost in (4, 3):
        offset = receipts[lost].commit_log_offset
        path = tmp_path / "commitlog" / f"{0:020d}"
        data = bytearray(fs.bytes_of(path))
        data[offset + 60 : offset + receipts[lost].store_size_bytes] = bytes(receipts[lost].store_size_bytes - 60)
        fs.put(path, bytes(data))
        # Without what the commit log remembers: it would know that this was acknowledged, and stop.
        for own in [p for p in fs.paths() if p.parent == tmp_path / "reput" / "commitlog"]:
            fs.unlink(own)

        with open_shard(tmp_path, fs) as shard:
            assert offset == shard.log.status.end_offset
            assert lost == shard.table.queue("orders", 0).units.end
            answer = ask(Shards([shard.shard()], FAN_OUT), ("key", "orders", "k"))
            assert list(range(lost))[::-1] == [record.queue_offset for record in answer.records]
            assert lost == shard.index_files.key_count // 2
