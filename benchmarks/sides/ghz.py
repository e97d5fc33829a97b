"""ghz, the gRPC load generator, with the same flags for all sides."""

import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import processes

MODULE = "github.com/bojand/ghz/cmd/ghz@v0.120.0"
ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = ROOT / ".tools" / "bin"
RUN_SECONDS_EXTRA = 60.0
# A race of ghz 0.120: where its time is over before all workers have begun, one may panic. It is asked again so often.
RACE = "panic: send on closed channel"
RACE_COUNT_MAX = 3


@dataclass(frozen=True)
class Outcome:
    """The result of a run: calls a second that were answered OK, and the p99 of all calls."""

    rate: float
    p99_millis: float
    ok_count: int


def find() -> tuple[str, str]:
    """The path of ghz, and the reason when there is none; built with Go once, into `.tools/bin`."""
    found = shutil.which("ghz", path=os.pathsep.join((str(BINARIES), os.environ.get("PATH", ""))))
    if found:
        return found, ""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if not go:
        return "", "needs ghz, or Go to make it"
    made = subprocess.run(
        [go, "install", MODULE], env={**os.environ, "GOBIN": str(BINARIES)}, capture_output=True, text=True, check=False
    )
    return ("", f"ghz could not be made: {made.stderr[-300:]}") if made.returncode else (str(BINARIES / "ghz"), "")


def run(
    ghz: str,
    address: str,
    call: str,
    data: Mapping[str, Any],
    *,
    proto: pathlib.Path | None = None,
    metadata: Mapping[str, str] | None = None,
    callers: int,
    warm_seconds: float,
    seconds: float,
) -> Outcome:
    """Calls as fast as `callers` can; with the descriptors of our protos unless `proto` is given.

    Raises:
        RuntimeError: calls failed.
    """
    described = ["--proto", str(proto)] if proto else ["--protoset", str(ROOT / "protos/reput/descriptors.binpb")]
    command = [
        *(ghz, "--insecure", *described, "--call", call, "--concurrency", str(callers), "--format", "json"),
        *("--disable-template-functions", "--disable-template-data", "--data", json.dumps(data)),
        *("--duration-stop", "wait"),  # waits for calls under way at the end
        *(("--metadata", json.dumps(metadata)) if metadata else ()),
    ]
    _once(command, address, warm_seconds)
    return _once(command, address, seconds)


def _once(command: list[str], address: str, seconds: float) -> Outcome:
    timed = [*command, "--duration", f"{int(seconds * 1000)}ms", address]
    report = json.loads(_output(timed, seconds + RUN_SECONDS_EXTRA))
    codes = report["statusCodeDistribution"]
    if set(codes) != {"OK"}:
        raise RuntimeError(f"calls failed: {codes} {report.get('errorDistribution')}")
    latencies = {row["percentage"]: row["latency"] / 1e6 for row in report["latencyDistribution"]}
    return Outcome(codes["OK"] / (report["total"] / 1e9), latencies[99], codes["OK"])


def _output(command: list[str], seconds_max: float) -> bytes:
    for _ in range(RACE_COUNT_MAX):
        try:
            return processes.run(command, seconds_max)
        except RuntimeError as error:
            if RACE not in str(error):
                raise
    return processes.run(command, seconds_max)
