"""Programs with unmodified clients of RocketMQ over remoting: Java 4.9.8, 5.3.3 and 5.5.0, Go v2, and rocketmq-spring.

    PROGRAM NAMESERVER ...      prints a line for each case: CASE, its name, what its client saw, milliseconds; tab between them

`python -m tests.rocketmq.remoting_programs NAMESERVER BROKER` runs all of them against any broker and prints what they saw.
`EXPECTED` was taken from RocketMQ 5.5.0 in this way, with enablePropertyFilter=true.

Programs are built once and kept beside the official clients over gRPC (tests/clients/programs.py).
"""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping

from benchmarks.sides import remoting
from services.rocketmq.codes import RequestCode
from tests.clients.programs import HOME, build_once, home_of
from tests.rocketmq import real_broker
from tests.support.failures import watch_log
from tests.support.waiting import wait_until

HERE = pathlib.Path(__file__).parent / "remoting"
JAVA_VERSIONS = ("4.9.8", "5.3.3", "5.5.0")
PROGRAMS = (*(f"java-{version}" for version in JAVA_VERSIONS), "go", "spring")
# A small heap; a short life.
JAVA = ("java", "-Xmx256m", *real_broker.RealRocketMQ.short_life)
BUILD_SECONDS_MAX, RUN_SECONDS_MAX = 600, 600
QUEUE_COUNT = 4
# Names of cases in Java and Go, and of topics in Spring's program.
_CASE = re.compile(r'CASES\.put\("([^"]+)"|^\t"(\w+)": func|topic = "(\w+)"|"(SpringPull)"', re.MULTILINE)

JAVA_SEES: Mapping[str, str] = {
    "send": "SEND_OK 32 0 broker-a",
    "async": "SEND_OK",
    "oneway": "[m1]",
    "selector": "[0, 1, 0, 1]",
    "batch": "SEND_OK 2000 2000",
    "compressed": "true",
    "big": "true",
    "properties": "标签 键1 键2 7 红 😀 你好 😀 0",
    "delay": "[m1] true",
    "timer": "[m1] true",
    "transaction": "[COMMIT_MESSAGE, ROLLBACK_MESSAGE] [m0]",
    "members": "20",
    "orderly": "10 true 3",
    "broadcast": "8",
    "tags": "[m1, m3]",
    "sql": "[m4, m5]",
    "retry": "[true:m0:0, true:m0:1]",
    "dead letter": "true",
    "restart": "[[m0], [m1]]",
    "lite pull": "[m0, m2, m4]",
    "assign": "[m2, m3] 4 0",
    "pull": "[FOUND 4 4, FOUND 4 2, NO_MATCHED_MSG 4, NO_NEW_MSG 4, OFFSET_ILLEGAL 4]",
    "queries": "m1 m1",
    "namespace": "[m1] true",
    "trace": "true",
}
GO_SEES: Mapping[str, str] = {
    "send": "0 32 0",
    "async": "0",
    "oneway": "x",
    "batch": "0 b0,b1,b2,b3,b4",
    "compressed": "true",
    "push": "m0,m1,m2,m3,m4,m5,m6,m7",
    "tags": "m1,m3,m5",
    "sql": "m4,m5",
    "orderly": "m0,m1,m2,m3,m4,m5,m6,m7",
    "broadcast": "m0,m1,m2,m3",
    "delay": "x true",
    "transaction": "commit",
    "pull": "m0,m1,m2,m3",
    "admin": "3 true",
    "namespace": "m0,m1",
}
SPRING_SEES: Mapping[str, str] = {
    "send": "SEND_OK",
    "object": "[7book]",
    "batch": "SEND_OK",
    "delay": "SEND_OK true",
    "timer": "SEND_OK true",
    "transaction": "[COMMIT]",
    "plain": "true",
    "tags": "[t0, t2]",
    "sql": "[s2, s3]",
    "orderly": "[o0, o1, o2, o3]",
    "pull": "[l0, l1, l2, l3]",
}
EXPECTED: Mapping[str, Mapping[str, str]] = {
    **{f"java-{version}": JAVA_SEES for version in JAVA_VERSIONS},
    "go": GO_SEES,
    "spring": SPRING_SEES,
}


def why_unavailable() -> str | None:
    """The reason why the programs cannot be built here, or None when they can."""
    return real_broker.why_unavailable() or (None if shutil.which("go") else "needs go")


def built(program: str) -> list[str]:
    """The command of a program; it is built when its sources are new."""
    language, _, version = program.partition("-")
    sources = HERE / language
    content = b"".join(path.read_bytes() for path in sorted(sources.iterdir()))
    home = home_of(HOME / f"remoting-{program}", content)
    if language == "go":
        client = home / "client"
        build_once(home, lambda: _run(["go", "build", "-mod=readonly", "-o", str(client), "."], sources))
        return [str(client)]
    build_once(home, lambda: None)
    classpath = real_broker.build_classpath(sources, home, version)  # it looks itself whether it is built
    return [*JAVA, "-cp", classpath, "SpringProgram" if language == "spring" else "RemotingClient"]


def _run(command: list[str], cwd: pathlib.Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX)
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-3000:]}"


def topics_of(program: str) -> list[str]:
    """The topics that it needs."""
    language = program.partition("-")[0]
    source = (
        HERE / language / {"java": "RemotingClient.java", "go": "main.go", "spring": "SpringProgram.java"}[language]
    )
    names = sorted({next(filter(None, groups)) for groups in _CASE.findall(source.read_text())})
    if language == "spring":
        return names
    prefix = "Go" if language == "go" else prefix_of(program)
    return [f"{prefix}-{name.replace(' ', '-')}" for name in names] + [f"space%{prefix}-namespace"]


def prefix_of(program: str) -> str:
    """Of the names that a program uses."""
    return "J" + program.partition("-")[2].replace(".", "")


def _is_routed(nameserver_port: int, topic: str) -> bool:
    try:
        remoting.call(nameserver_port, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    except remoting.RefusedError:
        return False
    return True


def run(
    program: str, nameserver: str, broker: str, work: pathlib.Path, make_topic: Callable[[str], object]
) -> dict[str, str]:
    """What the client of a program saw, by case.

    Args:
        program: one of PROGRAMS.
        nameserver: HOST:PORT of it.
        broker: HOST:PORT of the broker.
        work: a directory for what the client writes.
        make_topic: makes a topic with QUEUE_COUNT queues.
    """
    home = work / program
    home.mkdir(parents=True)
    command = built(program)
    topics = topics_of(program)
    for topic in topics:
        make_topic(topic)
    for topic in topics:
        wait_until(functools.partial(_is_routed, int(nameserver.rpartition(":")[2]), topic), f"{topic} is routed")
    if command[0] == "java":
        command = [command[0], f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}", *command[1:]]
    arguments = [nameserver, broker if program == "go" else prefix_of(program)]
    watch_log(home)
    with open(home / "stderr.log", "wb") as log:
        done = subprocess.run(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=home,
            timeout=RUN_SECONDS_MAX,
            env={**os.environ, "HOME": str(home)},
        )
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("CASE\t")]
    if not lines:
        return {f"it ended with {done.returncode}": done.stdout[-2000:] + (home / "stderr.log").read_text()[-2000:]}
    for _, name, said, *millis in lines:
        print(program, name, said, *millis, sep="\t")  # a failure shows them
    return {name: said for _, name, said, *_ in lines}


if __name__ == "__main__":
    port = int(sys.argv[2].rpartition(":")[2])
    with tempfile.TemporaryDirectory() as scratch:
        work, make = pathlib.Path(scratch), functools.partial(remoting.create_topic, port, queue_count=QUEUE_COUNT)
        seen = {program: run(program, *sys.argv[1:3], work, make) for program in PROGRAMS}
    print(json.dumps(seen, indent=1, ensure_ascii=False))
