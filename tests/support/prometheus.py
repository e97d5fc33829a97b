"""A real Prometheus for tests: scrapes loopback twice a second and evaluates rules as often; ended with the test."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from types import TracebackType

import yaml

from tests.support.ports import free_port
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

PROMETHEUS = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
SCRAPE = "500ms"
POLL_SECONDS = 0.1
START_COUNT_MAX = 3


class Prometheus:
    """A server with its own directory.

    Args:
        directory: for its configuration and data.
        targets: by job, the `HOST:PORT` of pages.
        rules: the text of a rules file; empty: none.
    """

    def __init__(self, directory: pathlib.Path, targets: Mapping[str, list[str]], rules: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "rules.yaml").write_text(rules or "groups: []\n")
        config = {
            "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE, "scrape_timeout": SCRAPE},
            "rule_files": [str(directory / "rules.yaml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": pages}]} for job, pages in targets.items()
            ],
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._log = directory / "log"
        for _ in range(START_COUNT_MAX):  # the port may be taken between being found and being bound
            self._address = f"127.0.0.1:{free_port()}"
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    [
                        str(PROMETHEUS), f"--config.file={directory / 'prometheus.yaml'}",
                        f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={self._address}",
                    ],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            if self._is_up():
                return
        raise RuntimeError(f"prometheus did not come up:\n{self._log.read_text()[-3000:]}")

    def ask(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The samples of an instant query now: labels and value."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(
                f"http://{self._address}/api/v1/query?{query}", timeout=WAIT_SECONDS_MAX
            ) as answer:
                result = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        return [(row["metric"], float(row["value"][1])) for row in result]

    def wait_for(self, expression: str, act: Callable[[], object] = int) -> None:
        """Return once an expression has a sample; `act` is done again and again meanwhile."""

        def has_sample() -> bool:
            if self.ask(expression):
                return True
            act()
            return False

        wait_until(has_sample, expression, poll_seconds=POLL_SECONDS)

    def fired(self) -> set[str]:
        """The names of alerts that have fired since it was started."""
        return {labels["alertname"] for labels, _ in self.ask('max_over_time(ALERTS{alertstate="firing"}[1h])')}

    def __enter__(self) -> "Prometheus":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def _is_up(self) -> bool:
        def is_ready() -> bool:
            assert self._process.poll() is None, "it ended"
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=WAIT_SECONDS_MAX),
            ):
                return True
            return False

        try:
            wait_until(is_ready, "it is ready", poll_seconds=POLL_SECONDS)
        except AssertionError:
            self._process.kill()
            self._process.wait()
            return False
        return True
