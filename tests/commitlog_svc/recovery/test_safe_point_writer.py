"""RocketMQ's checkpoint file: what the log and its two builders write there."""

from pathlib import Path

from commitlog_svc.recovery.safe_point_writer import CheckpointFile
from commitlog_svc.reput.followers import FollowerRegistry
from store.files.file_system import RealFileSystem
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint


def open_checkpoint(root: Path) -> tuple[FollowerRegistry, CheckpointFile]:
    followers = FollowerRegistry(RealFileSystem(), root / "own", ("consumequeue", "index"))
    followers.load()
    checkpoint = CheckpointFile(RealFileSystem(), root, followers)
    checkpoint.load()
    return followers, checkpoint


def read(root: Path) -> StoreCheckpoint:
    return decode_checkpoint((root / "checkpoint").read_bytes())


def test_a_builder_switched_off_leaves_its_time_alone(tmp_path: Path) -> None:
    followers, checkpoint = open_checkpoint(tmp_path)
    followers.report("index", 100, 777, 500)
    checkpoint.write(500, 900)
    followers.report("index", -1, 0, 500)
    checkpoint.write(500, 950)

    assert (read(tmp_path).physic_msg_timestamp, read(tmp_path).index_msg_timestamp) == (950, 777)


def test_the_times_are_those_of_queues_and_index_whatever_else_follows(tmp_path: Path) -> None:
    followers, checkpoint = open_checkpoint(tmp_path)
    for name, time_millis in (("consumequeue", 111), ("index", 222), ("schedule", 5)):
        followers.report(name, 100, time_millis, 500)
    checkpoint.write(500, 900)

    assert (read(tmp_path).logics_msg_timestamp, read(tmp_path).index_msg_timestamp) == (111, 222)


def test_a_brokers_confirm_offset_is_kept_up_to_date_and_none_is_made(tmp_path: Path) -> None:
    _, checkpoint = open_checkpoint(tmp_path)
    checkpoint.write(500, 900)
    assert read(tmp_path).confirm_phy_offset == 0

    (tmp_path / "checkpoint").write_bytes(encode_checkpoint(StoreCheckpoint(confirm_phy_offset=70)))
    _, checkpoint = open_checkpoint(tmp_path)
    checkpoint.write(400, 900)

    assert read(tmp_path).confirm_phy_offset == 400
