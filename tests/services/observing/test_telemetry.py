"""Logs: one JSON object a line on stderr, with the service, the time and the fields."""

import json
import subprocess
import sys

import pytest

from services.observing.telemetry import configure_logging
from store.errors import InvalidSettingError
from tests.services.serving.test_server import clean_environment
from tests.support.waiting import WAIT_SECONDS_MAX

PROGRAM = """
import logging
from services.observing.telemetry import configure_logging, get_logger
configure_logging("index", "info")
log = get_logger("reput.index")
log.debug("index.key.skipped")
log.info("index.file.created", file="中", count=3)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("index.file.failed")
logging.getLogger("grpc").warning("from %s", "a library")
"""


def test_a_log_line_is_a_json_object():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=clean_environment(), capture_output=True, timeout=WAIT_SECONDS_MAX
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]

    assert [line["event"] for line in lines] == ["index.file.created", "index.file.failed", "from a library"]
    assert {line["service"] for line in lines} == {"index"}
    assert (lines[0]["file"], lines[0]["count"], lines[0]["level"]) == ("中", 3, "info")
    assert "ZeroDivisionError" in lines[1]["exception"]
    assert lines[0]["time"].endswith("Z")


def test_an_unknown_level_is_refused():
    with pytest.raises(InvalidSettingError, match="loud"):
        configure_logging("index", "loud")
