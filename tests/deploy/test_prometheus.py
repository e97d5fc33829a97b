"""Dashboards and alerts before a real Prometheus that scrapes real services.

Every dashboard expression has data while messages and queries come; no alert fires then; and nearly every alert fires once its
cause is there. The rules are the shipped ones, only with windows of seconds for those of minutes. (`ReputPageIncomplete` needs
a bug; promtool's tests have it, and those of messages that wait, of audits and of name servers.)
"""

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.format import paths
from tests.support.halting import halt
from tests.support.ports import free_port
from tests.support.prometheus import PROMETHEUS, PROMTOOL, Prometheus
from tests.support.service import Service
from tests.support.stack import new_message
from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "alerts" / "reput.rules.yaml"
DASHBOARDS = sorted((ROOT / "deploy" / "dashboards").glob("*.json"))
DASHBOARD_OF_REPLICAS = "replicas"  # it shows nothing on a shard with one copy
RULE_TESTS = pathlib.Path(__file__).with_name("reput.rules.test.yaml")
STRACE = shutil.which("strace")

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(
        PROMETHEUS is None or PROMTOOL is None, reason="needs prometheus and promtool (Debian's package)"
    ),
    pytest.mark.skipif(STRACE is None, reason="needs strace, which makes a disk slow"),
]

SMALL = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "65536",
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "20000",
}
HUGE_BYTES = str(1 << 60)  # more than any disk has free: then the ratio alone decides
FULL = {"REPUT_COMMITLOG_DISK_FULL_RATIO_PERCENT": "1", "REPUT_COMMITLOG_DISK_FULL_FREE_BYTES": HUGE_BYTES}
FILLING = {
    "REPUT_COMMITLOG_DISK_CLEAN_FORCIBLY_RATIO_PERCENT": "1",
    "REPUT_COMMITLOG_DISK_CLEAN_FORCIBLY_FREE_BYTES": HUGE_BYTES,
    "REPUT_COMMITLOG_DISK_FULL_RATIO_PERCENT": "100",
}


def delayed(calls: str, delay: str, *options: str) -> tuple[str, ...]:
    """What runs a command with some system calls delayed."""
    return (
        str(STRACE),
        "-f",
        "-qq",
        *options,
        "-e",
        f"trace={calls}",
        "-e",
        f"inject={calls}:{delay}",
        "-o",
        "/dev/null",
    )


SLOW_DISK = delayed("fdatasync", "delay_exit=900000")
LARGE_REQUEST = commitlog_pb.AppendMessagesRequest(
    messages=[new_message("Orders", b"x" * 3_000) for _ in range(15)], flush=message_pb2.FLUSH_MODE_SYNC
)
# Those of replicas need a shard with replicas: tests/e2e/test_cluster.py has one, and promtool's tests have the rules.
OF_REPLICAS = {
    "ReputShardHasNoLeader",
    "ReputReplicasTooFew",
    "ReputReplicaLags",
    "ReputLeaderChanges",
    "ReputLogPutAside",
}
UNPROVOKED = OF_REPLICAS | {
    "ReputShardNotRegistered",
    "ReputPageIncomplete",
    "ReputMessagesOverdue",
    "ReputMessagesSkipped",
    "ReputTransactionsHang",
    "ReputMirrorStands",
    "ReputAuditFound",
    "ReputAuditStands",
    "ReputConfigDamaged",
    "ReputLogAheadOfClock",
    "ReputStoreMovedAside",
}
NAMES = ("commitlog", "consumequeue", "index", "consumer", "schedule", "gateway")  # each after those that it calls


def quick(rules: str) -> str:
    """The rules with seconds for minutes; what they compare is the same."""
    rules = re.sub(r"\bfor: \w+", "for: 0s", rules)
    rules = rules.replace("reput_builder_lag_seconds > 60", "reput_builder_lag_seconds > 2")
    rules = rules.replace("[15m]", "[60s]").replace("[1d]", "[60s]")
    rules = rules.replace("offset 10m", "offset 4s")
    return re.sub(r"\[\d+m\]", "[4s]", rules)


def alert_names() -> set[str]:
    return set(re.findall(r"- alert: (\w+)", RULES.read_text()))


def expressions() -> list[tuple[str, str]]:
    rows = []
    for path in DASHBOARDS:
        if path.stem == DASHBOARD_OF_REPLICAS:
            continue
        for panel in json.loads(path.read_text())["panels"]:
            rows += [(f"{path.stem}: {panel['title']}", target["expr"]) for target in panel["targets"]]
    return rows


class Shard:
    """A shard with its gateway, each with a page at a port that it keeps over restarts, and somebody who uses it."""

    def __init__(self, store: pathlib.Path, stack: contextlib.ExitStack) -> None:
        self.store = store
        self._stack = stack
        self.pages = {name: f"127.0.0.1:{free_port()}" for name in NAMES}
        self.settings = dict(SMALL)
        self.processes: dict[str, Service] = {}
        for name in NAMES:
            self.start(name)
        self.append(topic="Few")
        self._stopping = threading.Event()
        self._user = threading.Thread(target=self._use, daemon=True)
        self._user.start()
        stack.callback(self._end)

    def start(self, name: str, wait: str = "serving", **settings: str) -> Service:
        own = {f"REPUT_{name.upper()}_METRICS_ADDRESS": self.pages[name], "REPUT_WORKER_COUNT": "4", **settings}
        service = Service(name, self.store, {**self.settings, **own}, wait=wait)
        self.processes[name] = self._stack.enter_context(service)
        # Whoever called it finds it again, and it finds those whom it calls.
        self.settings[f"REPUT_{name.upper()}_ADDRESS"] = service.address
        if name != "gateway":
            self.settings[f"REPUT_{name.upper()}_TARGET"] = service.address
        return service

    def append(self, body: bytes = b"x" * 300, topic: str = "Orders") -> message_pb2.AppendResult:
        request = pb.AppendMessagesRequest(messages=[new_message(topic, body, keys=["k"], queue_id=0)], flush=2)
        return self.processes["gateway"].stub.AppendMessages(request, timeout=5).results[0]

    def use_once(self) -> None:
        gateway = self.processes["gateway"].stub
        with contextlib.suppress(grpc.RpcError, ValueError):  # or its channel was closed
            result = self.append()
            gateway.QueryMessageById(pb.QueryMessageByIdRequest(offset_msg_id=result.offset_msg_id), timeout=3)
        with contextlib.suppress(grpc.RpcError, ValueError):  # or its channel was closed
            gateway.QueryMessageByKey(pb.QueryMessageByKeyRequest(topic="Orders", key="k", page_size=2), timeout=3)
        with contextlib.suppress(grpc.RpcError, ValueError):  # or its channel was closed
            gateway.GetStatus(pb.GetStatusRequest(), timeout=3)  # it calls each service
        with contextlib.suppress(grpc.RpcError, ValueError):  # or its channel was closed
            request = pb.QueryMessageByOffsetRequest(topic="Few", queue_id=0, queue_offset=0, max_messages=2)
            gateway.QueryMessageByOffset(request, timeout=3)

    def _use(self) -> None:
        while not self._stopping.wait(0.05):
            self.use_once()

    def _end(self) -> None:
        self._stopping.set()
        self._user.join(20)


@pytest.fixture(scope="module")
def processes() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory, processes: contextlib.ExitStack) -> Shard:
    return Shard(tmp_path_factory.mktemp("watched") / "store", processes)


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory, processes: contextlib.ExitStack) -> dict[str, tuple[Service, str]]:
    """Commitlogs with a full, a filling and a slow disk, and their pages."""
    found = {}
    for name, settings, prefix in (("full", FULL, ()), ("filling", FILLING, ()), ("slow", {}, SLOW_DISK)):
        page = f"127.0.0.1:{free_port()}"
        own = {**SMALL, **settings, "REPUT_COMMITLOG_METRICS_ADDRESS": page}
        root = tmp_path_factory.mktemp(name) / "store"
        if name == "full":  # it has something to lose
            with Service("commitlog", root, SMALL) as before:
                for _ in range(4):
                    before.stub.AppendMessages(LARGE_REQUEST, timeout=20)
                assert before.stop() == 0
        found[name] = processes.enter_context(Service("commitlog", root, own, prefix)), page
    # A builder that never comes back, known before the half minute is over for which a disk that stays full waits for it.
    report = commitlog_pb.ReportProgressRequest(builder="index", next_offset=0)
    found["full"][0].stub.ReportProgress(report, timeout=WAIT_SECONDS_MAX)
    return found


@pytest.fixture(scope="module")
def recovering_page() -> str:
    """Where a commitlog shows itself whose recovery does not move."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory, shard: Shard, sick: dict[str, tuple[Service, str]], recovering_page: str
) -> Iterator[Prometheus]:
    targets = {f"reput-{name}": [page] for name, page in shard.pages.items()}
    targets["sick"] = [page for _, page in sick.values()] + [recovering_page]
    with Prometheus(tmp_path_factory.mktemp("prometheus"), targets, quick(RULES.read_text())) as server:
        yield server


def test_promtool_accepts_the_rules_and_their_tests(tmp_path: pathlib.Path) -> None:
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(RULE_TESTS)]):
        done = subprocess.run([str(PROMTOOL), *command], capture_output=True, text=True, cwd=RULE_TESTS.parent)
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtools_tests_name_every_alert() -> None:
    assert set(re.findall(r"alertname: (\w+)", RULE_TESTS.read_text())) == alert_names()


def test_every_expression_of_the_dashboards_has_data_and_a_healthy_shard_raises_no_alarm(
    prometheus: Prometheus, shard: Shard
) -> None:
    prometheus.wait_for('count_over_time(reput_gateway_query_seconds_count{mode="by-offset"}[1m]) >= 6')
    prometheus.wait_for("rate(reput_builder_next_offset_bytes[8s]) > 0")

    def empty() -> list[str]:
        """What shows nothing just now: a rate of 8 s needs calls in them, which a busy machine may put off."""
        found = []
        for title, expression in expressions():
            plain = expression.replace("$__rate_interval", "8s").replace("$instance", ".*")
            if all(value != value for _, value in prometheus.ask(plain)):
                found.append(f"{title}: {plain}")
        return found

    deadline = time.monotonic() + WAIT_SECONDS_MAX
    left = set(empty())
    while left and time.monotonic() < deadline:
        left &= set(empty())
    assert not left, "\n".join(sorted(left))
    healthy = "|".join(shard.pages.values())
    alarms = prometheus.ask(f'ALERTS{{alertstate="firing", instance=~"{healthy}"}}')
    assert not alarms, alarms


def test_each_alert_fires_when_its_cause_is_there(
    prometheus: Prometheus,
    shard: Shard,
    sick: dict[str, tuple[Service, str]],
    recovering_page: str,
    tmp_path: pathlib.Path,
) -> None:
    # A disk that takes its time.
    slow = sick["slow"][0]
    for _ in range(3):
        slow.stub.AppendMessages(LARGE_REQUEST, timeout=60)

    # More streams than a gateway of four workers has room for, again and again: a rate begins at the first look.
    streams = []

    def open_more() -> None:
        new = [
            shard.processes["gateway"].stub.AppendMessageStream(iter(threading.Event().wait, None)) for _ in range(16)
        ]
        for stream in streams:
            stream.cancel()
        streams[:] = new

    prometheus.wait_for('ALERTS{alertname="ReputCallsRefused", alertstate="firing"}', act=open_more)
    for stream in streams:
        stream.cancel()

    # The disk hangs while a log is recovered that was killed.
    own = {**SMALL, "REPUT_COMMITLOG_METRICS_ADDRESS": recovering_page}
    store = tmp_path / "store"
    with Service("commitlog", store, SMALL) as killed:
        killed.stub.AppendMessages(LARGE_REQUEST, timeout=20)
        killed.kill()
    log_file = f"{paths.commit_log_dir(str(store))}/{0:020}"
    with Service("commitlog", store, own, delayed("pread64,preadv", "delay_enter=60000000", "-P", log_file), wait=""):
        prometheus.wait_for('ALERTS{alertname="ReputRecoveryStands", alertstate="firing"}')

    # An index that stands still, then dies with the queues, while messages come.
    halt(shard.processes["index"].pid)
    prometheus.wait_for('ALERTS{alertname="ReputQueriesSlow", alertstate="firing"}')
    for name in ("index", "consumequeue"):
        shard.processes[name].kill()
    prometheus.wait_for('ALERTS{alertname="ReputBuilderSilent", alertstate="firing"}')
    prometheus.wait_for('ALERTS{alertname="ReputQueriesFail", alertstate="firing"}')

    # A byte rots; and a queue's folder cannot be made, so that the queues cannot go on.
    damaged = shard.append(b"d" * 500)
    log = pathlib.Path(paths.commit_log_dir(str(shard.store)))
    with open(log / f"{damaged.commit_log_offset // 65_536 * 65_536:020}", "r+b") as file:
        file.seek(damaged.commit_log_offset % 65_536 + 200)
        file.write(b"\xff")
    (shard.store / "consumequeue" / "Blocked").symlink_to("/proc/sys/fs")
    shard.append(topic="Blocked")
    for _ in range(4):
        for name in ("index", "consumequeue"):
            shard.processes[name].kill()
            shard.start(name, wait="answering")
        time.sleep(0.7)  # longer than SCRAPE: a life whose page is never scraped does not count as one
    by_id = pb.QueryMessageByIdRequest(offset_msg_id=damaged.offset_msg_id)

    def ask_for_it() -> None:
        with pytest.raises(grpc.RpcError) as found:
            shard.processes["gateway"].stub.QueryMessageById(by_id, timeout=5)
        assert found.value.code() is grpc.StatusCode.DATA_LOSS

    prometheus.wait_for('ALERTS{alertname="ReputDamage", alertstate="firing"}', act=ask_for_it)
    for name in ("ReputBuilderFails", "ReputBuilderLags", "ReputAnswersPartial", "ReputServiceRestarts"):
        prometheus.wait_for(f'max_over_time(ALERTS{{alertname="{name}", alertstate="firing"}}[1h])')

    # Traces for a collector that is not there; at last, a log that is gone.
    shard.processes["gateway"].kill()
    shard.start("gateway", REPUT_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    prometheus.wait_for('ALERTS{alertname="ReputTracesDropped", alertstate="firing"}')
    shard.processes["commitlog"].kill()
    prometheus.wait_for('ALERTS{alertname="ReputAppendsFail", alertstate="firing"}')

    prometheus.wait_for('ALERTS{alertname="ReputHole", alertstate="firing"}')
    assert alert_names() - prometheus.fired() == UNPROVOKED
