"""Fuzzing by coverage: `python -m tests.torture.fuzz [TARGET ...] [--seconds 60] [--jobs 1] [--corpus DIR] [--finds DIR]`.

Each target (`targets.py`; all of them without a name) runs in a process of its own, forked when everything is imported. Its
line says how many inputs ran and how many places of the code they reached. An input that gives neither an answer nor a refusal
is kept in `--finds` and ends its target; the exit code is 1 then. `--corpus` keeps what reached new code for the next run.
`--run FILE` runs one input again, without a fuzzer.
"""

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import atheris

# What the targets are about: to instrument all that these import takes 15 s.
INSTRUMENTED = [
    "store.format",
    "store.readers",
    "store.walk",
    "store.derive",
    "store.files.json_state",
    "store.files.config_file",
    "store.archive.manifest",
    "store.cold.manifest",
    "services.rocketmq",
    "services.local.wire",
    "services.local.messages_kernel",
    "services.reput_columns",
    "services.settings.broker_conf",
    "services.status",
    "consumer_svc.filters",
    "consumer_svc.delivering.receipt_handle",
    "schedule_svc.listing",
    "nameserver_svc.kv_config",
    "gateway.auth",
    "gateway.tenants.tenants_file",
    "gateway.search.cel_program",
    "gateway.queries.page",
    "gateway.reput.running_info",
    "gateway.remoting.members",
    "gateway.remoting.groups",
    "gateway.remoting.pops",
    "gateway.remoting.users",
    "gateway.remoting.assignments",
    "gateway.remoting.topics",
    "gateway.remoting.repeated_headers",
    "gateway.appends.coalescer",
    "gateway.rocketmq.message_rules",
    "gateway.rocketmq.messages",
    "gateway.rocketmq.sending",
    "schedule_svc.due_record",
    "schedule_svc.timers.timer_record",
    "schedule_svc.transactions.half_messages",
    "services.convert",
    "console.bodies",
    "console.question",
    "console.web.posted",
    "cli.transfer.message_lines",
    "commitlog_svc.append",
    "commitlog_svc.recovery.safe_point",
    "commitlog_svc.replication.leading.record",
]


def _others() -> list[str]:
    """The modules of the same packages that are not instrumented: `include` takes whole packages only."""
    root = Path(__file__).resolve().parents[3]
    packages = {name.partition(".")[0] for name in INSTRUMENTED}
    files = [path.relative_to(root) for package in packages for path in (root / package).rglob("*.py")]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    return [name for name in names if not any(f"{name}.".startswith(f"{wanted}.") for wanted in INSTRUMENTED)]


with (
    contextlib.redirect_stderr(io.StringIO()),
    atheris.instrument_imports(include=INSTRUMENTED, exclude=_others()),
):  # it names each module
    from tests.torture.fuzz.targets import SELF_TEST, TARGETS

ALL = TARGETS | SELF_TEST
_EXECUTED = re.compile(r"number_of_executed_units:\s*(\d+)")
_COVERED = re.compile(r"cov: (\d+) ft: (\d+)")
# One input that has no end: `Target.run` only sees what took too long. Of the clock, on a machine that may be busy.
HANG_SECONDS = 120
MEMORY_MIB_MAX = 2048


def _fuzz(name: str, arguments: argparse.Namespace, directory: Path) -> int:
    """Starts the process of one target; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        _run(name, arguments, directory)
    except Exception:
        traceback.print_exc()
    sys.exit(1)  # as atheris ends with a find: at the end of Python libFuzzer writes the input


def _run(name: str, arguments: argparse.Namespace, directory: Path) -> None:
    log = os.open(directory / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    tempfile.tempdir = str(directory)  # libFuzzer ends the process at once, and what it made stays
    target = ALL[name]
    seeds = directory / "seeds"
    seeds.mkdir()
    for number, seed in enumerate(target.corpus(name)):
        (seeds / f"{number:04d}").write_bytes(seed)
    words = directory / "words"
    words.write_text(
        "".join(f'"{"".join(f"{chr(92)}x{byte:02x}" for byte in token[:64])}"\n' for token in target.tokens)
    )
    corpora = [str(seeds)]
    if arguments.corpus is not None:
        kept = arguments.corpus / name
        kept.mkdir(parents=True, exist_ok=True)
        corpora.insert(0, str(kept))
    options: dict[str, object] = {
        "max_total_time": arguments.seconds,
        "max_len": target.input_bytes_max,
        "seed": arguments.seed,
        "timeout": HANG_SECONDS,
        "rss_limit_mb": MEMORY_MIB_MAX,
        "print_final_stats": 1,
        "artifact_prefix": f"{arguments.finds}/{name}-",
    }
    if target.tokens:  # an empty file is refused
        options["dict"] = words
    atheris.Setup([sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), *corpora], target.run)
    atheris.Fuzz()


def _line(name: str, status: int, directory: Path, seconds: float) -> str:
    text = (directory / "log").read_text(errors="replace")
    executed, covered = _EXECUTED.findall(text), _COVERED.findall(text)
    reached = f"{covered[-1][0]} places" if covered else "no coverage"
    line = f"{name}: {executed[-1] if executed else '?'} runs, {reached}, {seconds:.0f} s"
    return line if not status else f"{line}: FOUND\n{text[-6000:]}"


def main() -> int:
    """Runs the targets; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.fuzz", description=__doc__.split("\n", 1)[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all when none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--jobs", type=int, default=1, help="targets that run at the same time")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big") + 1)
    parser.add_argument(
        "--corpus", type=Path, help="keeps inputs that reached new code, in a directory for each target"
    )
    parser.add_argument("--finds", type=Path, default=Path(".fuzz/finds"), help="gets the inputs that found something")
    parser.add_argument("--run", type=Path, help="runs this input with the one target named, without a fuzzer")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.targets if name not in ALL]
    if unknown:
        parser.error(f"{', '.join(unknown)}: no such target; there are {', '.join(TARGETS)}")
    names = arguments.targets or list(TARGETS)
    if arguments.run is not None:
        ALL[names[0]].run(arguments.run.read_bytes())
        return 0
    arguments.finds.mkdir(parents=True, exist_ok=True)
    print(f"{len(names)} targets, {arguments.seconds} s each, seed {arguments.seed}", flush=True)
    running: dict[int, tuple[str, Path, float]] = {}
    found = 0
    scratch, parent = tempfile.mkdtemp(prefix="reput-fuzz-"), os.getpid()
    try:
        waiting = list(names)
        while waiting or running:
            while waiting and len(running) < arguments.jobs:
                name = waiting.pop(0)
                directory = Path(scratch, name)
                directory.mkdir()
                running[_fuzz(name, arguments, directory)] = name, directory, time.monotonic()
            pid, status = os.wait()
            name, directory, began = running.pop(pid)
            found += status != 0
            print(_line(name, status, directory, time.monotonic() - began), flush=True)
            shutil.rmtree(directory)
    finally:
        if os.getpid() == parent:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"{found} of {len(names)} targets found something" + (f": see {arguments.finds}" if found else ""))
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
