"""`reput lead`: who leads a shard with replicas, and how an operator moves the lead.

Everything goes through the coordinator's record of the shard. A planned hand-over is a wish in it: the leader reads it at its
next renewal and gives up once the other replica has everything. A forced one takes the lead away and makes one replica the only
member of the in-sync set; it is an unclean election, and says before it what is lost. With --leave, what ends a machine or a
pod asks for a hand-over to any in-sync replica, if its own one leads.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, usage_error, warn
from cli.options import OutputFormat
from cli.status import tls_identity

if TYPE_CHECKING:
    from commitlog_svc.replication.epochs import Epoch
    from commitlog_svc.replication.leading.record import ShardRecord
    from reput.commitlog.v1.commitlog_service_pb2 import GetStatusResponse
    from services.coordination.access import CoordinatorAccess
    from services.coordination.port import RecordStore
    from services.serving.tls import TlsIdentity

CALL_SECONDS = 5.0
POLL_SECONDS = 0.2
# A leader renews its record each second or so: a wish that meets a renewal twice in a row is rare, five times is another cause.
WISH_ATTEMPT_COUNT_MAX = 5
TIMEOUT_SECONDS = 30.0
BROKER_NAME_DEFAULT = "broker-a"
COLUMNS = ["replica", "role", "in_sync", "epoch", "confirm_offset", "log_end_offset", "address"]

Statuses = Mapping[str, "GetStatusResponse | None"]


def lead(
    *,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="Hand the lead over to this replica.")] = "",
    force: Annotated[
        str,
        typer.Option(
            "--force", metavar="NAME", help="Let this replica lead although it may lack acknowledged messages."
        ),
    ] = "",
    leave: Annotated[
        str,
        typer.Option(
            "--leave",
            metavar="NAME",
            help="Hand the lead over to an in-sync replica if this one leads, before it is stopped.",
        ),
    ] = "",
    coordinator: Annotated[
        str,
        typer.Option(
            "--coordinator",
            envvar="REPUT_COMMITLOG_COORDINATOR",
            metavar="URL",
            help="Of the replicas; default: the gateway is asked for it.",
        ),
    ] = "",
    broker_name: Annotated[
        str, typer.Option("--broker-name", "-b", help="The shard; default: the only one with replicas, or broker-a.")
    ] = "",
    address: options.Address = options.DEFAULT_ADDRESS,
    output: options.Output = OutputFormat.TABLE,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Show the replicas of a shard, or move the lead: planned with --to or --leave, whatever is lost with --force."""
    from services.coordination.opening import open_record_store
    from store.errors import InvalidSettingError, StoreError

    if sum(map(bool, (to, force, leave))) > 1:
        usage_error("--to, --force and --leave exclude each other")
    if not coordinator:
        broker_name, coordinator = _of_gateway(address, broker_name)
    try:
        store = open_record_store(coordinator, broker_name or BROKER_NAME_DEFAULT, coordinator_access(os.environ))
        ask = partial(status_of, tls=services_identity(os.environ))
        change = Change(store, ask, time.monotonic, time.sleep, int(time.time()))
        if to:
            print(f"{to} leads in epoch {change.hand_over(to, timeout)}")
        elif leave:
            print(change.leave(leave, timeout))
        elif force:
            print(f"{force} leads in epoch {change.force(force, timeout, say=warn)}")
        else:
            show(change, output)
    except InvalidSettingError as error:
        usage_error(error.message)
    except StoreError as error:
        raise CliError(Exit.UNAVAILABLE, error.reason(), error.message) from error
    return Exit.FOUND


def _of_gateway(address: str, broker_name: str) -> tuple[str, str]:
    """The name and the coordinator of the shard with replicas that a gateway has."""
    from cli.client import query_client

    with query_client(address, CALL_SECONDS) as client:
        rows = client.installation().services
    found = [(row.broker_name, row.coordinator) for row in rows if row.coordinator]
    if broker_name:
        found = [one for one in found if one[0] == broker_name]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "none"
        usage_error(
            f"shards with replicas at {address}: {names}",
            "-b names one of several; --coordinator says where to look when no commit log answers.",
        )
    return found[0]


def coordinator_access(environment: Mapping[str, str]) -> "CoordinatorAccess":
    """The credentials for the coordinator, from the variables of the commit log's settings."""
    from services.coordination.access import CoordinatorAccess

    def file_of(name: str) -> Path | None:
        text = environment.get(f"REPUT_COMMITLOG_COORDINATOR_{name}", "")
        return Path(text) if text else None

    user = environment.get("REPUT_COMMITLOG_COORDINATOR_USER", "")
    return CoordinatorAccess(file_of("CA"), file_of("CERTIFICATE"), file_of("KEY"), user, file_of("PASSWORD_FILE"))


def services_identity(environment: Mapping[str, str]) -> "TlsIdentity | None":
    """With what the commit logs are asked: REPUT_TLS_CERTIFICATE, REPUT_TLS_KEY and REPUT_TLS_CA; None: without TLS."""
    certificate, key, ca = (environment.get(f"REPUT_TLS_{name}", "") for name in ("CERTIFICATE", "KEY", "CA"))
    return tls_identity(
        Path(certificate) if certificate else None, Path(key) if key else None, Path(ca) if ca else None
    )


def status_of(address: str, tls: "TlsIdentity | None" = None) -> "GetStatusResponse | None":
    """The status of a commit log; None when it does not answer."""
    from reput.commitlog.v1.commitlog_service_pb2 import GetStatusRequest
    from services.calling.commitlog import CommitLogClient
    from services.rpcs.commitlog import GET_STATUS
    from store.errors import StoreError

    client = CommitLogClient(address, tls=tls)
    try:
        return client.call(GET_STATUS, GetStatusRequest(), CALL_SECONDS)
    except StoreError:
        return None
    finally:
        client.close()


class Change:
    """Changes of the lead of one shard.

    Args:
        store: the coordinator's record.
        status_of: what the commit log at an address says; None when it does not answer.
        clock: seconds, rising.
        pause: waits for so many seconds.
        first_epoch: for a record that is made anew; larger than any that the replicas may have: seconds since 1970.
    """

    def __init__(
        self,
        store: "RecordStore",
        status_of: "Callable[[str], GetStatusResponse | None]",
        clock: Callable[[], float],
        pause: Callable[[float], object],
        first_epoch: int,
    ) -> None:
        self._first_epoch = first_epoch
        self._store = store
        self._status_of = status_of
        self._clock = clock
        self._pause = pause

    def read(self) -> "tuple[ShardRecord, str] | None":
        """The record and its version; None when there is none."""
        from commitlog_svc.replication.leading.record import ShardRecord

        stored = self._store.read(CALL_SECONDS)
        return None if stored is None else (ShardRecord.from_bytes(stored.data), stored.version)

    def statuses(self, record: "ShardRecord") -> Statuses:
        """The status of each replica of a record, by name."""
        addresses = {name: of.get("commitlog", "") for name, of in record.addresses.items()}
        return {name: self._status_of(address) if address else None for name, address in sorted(addresses.items())}

    def hand_over(self, to: str, timeout_seconds: float) -> int:
        """Ask the leader to hand over; the epoch of the new leader.

        Raises:
            CliError: that replica cannot lead, or does not in time.
        """
        for attempts_left in reversed(range(WISH_ATTEMPT_COUNT_MAX)):
            record, version = self.read_known()
            if record.leader == to and not record.hand_over_to:
                return record.epoch
            if to not in record.in_sync:
                known = ", ".join(sorted(record.in_sync))
                raise CliError(
                    Exit.USAGE,
                    "NOT_IN_SYNC",
                    f"{to} is not in sync, so it may lack messages that were acknowledged; in sync are {known}",
                    "`reput status` shows how far it is; wait until it is in sync.",
                )
            # A wish for another replica is taken back by naming the leader.
            wish = "" if record.leader == to else to
            wanted = dataclasses.replace(record, hand_over_to=wish, renewal=record.renewal + 1)
            try:
                self._write(wanted, version)
                break
            except CliError:
                # The leader renewed the record meanwhile, as it does all the time.
                if not attempts_left:
                    raise
                self._pause(POLL_SECONDS)
        return self._wait_until_led(to, record.epoch, timeout_seconds) if wish else record.epoch

    def leave(self, name: str, timeout_seconds: float) -> str:
        """Ask a replica that leads to hand over to an in-sync one; what came of it, in words.

        Replicas that have the last names come first: a roll-out has restarted them already, and the lead moves once less.

        Raises:
            CliError: no replica takes the lead in time.
        """
        deadline = self._clock() + timeout_seconds
        record, _ = self.read_known()
        if record.leader != name:
            return f"{name} does not lead"
        others = sorted(record.in_sync - {name}, reverse=True)
        for other in others:
            try:
                return f"{other} leads in epoch {self.hand_over(other, deadline - self._clock())}"
            except CliError as error:
                if other == others[-1] or self._clock() >= deadline:
                    raise
                warn(error.message)
        raise CliError(
            Exit.UNAVAILABLE,
            "NOT_ENOUGH_REPLICAS",
            f"no other replica is in sync with {name}: nobody can take the lead",
            "Wait until another one is in sync, or stop it all the same: the shard stands until it is back.",
        )

    def force(self, to: str, timeout_seconds: float, *, say: Callable[[str], object]) -> int:
        """Let a replica lead whatever it lacks; the epoch of the new leader.

        Args:
            to: the replica.
            timeout_seconds: for its election.
            say: told what is lost, before it is.

        Raises:
            CliError: it does not lead in time.
        """
        from commitlog_svc.replication.leading.record import ShardRecord, forced

        known = self.read()
        if known is None:
            record, version = ShardRecord(self._first_epoch, "", frozenset({to})), None
            say(
                "the coordinator has no record of this shard: whether another replica has more messages is not known here"
            )
            statuses: Statuses = {}
        else:
            record, version = known
            statuses = self.statuses(record)
            for line in losses(record, statuses, to):
                say(line)
        epochs = [status.epoch for status in statuses.values() if status is not None]
        wanted = forced(dataclasses.replace(record, epoch=max([record.epoch, *epochs])), to)
        self._write(wanted, version)
        return self._wait_until_led(to, wanted.epoch, timeout_seconds)

    def read_known(self) -> "tuple[ShardRecord, str]":
        """The record and its version; CliError when there is none."""
        known = self.read()
        if known is None:
            raise CliError(
                Exit.NOTHING_FOUND,
                "RECORD_NOT_FOUND",
                "the coordinator has no record of this shard",
                "-b names the shard. If the coordinator's data is lost, look at what each replica has, then --force one.",
            )
        return known

    def _write(self, record: "ShardRecord", version: str | None) -> None:
        from store.errors import RecordConflictError

        try:
            self._store.write(record.to_bytes(), version, CALL_SECONDS)
        except RecordConflictError as error:
            raise CliError(
                Exit.UNAVAILABLE, error.reason(), "the record has changed meanwhile; nothing was done", "Try again."
            ) from error

    def _wait_until_led(self, to: str, epoch: int, timeout_seconds: float) -> int:
        deadline = self._clock() + timeout_seconds
        while True:
            known = self.read()
            if known is not None and known[0].leader == to and known[0].epoch > epoch:
                return known[0].epoch
            if known is not None and known[0].leader not in ("", to) and known[0].hand_over_to != to:
                raise CliError(
                    Exit.UNAVAILABLE,
                    "NOT_LEADER",
                    f"{to} does not lead: {known[0].leader} does in epoch {known[0].epoch}, and the wish was taken back",
                    f"{to} was away or too far behind; `reput lead` shows the replicas. Try again when it is caught up.",
                )
            if self._clock() >= deadline:
                leader = known[0].leader if known is not None else ""
                raise CliError(
                    Exit.UNAVAILABLE,
                    "NOT_LEADER",
                    f"{to} does not lead after {timeout_seconds:g} s; {leader or 'nobody'} does",
                    "The leader may still fulfil the wish: `reput lead` shows it; `--to` with the leader's name takes it back.",
                )
            self._pause(POLL_SECONDS)


def losses(record: "ShardRecord", statuses: Statuses, to: str) -> list[str]:
    """The loss by a forced election of a replica, as a sentence.

    Args:
        record: of the shard.
        statuses: what each replica says; None: it does not answer.
        to: the replica that is to lead.
    """
    from commitlog_svc.replication.epochs import NOWHERE, agreed_offset

    own = statuses.get(to)
    if own is None:
        return [f"{to} does not answer: what it lacks is not known"]
    if to in record.in_sync:
        return [f"{to} is in sync: nothing that was acknowledged as replicated is lost"]
    lines = []
    silent = sorted(name for name in record.in_sync if statuses.get(name) is None)
    if silent:
        lines.append(
            f"everything is lost that was acknowledged behind {own.log_end_offset} of the log, where the log of {to} ends; "
            f"how much is not known, because {', '.join(silent)} (in sync) does not answer"
        )
    for name in sorted(record.in_sync - set(silent)):
        status = statuses[name]
        assert status is not None
        agreed = agreed_offset(_epochs(own), own.log_end_offset, _epochs(status), status.log_end_offset)
        if agreed == NOWHERE:
            lines.append(f"what {to} lacks of the log of {name} is not known: no leader is known that wrote to both")
            continue
        lost = status.confirm_offset - agreed  # what lies behind it in the other log may be as long and is not the same
        if lost > 0:
            lines.append(f"{lost} bytes of confirmed messages are lost that {name} has and {to} lacks")
    return lines or [f"{to} has all that the in-sync replicas have confirmed"]


def _epochs(status: "GetStatusResponse") -> "list[Epoch]":
    from commitlog_svc.replication.epochs import Epoch

    return [Epoch(epoch.epoch, epoch.begin_offset) for epoch in status.epochs]


def show(change: Change, output: OutputFormat) -> None:
    """Print the replicas of a shard."""
    from cli import printing

    record, _ = change.read_known()
    statuses = change.statuses(record)
    leader = statuses.get(record.leader)
    # The record has the addresses of replicas that have led; the leader knows all.
    known = set(statuses) | record.in_sync | {one.name for one in (leader.replicas if leader is not None else ())}
    rows = [_row(name, record, statuses) for name in sorted(known)]
    more = {"epoch": record.epoch, "leader": record.leader, "hand_over_to": record.hand_over_to}
    printing.print_rows("replicas", rows, COLUMNS, output, more)
    if output.is_table:
        print(f"\nepoch {record.epoch}, leader {record.leader or 'none'}")


def _row(name: str, record: "ShardRecord", statuses: Statuses) -> dict[str, Any]:
    status = statuses.get(name)
    silent = "away" if name in statuses else "unknown"
    return {
        "replica": name,
        "role": silent if status is None else status.role,
        "in_sync": name in record.in_sync,
        "epoch": None if status is None else status.epoch,
        "confirm_offset": None if status is None else status.confirm_offset,
        "log_end_offset": None if status is None else status.log_end_offset,
        "address": record.addresses.get(name, {}).get("commitlog", ""),
    }
