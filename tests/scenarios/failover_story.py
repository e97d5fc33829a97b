"""The commands of transcripts about who leads a shard: replicas r1, r2, r3 that die, stand still or are cut off.

A story runs on the rules of leadership in the simulated shard (tests/commitlog_svc/replication/leadership_world.py). It
checks at each event that no two replicas may acknowledge and that a new leader has everything that was acknowledged. Its
clock is simulated, and the same story takes the same course each time. Each answer says who leads then, in which epoch, and
which set.

    pass seconds=
    until-led [besides=]        passes until one may acknowledge; says for how long none did
    kill replica= [away=]       the process ends; another one starts after so many seconds
    stop replica= seconds=      the process stands still
    cut from= to=               in both directions; `coordinator` and `all` are names, too
    mend                        no link is cut, the coordinator is there
    coordinator-down            nobody reaches the coordinator
    hand-over from= to=         the operator moves the lead
    force replica=              the operator makes one replica lead, whatever it has
"""

from tests.commitlog_svc.replication.leadership_world import Replica, World
from tests.scenarios.transcript import Command

SEED = 1
LEAD_SECONDS_MAX = 60.0
COORDINATOR = "coordinator"


class FailoverStory:
    """One simulated shard."""

    def __init__(self) -> None:
        self._world = World(SEED)
        self._world.lag_seconds_max = 5.0  # the setting's default

    def close(self) -> None:
        """Nothing is open."""

    def answer(self, command: Command) -> str:
        """Run one command, then say who leads."""
        said = getattr(self, "_" + command.words[0].replace("-", "_"))(*command.words[1:], **command.values)
        return "\n".join([*([said] if said else []), self._state()])

    def _state(self) -> str:
        world = self._world
        record = world.record
        leaders = [one.name for one in world.leaders()]
        in_sync = ", ".join(sorted(record.in_sync)) if record is not None else "nobody"
        epoch = record.epoch if record is not None else 0
        return f"{leaders[0] if leaders else 'nobody'} may acknowledge, epoch {epoch}, in sync: {in_sync}"

    def _replica(self, name: str) -> Replica:
        return next(one for one in self._world.replicas if one.name == name)

    def _pass(self, seconds: str) -> None:
        self._world.run(self._world.time + float(seconds))

    def _until_led(self, besides: str = "") -> str:
        began = self._world.time
        is_led = self._world.run(
            began + LEAD_SECONDS_MAX, reached=lambda: any(one.name != besides for one in self._world.leaders())
        )
        return f"after {self._world.time - began:.1f} s" if is_led else f"not within {LEAD_SECONDS_MAX:.0f} s"

    def _kill(self, replica: str, away: str = "1") -> None:
        self._world.end_life(self._replica(replica), "killed", float(away))

    def _stop(self, replica: str, seconds: str) -> None:
        self._replica(replica).stopped_until = self._world.time + float(seconds)

    def _cut(self, **ends: str) -> None:
        one = ends["from"]
        others = [ends["to"]] if ends["to"] != "all" else [COORDINATOR, "r1", "r2", "r3"]
        self._world.cut |= {way for other in others if other != one for way in ((one, other), (other, one))}

    def _mend(self) -> None:
        self._world.heal()

    def _coordinator_down(self) -> None:
        self._world.coordinator_up = False

    def _hand_over(self, **ends: str) -> None:
        self._world.hand_over(self._replica(ends["from"]), self._replica(ends["to"]))

    def _force(self, replica: str) -> None:
        self._world.force(self._replica(replica))
