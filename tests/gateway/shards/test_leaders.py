"""Which replica of a shard leads: the decision, and the shards that follow it."""

import threading
from concurrent.futures import Future

import pytest

from gateway.shards import leaders
from gateway.shards.leaders import Leaders, RoleClients, choose
from gateway.shards.targets import ShardTargets, parse_shards
from services.replica_role import ReplicaRole
from store.errors import ServiceUnavailableError
from tests.support.waiting import WAIT_SECONDS_MAX

SHARDS = parse_shards(
    "".join(f"a@{name}=commitlog={name}:1,consumequeue={name}:2,index={name}:3;" for name in ("r1", "r2", "r3"))
)
FOLLOWS = ReplicaRole(leads=False)


def leads(epoch: int) -> ReplicaRole:
    return ReplicaRole(leads=True, epoch=epoch)


class AtOnce:
    """An executor that runs what it is given at once."""

    def submit(self, work, *arguments):
        done: Future[None] = Future()
        done.set_result(work(*arguments))
        return done

    def shutdown(self, **_options):
        pass


class Installation:
    """Replicas that say what they are told to say, and the shards that the gateway has."""

    def __init__(self, targets=SHARDS):
        self.roles: dict[str, ReplicaRole | None] = {}
        self.now: list[ShardTargets] = []
        self.asked: list[str] = []
        self.is_refused = False
        self.leaders = Leaders(self._keep, self._ask, executor=AtOnce())
        self.leaders.keep(targets)

    def _keep(self, targets):
        if self.is_refused:
            raise ServiceUnavailableError("no room")
        self.now = list(targets)

    def _ask(self, one):
        self.asked.append(one.replica)
        return self.roles.get(one.replica)

    def look(self, **roles):
        self.roles = roles
        self.leaders.look()
        return [one.replica for one in self.now]


@pytest.mark.parametrize(
    ("roles", "chosen", "epoch", "expected"),
    [
        ({}, "r1", 0, ("r1", 0)),
        ({"r1": None, "r2": FOLLOWS}, "r1", 3, ("r1", 3)),
        ({"r1": FOLLOWS, "r2": leads(1)}, "r1", 0, ("r2", 1)),
        ({"r1": leads(4), "r2": leads(5)}, "r1", 4, ("r2", 5)),
        ({"r1": leads(4), "r2": None}, "r2", 5, ("r2", 5)),
        ({"r1": leads(6), "r2": None}, "r2", 5, ("r1", 6)),
        ({"r1": leads(5), "r2": FOLLOWS}, "r1", 5, ("r1", 5)),
    ],
    ids=[
        "nothing known",
        "none leads",
        "the first leader",
        "two lead",
        "only a deposed one",
        "a later one",
        "as before",
    ],
)
def test_the_highest_epoch_that_was_ever_seen_decides(roles, chosen, epoch, expected) -> None:
    assert choose(roles, chosen, epoch) == expected


def test_the_shard_moves_to_each_new_leader_and_stays_while_there_is_none() -> None:
    gateway = Installation()

    assert [one.replica for one in gateway.now] == ["r1"], "the first one until something is known"
    assert gateway.look(r1=FOLLOWS, r2=leads(1), r3=FOLLOWS) == ["r2"]
    assert gateway.now[0].commitlog == "r2:1"
    assert gateway.look(r1=FOLLOWS, r3=FOLLOWS) == ["r2"]
    assert gateway.look(r1=FOLLOWS, r3=leads(2)) == ["r3"]
    assert gateway.look(r1=FOLLOWS, r2=leads(1)) == ["r3"], "a deposed leader is no leader"


def test_a_shard_is_led_again_only_when_its_leader_has_said_so_after_a_refusal() -> None:
    gateway = Installation()
    gateway.look(r1=leads(1))
    assert gateway.leaders.wait_until_led("a", 0)

    gateway.leaders.note_not_leading("a", "r1:1")

    assert not gateway.leaders.wait_until_led("a", 0)
    gateway.look(r1=FOLLOWS, r2=leads(2))
    assert gateway.leaders.wait_until_led("a", 0)


def test_a_refusal_of_the_leader_before_leaves_the_leader_known() -> None:
    gateway = Installation()
    gateway.look(r2=leads(1))

    gateway.leaders.note_not_leading("a", "r1:1")

    assert gateway.leaders.wait_until_led("a", 0)


def test_a_shard_that_could_not_be_opened_moves_with_the_next_answer() -> None:
    gateway = Installation()
    gateway.is_refused = True
    assert gateway.look(r2=leads(1)) == ["r1"]
    gateway.is_refused = False

    assert gateway.look(r2=leads(1)) == ["r2"]


def test_calls_to_the_leader_before_are_ended_soon_after_the_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that is stopped would keep them waiting; connections that are left otherwise have time."""
    monkeypatch.setattr(leaders, "LEFT_SECONDS", 0.01)
    given, ended, closed = [], [], threading.Event()

    def keep(_targets):
        watch.retire(lambda: (ended.append("now"), closed.set()))

    roles = {}
    watch = Leaders(keep, lambda one: roles.get(one.replica), given.append, AtOnce())
    watch.keep(SHARDS)
    assert (len(given), ended) == (1, [])

    roles["r2"] = leads(1)
    watch.look()

    assert closed.wait(WAIT_SECONDS_MAX)
    assert (len(given), ended) == (1, ["now"])


def test_shards_without_replicas_are_passed_on_and_never_asked() -> None:
    gateway = Installation(parse_shards("b=b:1,b:2,b:3") + SHARDS)

    assert gateway.look(r2=leads(1)) == ["", "r2"]
    assert set(gateway.asked) == {"r1", "r2", "r3"}
    assert not gateway.leaders.is_replicated("b")


def test_addresses_of_replicas_may_change_and_the_leader_stays_the_leader() -> None:
    gateway = Installation()
    gateway.look(r2=leads(1))

    gateway.leaders.keep(parse_shards("a@r1=x:1,x:2,x:3;a@r2=y:1,y:2,y:3"))

    assert [one.commitlog for one in gateway.now] == ["y:1"]


def test_a_shard_is_led_while_one_of_its_replicas_says_so_and_a_shard_with_one_copy_is_not_counted():
    installation = Installation((*SHARDS, *parse_shards("alone=log:1,queue:2,index:3")))
    assert installation.leaders.led() == {"a": False}
    installation.look(r1=leads(1), r2=FOLLOWS, r3=FOLLOWS)
    assert installation.leaders.led() == {"a": True}
    installation.look(r1=None, r2=FOLLOWS, r3=FOLLOWS)
    assert installation.leaders.led() == {"a": False}


def test_a_replica_that_was_asked_during_the_close_ended_the_gateway_with_an_error(monkeypatch) -> None:
    """A thread that asks is not awaited by the stop."""
    opened, closed = [], []

    class Client:
        def __init__(self, target, tls=None):
            opened.append(target)
            self.close = lambda: (closed.append(target), clients.ask(SHARDS[2]))

        def call(self, rpc, request, timeout_seconds):
            raise ServiceUnavailableError("away")

    monkeypatch.setattr(leaders, "CommitLogClient", Client)
    clients = RoleClients(None)
    for one in SHARDS[:2]:
        assert clients.ask(one) is None

    clients.close()

    assert clients.ask(SHARDS[2]) is None
    assert opened == closed == ["r1:1", "r2:1"]
