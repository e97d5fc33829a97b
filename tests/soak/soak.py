"""A soak with everything on: three replicas, two gateways, clients of every kind over every door, and what happens to a shard.

Meanwhile processes are killed by a seed, files expire, go to a cold tier and are backed up, and at half time every process is
replaced: by today's code, after that of a release before where one is named. What that release cannot do, its lite topics and
its remoting door, begins behind the upgrade. From then on one replica and one gateway are spared, so that they live long.

    Producers (history.py)           ordinary messages by `reput_client`, through both gateways
    Sender (waiting_work.py)         delayed, timed and recalled messages; transactions with every end
    AllDoors (test_delivery_kills)   messages in order and of lite topics by three protocols; groups that pop, pull and lock
    Group (whole_shard.py)           a group that pops the ordinary messages
    Keeper (keeping.py)              cold tier, backups, and every file of the log for the judge
    Watch (watching.py)              memory, descriptors and threads

The log is the judge. It is read whole, also what retention has removed:

- every message that was acknowledged is in it once, at its place; queues have no hole, the logs of the replicas are equal
- each due message is there once and not early; recalled and rolled back ones are not
- each group got every message; none after its acknowledgement was answered; in order where that is promised; each move is once
- the first and the last backup, restored, equal it up to their ends
- what retention removed is found in the cold tier
- the processes are flat
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1.message_pb2 import FLUSH_MODE_REPLICATED
from reput_client import QueryClient, ReputClientError
from tests.cluster.faults import KINDS_OF_WHOLE_REPLICAS, Fault, inflict, plan
from tests.cluster.history import Producers, problems_of_logs
from tests.cluster.shard import pause
from tests.cluster.whole_shard import Group, WholeShard, roll
from tests.soak.keeping import Keeper, clock, disk_bytes
from tests.soak.watching import Life, Sample, Watch, growth_problems, is_judged, quarters
from tests.support.ports import free_port
from tests.support.releases import ROOT, environ_of, tree_of
from tests.support.service import CHANNEL_OPTIONS
from tests.support.waiting import wait_until
from tests.torture.lasting_clients import Door
from tests.torture.store_check import first_offset, read_frames
from tests.torture.test_delivery_kills import AllDoors
from tests.torture.waiting_work import Sender, sent_problems

ORDINARY, WAITING = "Soaked", "waiting"  # topics; those of AllDoors are `orders` and `sessions`
PRODUCER_COUNT = 2
HIDDEN_SECONDS = 15  # an acknowledgement that was not carried out costs so long at the end
BETWEEN = 20  # messages from one group of faults to the next
WELL_SECONDS = (1.0, 6.0)  # between two of them
SPARED = ("r3", "gateway-2")  # from the upgrade on
# Jobs run so often in a run, and not more often or more rarely than that.
JOB_COUNT, JOB_SECONDS_MIN, JOB_SECONDS_MAX = 20, 5.0, 120.0
# A file stays for so many rounds of the jobs, and so long at least: no group may fall behind by that in a failover.
RESERVED_ROUNDS, RESERVED_SECONDS_MIN = 3, 120
FILE_BYTES, FILE_BYTES_OF_HOURS, HOURS_SECONDS = 256 << 10, 2 << 20, 1800
COLD_COUNT = 20  # messages that are looked for in the cold tier
PROGRESS_SECONDS = 60.0
PROBLEM_COUNT_MAX = 20


@dataclass
class Figures:
    """What a run was and did; `table` is its report."""

    seed: int
    before: str
    directory: Path
    problems: list[str] = field(default_factory=list)
    rows: dict[str, object] = field(default_factory=dict)
    lives: Mapping[Life, list[Sample]] = field(default_factory=dict)

    def table(self) -> str:
        """Markdown."""
        lines = [
            "| what | figure |",
            "| --- | --- |",
            *(f"| {name} | {figure} |" for name, figure in self.rows.items()),
        ]
        lines += [
            "",
            "| process, quarters of its life | minutes | PSS in MiB | descriptors | threads |",
            "| --- | --- | --- | --- | --- |",
        ]
        for life, samples in self.lives.items():
            if is_judged(samples):
                columns = [" ".join(f"{each:.0f}" for each in row) for row in zip(*quarters(samples), strict=True)]
                minutes = (samples[-1].at - samples[0].at) / 60
                lines.append(f"| {life.member} {life.what} | {minutes:.1f} | {' | '.join(columns)} |")
        return "\n".join(lines) + "\n"


def settings_of(seconds: float) -> dict[str, str]:
    """Of all processes: files that go soon."""
    return {
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_BYTES if seconds < HOURS_SECONDS else FILE_BYTES_OF_HOURS),
        "REPUT_COMMITLOG_FILE_RESERVED_SECONDS": str(reserved_seconds(seconds)),
        "REPUT_COMMITLOG_DELETE_WHEN_HOURS": ";".join(map(str, range(24))),
    }


def job_seconds(seconds: float) -> float:
    """From one round of jobs to the next in a run that takes so long."""
    return min(max(seconds / JOB_COUNT, JOB_SECONDS_MIN), JOB_SECONDS_MAX)


def reserved_seconds(seconds: float) -> int:
    """How long a file stays in a run that takes so long."""
    return max(RESERVED_SECONDS_MIN, int(RESERVED_ROUNDS * job_seconds(seconds)))


class Soak:
    """One run; `go` is all of it.

    Args:
        directory: an empty one, for stores and logs.
        seconds: how long there is load.
        seed: of faults and clients.
        before: the release to begin with; empty: today's code.
    """

    def __init__(self, directory: Path, seconds: float, seed: int, before: str = "") -> None:
        self.figures = Figures(seed, before, directory)
        self._directory = directory
        self._seconds = seconds
        self._seed = seed
        self._before = before
        self._doors_at = {name: f"127.0.0.1:{free_port()}" for name in ("gateway", "gateway-2")}
        names = ("r1", "r2", "r3", *self._doors_at)
        stores = {name: directory / name for name in names[:3]}
        self._keeper = Keeper(directory, stores, job_seconds(seconds))
        self._today = {name: {**environ_of(ROOT), **self._of_gateway(name, has_door=True)} for name in names}
        self._first = self._today
        if before:
            release = environ_of(tree_of(before))
            self._first = {name: {**release, **self._of_gateway(name, has_door=False)} for name in names}
        self._faults: list[str] = []
        self._began = time.monotonic()
        self._disk_bytes_max = 0
        self._doors: AllDoors | None = None

    def go(self) -> Figures:
        """Run and judge; the problems are in the figures. A hang or a refusal is an AssertionError."""
        shard = WholeShard(
            self._directory,
            settings=settings_of(self._seconds),
            environs=self._first,
            gateway_count=len(self._doors_at),
        )
        try:
            watch = Watch(shard.pid, [*shard.names, *shard.gateways], self._seconds)
            with self._keeper, watch:
                judged = self._load(shard)
            end = self._last_backup(shard)
            self.figures.problems += self._cold_problems(shard, judged.producers)
        finally:
            shard.close()
        self.figures.lives = watch.lives
        self._judge(judged, end)
        self.figures.problems += growth_problems(watch.lives)
        self.figures.rows["time"] = f"{clock(time.monotonic() - self._began)}, of it {clock(self._seconds)} under load"
        return self.figures

    def _of_gateway(self, name: str, *, has_door: bool) -> dict[str, str]:
        if name not in self._doors_at:
            return {}
        environ = {
            "REPUT_GATEWAY_COLD": self._keeper.cold,
            "REPUT_GATEWAY_COLD_CACHE": str(self._directory / f"cache-{name}"),
        }
        if has_door:
            environ |= {
                "REPUT_GATEWAY_REMOTING_ADDRESS": self._doors_at[name],
                "REPUT_GATEWAY_REMOTING_VIP_CHANNEL": "off",
            }
        return environ

    # -- the load

    def _load(self, shard: WholeShard) -> "Judged":
        both = "ipv4:" + ",".join(shard.gateways.values())
        until = time.monotonic() + self._seconds
        with ExitStack() as ending:
            producers = Producers(both, ORDINARY, count=PRODUCER_COUNT, seed=self._seed)
            group = ending.enter_context(Group(shard.gateway, ORDINARY, HIDDEN_SECONDS))
            sender = Sender(shard.gateways["gateway-2"], self._seed, WAITING, FLUSH_MODE_REPLICATED)
            judged = Judged(producers, group, sender)
            ending.callback(self._stop_doors)
            with self._progress(shard, judged):
                try:
                    with producers:
                        producers.wait_for(BETWEEN)
                        if not self._before:
                            self._open_doors(shard)
                        plans = iter(plan(self._seed, int(self._seconds) + 2, KINDS_OF_WHOLE_REPLICAS))
                        dice = random.Random(self._seed)
                        self._hurt(shard, judged, plans, dice, until - self._seconds / 2, ())
                        began = time.monotonic()
                        roll(shard, producers, self._today, gateway_at=1)
                        self.figures.rows["upgrade"] = (
                            f"{self._before or 'today'} to today at half time, {time.monotonic() - began:.0f} s"
                        )
                        if self._doors is None:
                            self._open_doors(shard)
                        self._hurt(shard, judged, plans, dice, until, SPARED)
                finally:
                    sender.stop()
                self._drain(shard, judged)
            shard.settle()
        return judged

    def _open_doors(self, shard: WholeShard) -> None:
        door = Door(self._doors_at["gateway"], shard.gateway)
        self._doors = AllDoors(shard.gateway, door, self._seed, flush=FLUSH_MODE_REPLICATED)

    def _stop_doors(self) -> None:
        if self._doors is not None:
            self._doors.stop()

    def _hurt(
        self,
        shard: WholeShard,
        judged: "Judged",
        plans: Iterator[list[Fault]],
        dice: random.Random,
        until: float,
        spared: tuple[str, ...],
    ) -> None:
        """Groups of faults until a time; one at least."""
        while True:
            self._faults += inflict(shard, next(plans), spared)
            shard.wait_for_leader()
            judged.producers.wait_for(BETWEEN)
            pause(dice.uniform(*WELL_SECONDS))
            problems = self._keeper.problems + judged.sender.work.problems
            assert not problems, problems[:PROBLEM_COUNT_MAX]
            if time.monotonic() >= until:
                return

    def _drain(self, shard: WholeShard, judged: "Judged") -> None:
        """Nothing is sent any more; return when every group has all, and all that was due has come."""
        shard.wait_until_whole()
        with grpc.insecure_channel(shard.gateway, options=CHANNEL_OPTIONS) as channel:
            assert self._doors is not None
            self._doors.drain(gateway_grpc.GatewayServiceStub(channel))
        judged.group.wait_for([one.key for one in judged.producers.acknowledged])
        with QueryClient(shard.gateway) as queries:

            def is_over() -> bool:
                try:
                    return not list(queries.scheduled_messages(WAITING))
                except ReputClientError:
                    return False

            wait_until(is_over, "what was due has come", poll_seconds=0.2)

    @contextmanager
    def _progress(self, shard: WholeShard, judged: "Judged") -> Iterator[None]:
        """Tells each minute how far it is."""
        stopping = threading.Event()

        def tell() -> None:
            while True:
                is_over = stopping.wait(PROGRESS_SECONDS)
                self._disk_bytes_max = max(self._disk_bytes_max, disk_bytes(self._directory))
                if is_over:
                    return
                print(
                    f"{clock(time.monotonic() - self._began)} {judged.message_count(self._doors)} messages, "
                    f"{len(self._faults)} faults, {self._keeper.backup_count} backups, "
                    f"{self._disk_bytes_max / (1 << 20):.0f} MiB of disk",
                    flush=True,
                )

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            stopping.set()
            teller.join()

    # -- the judgement

    def _last_backup(self, shard: WholeShard) -> int:
        """One of the leader's store; where it ends. All that was acknowledged lies before that."""
        status = shard.status(shard.wait_for_leader())
        assert status is not None
        self.figures.rows["epochs"] = (
            f"{len(status.epochs)}; the lead was taken or handed over {status.epoch - 1} times"
        )
        end = self._keeper.back_up(shard.wait_for_leader())
        assert end is not None, "the leader's log ends before the last backup"
        assert end >= status.confirm_offset
        return end

    def _cold_problems(self, shard: WholeShard, producers: Producers) -> list[str]:
        """Messages that no log has any more, as the gateways find them."""
        first = min(map(first_offset, shard.stores.values()))
        file_count = first // int(settings_of(self._seconds)["REPUT_COMMITLOG_FILE_SIZE_BYTES"])
        gone = [one for one in producers.acknowledged if one.commit_log_offset < first]
        self.figures.rows["retention"] = (
            f"files stay {reserved_seconds(self._seconds)} s; "
            f"{file_count} of {self._keeper.kept_file_count} are gone from every replica"
        )
        self.figures.rows["cold tier"] = (
            f"{self._keeper.shipped_count} files shipped, {len(gone)} ordinary messages only there"
        )
        problems = []
        for address in shard.gateways.values():
            with QueryClient(address) as queries:
                for one in random.Random(self._seed).sample(gone, min(COLD_COUNT, len(gone))):
                    found = [each.unique_key for each in queries.by_unique_key(ORDINARY, one.key)]
                    if found != [one.key]:
                        problems.append(f"{one.key} is gone from the log, and the gateway at {address} finds {found}")
        return problems

    def _judge(self, judged: "Judged", end: int) -> None:
        assert self._doors is not None
        rows, problems = self.figures.rows, self.figures.problems
        whole = self._keeper.whole_log(end)
        problems += self._keeper.problems
        frames = read_frames(whole, problems)
        work = judged.sender.work
        problems += problems_of_logs({"log": frames}, ORDINARY, judged.producers)
        problems += judged.group.problems() + work.problems + sent_problems(frames, work.sent, topic=WAITING)
        problems += self._doors.problems(whole, frames)
        problems += self._keeper.restore_problems(whole)
        rows["messages, acknowledged"] = judged.message_count(self._doors)
        kinds = Counter(sent.kind.value for sent in work.sent if sent.is_acked)
        ordered, lite = (len(each.acked) for each in self._doors.producers)
        rows["of them"] = (
            f"{len(judged.producers.acknowledged)} ordinary, {', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))}, "
            f"{ordered} in order, {lite} lite"
        )
        rows["consumed"] = f"{len(judged.group.acked)} of ordinary ones; of those over all doors: {self._doors}"
        rows["calls that failed at a producer"] = len(judged.producers.failures)
        rows["longest time without an acknowledgement"] = f"{judged.producers.longest_silence():.1f} s"
        rows["log"] = f"{len(frames)} records, {end} bytes"
        rows["faults"] = ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(map(_kind_of, self._faults)).items()))
        rows["backups"] = (
            f"{self._keeper.backup_count}, each verified; {self._keeper.later_count} put off, as the replica was behind; "
            "the oldest and the newest one restored"
        )
        rows["disk, at most"] = f"{self._disk_bytes_max / (1 << 20):.0f} MiB, the judge's copies of the log with it"


def _kind_of(fault: str) -> str:
    return next(kind for kind in sorted(KINDS_OF_WHOLE_REPLICAS, key=len, reverse=True) if fault.startswith(kind))


@dataclass
class Judged:
    """Clients whose calls are judged."""

    producers: Producers
    group: Group
    sender: Sender

    def message_count(self, doors: AllDoors | None) -> int:
        """Messages that were acknowledged."""
        of_doors = sum(len(each.acked) for each in doors.producers) if doors is not None else 0
        return len(self.producers.acknowledged) + self.sender.work.acked_count + of_doors
