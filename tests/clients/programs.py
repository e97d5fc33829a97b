"""One program for each official client, all with one line protocol, so that pytest is the judge of each.

    PROGRAM ORDER       ORDER is JSON: {role, endpoint, topic, ...}; a client with credentials has access_key and secret, too

stdin and stdout have one JSON object a line; what a program says has an `event`. It ends cleanly when stdin ends.

    role      order                             reads                                     says
    send      checker                           {body, tag, keys, properties,             started, sent {message_id,
                                                message_group, priority, lite_topic,      recall_handle},
                                                deliver_at_seconds,
                                                transaction}                              checked {message}
                                                {do: recall, recall_handle}               recalled {message_id}
    push      group, tag | sql, hold            nothing                                   started, received {message}
    lite      group, hold                       {do: subscribe, lite_topic,               started, received {message}
                                                from, number}                             subscribed {lite_topics}
                                                {do: unsubscribe, lite_topic}             likewise
                                                {do: tell}                                likewise, Java's and Node's
    simple    group, tag | sql, await_seconds   {do: receive, batch, invisible_seconds}   started, batch {messages}
                                                {do: ack, message_id}                     acked
                                                {do: change, message_id,                  changed
                                                invisible_seconds}

`checker` makes a producer of transactions that gives this verdict when it is asked: COMMIT, ROLLBACK or UNKNOWN. `transaction`
is commit, rollback or hang (no verdict of its own); deliver_at_seconds counts from 1970. At the end a program says `stopped`; a
simple or lite consumer and a producer that recalls say `failed {error}` instead of their answer. A message is {message_id,
topic, body, tag, keys, properties, message_group, priority, lite_topic, attempt}. A push consumer fails the first calls for a
message whose property `fails` has their number; `hold` makes its listener never return. `from` is min, max, last, offset, tail
or time, the last three with a number, for Java's and Node's clients. Python's simple consumer with `is_lite` takes the lines of
a lite one, too.

Programs are built once and kept in `.tools/official-clients` of the project, which `.ci/run` shares between the clones of a
machine; libraries come from Maven Central, the Go module proxy, npm and crates.io, pinned by the files beside the sources.
"""

import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.rocketmq import real_broker
from tests.support.waiting import WAIT_SECONDS_MAX, one_at_a_time, wait_until

SOURCES = pathlib.Path(__file__).parent
HOME = real_broker.TOOLS.with_name("official-clients")
TOOLS = {
    "java": ("java", "javac", "mvn"),
    "go": ("go",),
    "python": (),
    "node": ("node", "npm"),
    "rust": ("cargo",),
}
# Rust's client has no push consumer.
PUSH_LANGUAGES = ("java", "go", "python", "node")
LANGUAGES = (*PUSH_LANGUAGES, "rust")
BUILD_SECONDS_MAX = 900
# As much as a person reads of what failed.
SAID_SHOWN = 12
# Builds of one program from other sources that are kept: clones of one machine may share them.
BUILDS_KEPT_MAX = 4

Said = dict[str, Any]


def why_unavailable() -> str | None:
    """The reason why the programs cannot be built here, or None when they can."""
    missing = [tool for tools in TOOLS.values() for tool in tools if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)}" if missing else None


class Program:
    """A client program that runs.

    Args:
        language: one of LANGUAGES.
        order: what it is to do.
        work: its home directory, for the log files of the client.
    """

    def __init__(self, language: str, order: Said, work: pathlib.Path) -> None:
        self.name = f"{language} {order['role']}"
        work.mkdir(parents=True)
        self._log_path = work / "stderr"
        command, environ = built(language)
        if language == "java":
            command = [*command[:1], f"-Duser.home={work}", *command[1:]]
        with open(self._log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*command, json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=work,
                env={**os.environ, **environ, "HOME": str(work)},
            )
        self.said: list[Said] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"{"):
                self.said.append(json.loads(line))

    def log(self) -> str:
        """What it printed for people."""
        return self._log_path.read_text(errors="replace")[-3000:]

    def events(self, event: str) -> list[Said]:
        """What it has said so far, of one kind."""
        return [said for said in self.said if said["event"] == event]

    @property
    def received(self) -> list[Said]:
        """The messages that a push consumer has got."""
        return self.events("received")

    def wait(self, is_so: Callable[[], object], what: object) -> None:
        """Return once something holds; AssertionError when it does not in time, or the program has ended before.

        Args:
            is_so: asked again and again.
            what: said when it does not hold.
        """

        def holds() -> bool:
            ended = self.process.poll()
            if is_so():
                return True
            assert ended is None, f"{self.name} ended with {ended}: {self.log()}"
            return False

        def missing() -> str:
            return f"{self.name}: {what() if callable(what) else what}; it said {self.said[-SAID_SHOWN:]}"

        wait_until(holds, missing)

    def wait_until_started(self) -> "Program":
        """Return it once its client runs."""
        self.wait(lambda: self.events("started"), "it starts")
        return self

    def tell(self, **line: object) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, **line: object) -> Said:
        """What it answers to a line that says what to do."""
        before = len(self.said)
        self.tell(**line)
        self.wait(lambda: len(self.said) > before, f"it answers {line}")
        return self.said[before]

    def stop(self) -> None:
        """End it cleanly; its client says goodbye to the server."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        # A push consumer waits for its open poll: 20 s, and 3 s for the answer.
        assert self.process.wait(WAIT_SECONDS_MAX) == 0, f"{self.name}: {self.log()}"
        self._reader.join()
        assert self.events("stopped")

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.process.kill()
        self.process.wait()
        self._reader.join()


@functools.cache
def built(language: str) -> tuple[list[str], dict[str, str]]:
    """The command of a program, and the environment that it needs; it is built when its sources are new."""
    sources = SOURCES / language
    files = sorted(path for path in sources.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    home = home_of(HOME / language, b"".join(path.read_bytes() for path in files))
    command, environ, build = RECIPES[language](sources, home)
    if build:
        build_once(home, build)
    return command, environ


def home_of(parent: pathlib.Path, content: bytes) -> pathlib.Path:
    """Where something is built; what is built of another content has another place.

    Args:
        parent: of all builds of one program.
        content: what the build depends on.
    """
    return parent / hashlib.sha256(content).hexdigest()[:16]


def build_once(home: pathlib.Path, build: Callable[[], object]) -> None:
    """Build in a directory of `home_of`, unless it was built there; tests that run side by side build in turn.

    Args:
        home: where `build` works; it is made. Of its neighbours the newest are kept.
        build: raises when it fails.
    """
    home.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(home / "building"):
        done = home / "built"
        if not done.exists():
            build()
            done.touch()
        os.utime(home)
    for old in sorted(home.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-BUILDS_KEPT_MAX]:
        shutil.rmtree(old, ignore_errors=True)


def _run(command: list[str], cwd: pathlib.Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX)
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-3000:]}"


Recipe = tuple[list[str], dict[str, str], Callable[[], object] | None]


def _java(sources: pathlib.Path, home: pathlib.Path) -> Recipe:
    classpath = real_broker.build_classpath(sources, home)  # looks itself whether it is built
    place = home.resolve()  # the same for all clones of this machine: the archive is for these paths only
    jar, archive = place / "client.jar", place / "client.jsa"
    classes, _, libraries = classpath.partition(":")
    # A short life: a small heap, no time for the second compiler, and the classes as an earlier run has loaded them, which is
    # half of a start. Java takes them for jars only.
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    client = ["-cp", f"{jar}:{libraries}", "Client"]

    def build() -> None:
        _run(["jar", "--create", "--file", str(jar), "-C", classes, "."], place)
        refused = json.dumps({"role": "send", "endpoint": "127.0.0.1:1", "topic": "None"})
        command = [*java, f"-Duser.home={place}", f"-XX:ArchiveClassesAtExit={archive}", *client, refused]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=BUILD_SECONDS_MAX, check=False)

    return [*java, f"-XX:SharedArchiveFile={archive}", *client], {}, build


def _go(sources: pathlib.Path, home: pathlib.Path) -> Recipe:
    program = str(home / "client")
    return [program], {}, lambda: _run(["go", "build", "-mod=readonly", "-o", program, "."], sources)


def _python(sources: pathlib.Path, home: pathlib.Path) -> Recipe:
    return [sys.executable, str(sources / "client.py")], {}, None


def _node(sources: pathlib.Path, home: pathlib.Path) -> Recipe:
    def build() -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(sources / name, home)
        _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], home)

    return ["node", str(sources / "client.js")], {"NODE_PATH": str(home / "node_modules")}, build


def _rust(sources: pathlib.Path, home: pathlib.Path) -> Recipe:
    program = home / "client"

    def build() -> None:
        target = home / "target"
        _run(["cargo", "build", "--quiet", "--locked", "--target-dir", str(target)], sources)
        shutil.copy(target / "debug" / "official-client", program)
        shutil.rmtree(target)  # half a gigabyte

    return [str(program)], {}, build


RECIPES: dict[str, Callable[[pathlib.Path, pathlib.Path], Recipe]] = {
    "java": _java,
    "go": _go,
    "python": _python,
    "node": _node,
    "rust": _rust,
}
