"""`reput lead`: what an operator's command writes into the record of a shard, and what it says first."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.exits import CliError, Exit
from cli.lead import Change, coordinator_access, losses, services_identity, show
from cli.options import OutputFormat
from commitlog_svc.replication.leading.record import ShardRecord
from reput.commitlog.v1.commitlog_service_pb2 import GetStatusResponse
from reput.commitlog.v1.replication_pb2 import Epoch
from services.coordination.access import CoordinatorAccess
from services.coordination.port import MemoryRecordStore, StoredRecord

NOW_SECONDS = 1_800_000_000
ADDRESSES = {name: {"commitlog": f"{name}:1"} for name in ("r1", "r2", "r3")}
RECORD = ShardRecord(5, "r1", frozenset({"r1", "r2"}), 912, 4000, "", ADDRESSES)


def status(end_offset: int, epoch: int = 5, epochs: tuple[tuple[int, int], ...] = ((5, 0),)) -> GetStatusResponse:
    return GetStatusResponse(
        log_end_offset=end_offset,
        confirm_offset=end_offset,
        epoch=epoch,
        epochs=[Epoch(epoch=number, begin_offset=begin) for number, begin in epochs],
    )


class World:
    """A coordinator in memory, and replicas that act when the command waits."""

    def __init__(self, record: ShardRecord | None = RECORD) -> None:
        self.store = MemoryRecordStore()
        if record is not None:
            self.store.write(record.to_bytes(), None, 1.0)
        self.statuses: dict[str, GetStatusResponse] = {}
        self.acts: list[Callable[[ShardRecord], ShardRecord]] = []
        self.said: list[str] = []
        self.seconds = 0.0
        self.change = self._change_of(self.store)

    def _change_of(self, store: MemoryRecordStore) -> Change:
        return Change(store, self._status_of, lambda: self.seconds, self._pause, NOW_SECONDS)

    def renew_meanwhile(self, times: int) -> None:
        """So many times the leader renews the record between the command's read and its write."""
        self.change = self._change_of(RenewedMeanwhile(self.store, times))

    def _status_of(self, address: str) -> GetStatusResponse | None:
        return self.statuses.get(address)

    def _pause(self, seconds: float) -> None:
        self.seconds += seconds
        if self.acts:
            stored = self.store.read(1.0)
            assert stored is not None
            self.store.write(self.acts.pop(0)(ShardRecord.from_bytes(stored.data)).to_bytes(), stored.version, 1.0)

    @property
    def record(self) -> ShardRecord:
        stored = self.store.read(1.0)
        assert stored is not None
        return ShardRecord.from_bytes(stored.data)


def elected(record: ShardRecord) -> ShardRecord:
    """What the replica that is meant makes of the record."""
    to = record.hand_over_to
    return ShardRecord(record.epoch + 1, to, record.in_sync, 0, 4000, "", record.addresses)


def test_a_planned_change_is_a_wish_in_the_record_that_the_leader_fulfils() -> None:
    world = World()
    seen = []
    world.acts = [lambda record: seen.append(record) or elected(record)]

    assert world.change.hand_over("r2", 30) == 6

    (wish,) = seen
    assert (wish.leader, wish.hand_over_to, wish.epoch, wish.in_sync) == ("r1", "r2", 5, RECORD.in_sync)
    assert wish.renewal == 913


def test_a_leader_that_leaves_hands_over_to_the_last_of_the_in_sync_replicas() -> None:
    world = World(dataclasses.replace(RECORD, in_sync=frozenset({"r1", "r2", "r3"})))
    world.acts = [elected]

    assert world.change.leave("r1", 20) == "r3 leads in epoch 6"


def test_a_leader_that_leaves_tries_the_next_replica_when_the_wish_is_taken_back() -> None:
    world = World(dataclasses.replace(RECORD, in_sync=frozenset({"r1", "r2", "r3"})))
    world.acts = [lambda record: dataclasses.replace(record, hand_over_to=""), elected]

    assert world.change.leave("r1", 20) == "r2 leads in epoch 6"


class RenewedMeanwhile(MemoryRecordStore):
    """A record that its leader renews between a command's read and its write, so many times."""

    def __init__(self, store: MemoryRecordStore, times: int) -> None:
        super().__init__()
        self._store = store
        self._times_left = times

    def read(self, timeout_seconds: float) -> StoredRecord | None:
        stored = self._store.read(timeout_seconds)
        if stored is not None and self._times_left:
            self._times_left -= 1
            record = ShardRecord.from_bytes(stored.data)
            renewed = dataclasses.replace(record, renewal=record.renewal + 1)
            self._store.write(renewed.to_bytes(), stored.version, timeout_seconds)
        return stored

    def write(self, data: bytes, version: str | None, timeout_seconds: float) -> str:
        return self._store.write(data, version, timeout_seconds)


def test_a_wish_that_met_a_renewal_of_the_leader_was_given_up() -> None:
    world = World()
    world.renew_meanwhile(2)
    # Two pauses after conflicts, one until it leads.
    world.acts = [lambda record: record, lambda record: record, elected]

    assert world.change.hand_over("r2", 30) == 6


def test_a_leader_that_leaves_went_to_the_second_choice_when_it_renewed_meanwhile() -> None:
    world = World(dataclasses.replace(RECORD, in_sync=frozenset({"r1", "r2", "r3"})))
    world.acts = [lambda record: record, elected]
    world.renew_meanwhile(2)

    assert world.change.leave("r1", 20) == "r3 leads in epoch 6"


def test_a_record_that_changes_at_each_attempt_ends_with_words() -> None:
    world = World()
    world.renew_meanwhile(1000)

    with pytest.raises(CliError, match="the record has changed meanwhile; nothing was done") as refused:
        world.change.hand_over("r2", 30)
    assert refused.value.code == Exit.UNAVAILABLE
    assert world.record.hand_over_to == ""


def test_a_replica_that_leaves_and_does_not_lead_changes_nothing() -> None:
    world = World()

    assert world.change.leave("r2", 20) == "r2 does not lead"
    assert world.record == RECORD


def test_a_leader_that_is_the_whole_set_cannot_leave_and_nothing_is_written() -> None:
    alone = dataclasses.replace(RECORD, in_sync=frozenset({"r1"}))
    world = World(alone)

    with pytest.raises(CliError, match="no other replica is in sync with r1") as refused:
        world.change.leave("r1", 20)
    assert refused.value.code == Exit.UNAVAILABLE
    assert world.record == alone


def test_a_leader_that_leaves_does_not_wait_longer_than_it_may() -> None:
    world = World(dataclasses.replace(RECORD, in_sync=frozenset({"r1", "r2", "r3"})))

    with pytest.raises(CliError, match="r3 does not lead after"):
        world.change.leave("r1", 3)
    assert world.seconds <= 3.5


def test_the_leader_leads_already_and_nothing_is_written() -> None:
    world = World()

    assert world.change.hand_over("r1", 30) == 5
    assert world.record == RECORD


def test_naming_the_leader_takes_back_a_wish_for_another_replica() -> None:
    world = World(dataclasses.replace(RECORD, hand_over_to="r2"))

    assert world.change.hand_over("r1", 30) == 5
    assert world.record == dataclasses.replace(RECORD, renewal=913)


def test_a_wish_that_the_leader_took_back_is_not_waited_for() -> None:
    world = World()
    world.acts = [lambda record: dataclasses.replace(record, hand_over_to="", renewal=record.renewal + 1)]

    with pytest.raises(CliError, match="r2 does not lead: r1 does in epoch 5, and the wish was taken back"):
        world.change.hand_over("r2", 30)
    assert world.seconds < 1


def test_a_replica_that_is_not_in_sync_is_refused_and_nothing_is_written() -> None:
    world = World()

    with pytest.raises(CliError, match="r3 is not in sync") as refused:
        world.change.hand_over("r3", 30)

    assert (refused.value.code, refused.value.reason) == (Exit.USAGE, "NOT_IN_SYNC")
    assert world.record == RECORD


def test_a_change_that_does_not_come_in_time_names_who_leads() -> None:
    world = World()

    with pytest.raises(CliError, match="r2 does not lead after 3 s; r1 does"):
        world.change.hand_over("r2", 3)


def test_a_forced_change_says_what_is_lost_before_it_makes_one_replica_the_only_one_in_sync() -> None:
    world = World()
    world.statuses = {"r1:1": status(1_000), "r3:1": status(700)}
    seen = []
    world.acts = [lambda record: seen.append((record, list(world.said))) or elected(record)]

    assert world.change.force("r3", 30, say=world.said.append) == 7

    ((forced, said),) = seen
    assert said[0].startswith("everything is lost that was acknowledged behind 700")
    assert "r2 (in sync) does not answer" in said[0]
    assert said[1] == "300 bytes of confirmed messages are lost that r1 has and r3 lacks"
    assert (forced.epoch, forced.leader, forced.in_sync, forced.hand_over_to) == (6, "", frozenset({"r3"}), "r3")
    assert forced.addresses == ADDRESSES


def test_a_forced_epoch_is_larger_than_any_that_a_replica_knows() -> None:
    """A coordinator that was restored from a backup has an older record than the replicas."""
    world = World()
    world.statuses = {"r1:1": status(10, epoch=9), "r2:1": status(10, epoch=8)}
    world.acts = [elected]

    assert world.change.force("r2", 30, say=world.said.append) == 11


def test_without_a_record_a_forced_change_makes_one_that_is_newer_than_all_before() -> None:
    world = World(record=None)
    world.acts = [elected]

    assert world.change.force("r2", 30, say=world.said.append) == NOW_SECONDS + 2
    assert "no record of this shard" in world.said[0]


def test_without_a_record_a_planned_change_is_refused() -> None:
    with pytest.raises(CliError, match="no record of this shard"):
        World(record=None).change.hand_over("r2", 30)


@pytest.mark.parametrize(
    ("to", "statuses", "said"),
    [
        ("r2", {"r2": status(10)}, "r2 is in sync: nothing that was acknowledged as replicated is lost"),
        ("r3", {"r3": None}, "r3 does not answer: what it lacks is not known"),
        (
            "r3",
            {"r1": status(10), "r2": status(10), "r3": status(10)},
            "r3 has all that the in-sync replicas have confirmed",
        ),
    ],
)
def test_what_is_lost_is_told_in_one_sentence_where_nothing_is(to, statuses, said) -> None:
    assert losses(RECORD, statuses, to) == [said]


@pytest.mark.parametrize(
    ("epochs", "said"),
    [
        (((3, 0), (4, 6)), "4 bytes of confirmed messages are lost that r1 has and r3 lacks"),
        (((4, 0),), "what r3 lacks of the log of r1 is not known: no leader is known that wrote to both"),
        ((), "what r3 lacks of the log of r1 is not known: no leader is known that wrote to both"),
    ],
)
def test_a_longer_log_of_an_earlier_epoch_was_said_to_have_all_although_it_had_parted(epochs, said) -> None:
    newer = ((3, 0), (5, 6))
    statuses = {"r1": status(10, epochs=newer), "r2": None, "r3": status(90, epochs=epochs)}
    assert losses(RECORD, statuses, "r3")[1:] == [said]


def test_the_credentials_of_a_secured_coordinator_were_not_passed_on() -> None:
    prefix = "REPUT_COMMITLOG_COORDINATOR_"
    given = {"CA": "ca", "CERTIFICATE": "crt", "KEY": "key", "USER": "reput", "PASSWORD_FILE": "secret"}
    access = coordinator_access({prefix + name: value for name, value in given.items()})
    assert access == CoordinatorAccess(Path("ca"), Path("crt"), Path("key"), "reput", Path("secret"))
    assert coordinator_access({}) == CoordinatorAccess()


def test_secured_commit_logs_are_asked_with_the_certificate_of_the_environment() -> None:
    assert services_identity({}) is None
    with pytest.raises(CliError, match="together or not at all"):
        services_identity({"REPUT_TLS_CA": "ca"})


@pytest.mark.parametrize("output", [OutputFormat.TABLE, OutputFormat.WIDE])
def test_a_wide_table_lacked_the_epoch_and_the_leader(output: OutputFormat, capsys: pytest.CaptureFixture[str]) -> None:
    show(World().change, output)

    assert capsys.readouterr().out.endswith("\nepoch 5, leader r1\n")
