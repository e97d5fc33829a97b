"""docs/profiles/README.md, made only from the graphs beside it."""

import pathlib

from benchmarks.profile.flame_graph import RATE, costs, frames
from benchmarks.profile.hot_paths import HOT_PATHS

SERVICES = (
    "gateway", "commitlog_svc", "followers", "consumequeue_svc", "index_svc", "consumer_svc", "schedule_svc", "console",
    "cli.main",
)  # fmt: skip
COST_COUNT = 3
# Where a thread waits for work, a lock or bytes: py-spy counts many of these samples as work. They are in the graphs and not
# among the costs. Sources: threading, concurrent.futures, gRPC's completion queues, receives and selectors of the local socket.
WAITS = frozenset(
    (
        "Condition.wait", "Event.wait", "StopSignal.wait", "_wait_for_tstate_lock", "_worker", "_serve", "socket.accept",
        "_run_channel_spin_thread.<locals>.channel_spin", "_Incoming.receive", "Connection._receive", "LocalStream._receive",
        "AppendStream._receive",  # as the kept graphs name it
        "LocalCalls._run", "CallsUnderWay._run", "_watch", "_MultiThreadedRendezvous._next", "Taking.__iter__",
        "_UnaryUnaryMultiCallable._blocking", "RemotingServer._run",
    )
)  # fmt: skip
HEAD = f"""# Profiles

Flame graphs of the hot paths. `make profile` makes them anew, `make profile PATHS=pop,ack` some of them.

**How they are made.** `reput serve` with the settings that a user has runs under the load of each section. After a warm-up,
py-spy samples the supervisor and all services {RATE} times a second. It sees Python threads only: threads of gRPC's C core are
not in a graph, and what C code does (a write to the log, compiled kernels, protobuf) counts for the Python function that called
it. It leaves out threads that it takes for idle, but not all that wait. The rates are in
[RESULTS.md](../../benchmarks/RESULTS.md); a run that is sampled is slower, and shares change with what else the machine does.

**How to read them.** Open an SVG itself in a browser: click a frame to enlarge it, search with Ctrl-F. Each frame is a
function; what it calls lies below it; its width is its part of all samples. The frames below `all` are the processes. Order
from left to right means nothing. Look for wide frames where a stack ends: that is time spent in the function itself.

**The costs.** A function's own samples, over all its stacks, as part of the samples of all services that are no waits. These
functions are taken for waits, although a receive also copies bytes: {", ".join(f"`{name}`" for name in sorted(WAITS))}.
"""


def page(directory: pathlib.Path) -> str:
    """The page over the graphs of a directory."""
    parts = [HEAD]
    for path in HOT_PATHS.values():
        file = directory / f"{path.name}.svg"
        if not file.exists():
            continue
        spent = costs(frames(file.read_text(encoding="utf-8")), SERVICES)
        worked = [cost for cost in spent if cost.function.split(" ")[0] not in WAITS]
        total = sum(cost.part for cost in worked)
        first = worked[:COST_COUNT]
        lines = [
            f"| {place} | {cost.service} | `{cost.function}` | {cost.part / total:.1%} |"
            for place, cost in enumerate(first, 1)
        ]
        parts.append(
            f"## {path.title}\n\nLoad: {path.load}.\n\n[![{path.title}]({file.name})]({file.name})\n\n"
            "| | service | function | of the work |\n| --- | --- | --- | --- |\n" + "\n".join(lines) + "\n"
        )
    return "\n".join(parts)
