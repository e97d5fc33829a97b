"""deploy/compose.yaml, run by podman: the image serves on a new volume, and Prometheus finds every page.

Grafana's image cannot be had here: its files are checked against what they name. Where there is no registry, the Prometheus of
this machine stands in for its image.
"""

import json
import re
import secrets
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cli.main import version
from services.rocketmq.fastjson import loads
from tests.nameserver_svc.scenario import route
from tests.support import containers
from tests.support.command import run_command
from tests.support.containers import Container, podman, wait_for
from tests.support.ports import free_port
from tests.support.prometheus import PROMETHEUS
from tests.support.remoting import RemotingClient
from tests.support.waiting import WAIT_SECONDS_MAX

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
MISSING = containers.missing_programs()


def _variables(text: str, **is_set: str) -> str:
    """A text of the file where these variables are set and no others; a default may have another variable."""
    while (filled := re.sub(r"\$\{(\w+):-([^{}]*)\}", lambda one: is_set.get(one[1], one[2]), text)) != text:
        text = filled
    return text


def _published(**is_set: str) -> dict[str, str]:
    """The ports of this machine that lead to those of the container, by these."""
    parts = (_variables(port, **is_set).split(":") for port in SERVICES["reput"]["ports"])
    return {inner: outer for _, outer, inner in parts}


def _volumes(service: str) -> list[tuple[str, str, bool]]:
    """(source, target, whether it is read-only) of each."""
    found = []
    for volume in SERVICES[service]["volumes"]:
        source, target, *mode = _variables(volume).split(":")
        found.append((source, target, mode == ["ro"]))
    return found


def test_the_file_names_volumes_ports_and_files_that_are_there() -> None:
    assert SERVICES["reput"]["image"] == f"reput-serve:{version()}"
    for name, service in SERVICES.items():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), name
        # Without TLS and sign-in, nobody but this machine may call.
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        for source, _, is_read_only in _volumes(name):
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
                assert is_read_only, source
            else:
                assert source in COMPOSE["volumes"], source


def test_prometheus_reads_every_page_and_grafana_reads_prometheus() -> None:
    environment = SERVICES["reput"]["environment"]
    pages = {
        name.split("_")[1].lower(): value.rpartition(":")[2]
        for name, value in environment.items()
        if name.endswith("_METRICS_ADDRESS")
    }
    config = yaml.safe_load((DEPLOY / "compose" / "prometheus.yaml").read_text(encoding="utf-8"))
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    assert jobs == {f"reput-{name}": [f"reput:{port}"] for name, port in pages.items()}
    assert len(pages) == 7
    (rules,) = config["rule_files"]
    targets = {target: DEPLOY / source for source, target, _ in _volumes("prometheus") if source.startswith(".")}
    assert (targets[str(Path(rules).parent)] / Path(rules).name).exists()
    (source,) = yaml.safe_load((DEPLOY / "compose" / "datasources.yaml").read_text(encoding="utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((DEPLOY / "compose" / "dashboards.yaml").read_text(encoding="utf-8"))["providers"]
    mounted = {target: DEPLOY / folder for folder, target, _ in _volumes("grafana")}
    assert list(mounted[provider["options"]["path"]].glob("*.json"))
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (mounted[str(home.parent)] / home.name).exists()


def test_clients_over_remoting_are_told_a_port_that_is_published() -> None:
    environment = SERVICES["reput"]["environment"]
    for name, port in (("REPUT_NAMESERVER_REMOTING_ADDRESS", "9876"), ("REPUT_GATEWAY_REMOTING_ADDRESS", "10911")):
        assert environment[name] == f"0.0.0.0:{port}"
        assert _published()[port] == port
    assert _published()["10909"] == "10909"  # the door's fast port
    assert _variables(environment["REPUT_STORE_HOST"]) == "127.0.0.1:10911"


def test_a_machine_with_rocketmq_publishes_other_ports_of_which_clients_are_told() -> None:
    chosen = {"REPUT_NAMESERVER_PORT": "19876", "REPUT_REMOTING_PORT": "20911", "REPUT_FAST_PORT": "20909"}
    published = _published(**chosen)
    assert [published[port] for port in ("9876", "10911", "10909")] == list(chosen.values())
    told = SERVICES["reput"]["environment"]["REPUT_STORE_HOST"]
    assert _variables(told, **chosen) == "127.0.0.1:20911"
    assert _variables(told, **chosen, REPUT_STORE_HOST="10.0.0.5:10911") == "10.0.0.5:10911"


@pytest.mark.containers
@pytest.mark.timeout(1200)
@pytest.mark.skipif(bool(MISSING) or PROMETHEUS is None, reason=f"not installed: {MISSING} or prometheus")
def test_the_services_of_the_file_take_messages_and_are_watched(serve_image: str) -> None:
    assert SERVICES["reput"]["build"]["target"] == "serve"
    mark = f"reput-compose-{secrets.token_hex(4)}"
    made = [("container", f"{mark}-{name}") for name in ("prometheus", "reput")]
    made += [("volume", f"{mark}-{name}") for name in COMPOSE["volumes"]]
    with containers.removed_afterwards(*made, ("network", mark)):
        podman("network", "create", "--disable-dns", mark)
        ports: dict[int, int] = {}
        reput = _start("reput", serve_image, mark, ports)
        networks: dict[str, Any] = reput.inspect()["NetworkSettings"]["Networks"]  # type: ignore[index]
        hosts = [f"--add-host=reput:{networks[mark]['IPAddress']}"]
        # This machine's program and its user, as in the image.
        (data,) = [source for source, target, _ in _volumes("prometheus") if target == "/prometheus"]
        podman("volume", "create", "--opt=o=uid=65534,gid=65534", f"{mark}-{data}")
        program = f"--volume={Path(str(PROMETHEUS)).resolve()}:/bin/prometheus:ro"
        as_in_image = ("--user=65534:65534", "--entrypoint=/bin/prometheus", program)
        _start("prometheus", containers.base_image(), mark, ports, *hosts, *as_in_image)

        here = ("--address", f"127.0.0.1:{ports[8081]}")
        wait_for(lambda: run_command("status", *here).returncode == 0, reput.logs)
        # What the health check of the file asks.
        assert reput.run(*SERVICES["reput"]["healthcheck"]["test"][1:])
        sent = run_command("send", "-t", "Greetings", "-k", "k", "-b", "hello", *here)
        assert sent.returncode == 0, sent.stderr
        wait_for(
            lambda: "hello" in run_command("queryMsgByKey", "-t", "Greetings", "-k", "k", *here).stdout, reput.logs
        )
        with socket.create_connection(("127.0.0.1", ports[9876]), WAIT_SECONDS_MAX) as connected:
            nameserver = RemotingClient(connected)
            wait_for(lambda: nameserver.ask(route("Greetings").command()).code == 0, reput.logs)
            (told,) = loads(nameserver.ask(route("Greetings").command()).body)["brokerDatas"]
        assert told["brokerAddrs"] == {"0": "127.0.0.1:10911"}
        with urllib.request.urlopen(f"http://127.0.0.1:{ports[8080]}/", timeout=WAIT_SECONDS_MAX) as console:
            assert console.status == 200

        def up() -> set[str]:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{ports[9090]}/api/v1/query?query=up", timeout=WAIT_SECONDS_MAX
                ) as answer:
                    rows = json.load(answer)["data"]["result"]
            except OSError:
                return set()
            return {row["metric"]["job"] for row in rows if row["value"][1] == "1"}

        components = ("gateway", "commitlog", "consumequeue", "index", "consumer", "schedule", "nameserver")
        wait_for(lambda: up() == {f"reput-{name}" for name in components}, "every page is read")
        with urllib.request.urlopen(f"http://127.0.0.1:{ports[9090]}/api/v1/rules", timeout=WAIT_SECONDS_MAX) as answer:
            groups = json.load(answer)["data"]["groups"]
        assert sum(len(group["rules"]) for group in groups) >= 10


def _start(service: str, image: str, mark: str, ports: dict[int, int], *flags: str) -> Container:
    """What compose would run, on the project's network, on free ports of this machine."""
    described = SERVICES[service]
    options = [f"--network={mark}", *flags]
    options += [f"--env={name}={_variables(value)}" for name, value in described.get("environment", {}).items()]
    for port in described["ports"]:
        inner = int(port.rpartition(":")[2])
        ports[inner] = free_port()
        options.append(f"--publish=127.0.0.1:{ports[inner]}:{inner}")
    for source, target, is_read_only in _volumes(service):
        place = str((DEPLOY / source).resolve()) if source.startswith(".") else f"{mark}-{source}"
        options.append(f"--volume={place}:{target}{':ro' if is_read_only else ''}")
    options += [f"--tmpfs={target}" for target in described.get("tmpfs", [])]
    return Container(f"{mark}-{service}", image, options, *described["command"])
