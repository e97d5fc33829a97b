"""The command itself: what it refuses, which code it ends with, how fast it starts."""

import os
import pathlib
import resource
import socket
import subprocess
import sys

import pytest

import cli.main

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 0.3


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments],
        cwd=ROOT, env={**inherited, **environ}, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip


def test_the_version_is_printed_within_300_milliseconds() -> None:
    """Of processor time, the best of five: a loaded machine makes any process wait, an eager import is slow always."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        finished = run("--version")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

        assert finished.stdout.startswith("reput ")
    assert min(seconds) < START_SECONDS_MAX


def test_the_version_needs_neither_grpc_nor_rich() -> None:
    heavy = "{'grpc', 'rich', 'typer'}"
    code = f"import sys, cli.main; cli.main.main(['--version']); print(sorted({heavy} & set(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert finished.stdout.splitlines()[-1] == "[]"


def test_no_verb_loads_a_library_before_it_has_work_for_it() -> None:
    """Help and a wrong line come as quickly as the parser: what is heavy is loaded when a verb runs."""
    heavy = "{'grpc', 'google.protobuf', 'numpy', 'pyarrow', 'pyspark', 'rich', 'playwright'}"
    code = f"""
import sys, cli.main
grouped = [[group, name] for group, (_, verbs) in cli.main.GROUPS.items() for name in verbs]
for verb in [[], *([name] for name in cli.main.VERBS), *grouped]:
    assert cli.main.main([*verb, '--help']) == 0, verb
    loaded = sorted({heavy} & set(sys.modules))
    assert not loaded, (verb, loaded)
"""
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert finished.returncode == 0, finished.stderr[-2000:]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuchverb"],
        ["queryMsgByKey", "-t", "T"],
        ["queryMsgByKey", "-t", "T", "-k", "k", "-b", "soon"],
        ["queryMsgByKey", "-t", "T", "-k", "k", "-m", "0"],
        ["queryMsgByKey", "-t", "T", "-k", "k", "-o", "xml"],
        ["queryMsgByOffset", "-t", "T", "-i", "0", "-o", "json"],
        ["queryMsgByOffset", "-t", "T", "-i", "0", "-o", "1", "-o", "2"],
        ["queryMsgByOffset", "-t", "T", "-i", "0", "-o", "9223372036854775808"],
        ["queryMsgByOffset", "-t", "T", "-i", "2147483648", "-o", "0"],
        ["queryMsgById", "-i", "00", "-f", "no-such-charset"],
        ["send", "-t", "T", "-b", "x", "-p", "novalue"],
        ["send", "-t", "T", "-b", "x", "--queue-id", "4294967296"],
        ["send", "-t", "T", "--body-file", "/no/such/file"],
        ["send", "-t", "T", "-b", "x", "--priority", "-1"],
        ["send", "-t", "T", "-b", "x", "--priority", "1", "--delay", "1s"],
        ["send", "-t", "T", "-b", "x", "--lite-topic", "a", "--priority", "1"],
        ["load", "/no/such/file"],
        ["import", "/no/such/file"],
        ["import", "/no/such/file", "--store", "/tmp/out", "--deduplicate"],
        ["export", "--store", "/no/such/store"],
        ["export", "--format", "store"],
        ["export", "--fromOffset", "1"],
        ["export", "-k", "key"],
        ["export", "--begin", "soon"],
        ["serve", "--store", "/no/such/directory", "--read-only"],
        ["serve", "--store", "/no/such/directory", "--follow", "--derived", "/tmp/derived"],
        ["serve", "--store", "/tmp", "--follow"],
        ["serve", "--store", "/tmp", "--derived", "/tmp/derived"],
        ["serve", "--store", "/tmp", "--follow", "--derived", "/tmp/derived"],
        ["serve", "--store", "/proc", "--follow", "--derived", "/tmp/derived", "--read-only"],
        ["serve", "--store", "/tmp", "--gateway-port", "65536"],
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(
    arguments: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("REPUT_")]:
        monkeypatch.delenv(name)

    code = cli.main.main(arguments)

    shown = capfd.readouterr()
    assert code == 2
    assert shown.out == ""
    assert shown.err != ""
    assert "Traceback" not in shown.err


def test_wrong_usage_of_the_installed_command_ends_its_process_with_2() -> None:
    finished = run("queryMsgByKey", "-t", "T", "-k", "k", "-b", "soon")

    assert finished.returncode == 2
    assert finished.stdout == ""
    assert "Traceback" not in finished.stderr


def test_no_gateway_ends_with_4_and_says_what_to_do() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused, nobody else takes it
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        finished = run("queryMsgByKey", "-t", "T", "-k", "k", REPUT_ADDRESS=address)

    assert finished.returncode == 4
    assert "UNAVAILABLE" in finished.stderr
    assert address in finished.stderr
    assert "reput serve" in finished.stderr


def test_a_wrong_setting_stops_serve_before_any_service_starts(tmp_path: pathlib.Path) -> None:
    finished = run("serve", "--store", str(tmp_path / "store"), REPUT_COMMITLOG_FILE_SIZE_BYTE="1")

    assert finished.returncode == 2
    assert "REPUT_COMMITLOG_FILE_SIZE_BYTES" in finished.stderr, "the nearest real name"
    assert not (tmp_path / "store").exists()


def test_config_shows_each_value_with_its_origin_and_what_a_broker_conf_has_besides(tmp_path: pathlib.Path) -> None:
    broker_conf = tmp_path / "broker.conf"
    broker_conf.write_text("mappedFileSizeCommitLog=1048576\nbrokerRole=ASYNC_MASTER\n")
    finished = run("config", "--config", str(broker_conf), "-o", "jsonl", REPUT_BROKER_NAME="broker-z")

    assert finished.returncode == 0
    assert '"REPUT_BROKER_NAME", "value": "broker-z"' in finished.stdout
    assert "environment REPUT_BROKER_NAME" in finished.stdout
    assert '"value": "1048576"' in finished.stdout
    assert "mappedFileSizeCommitLog" in finished.stdout
    as_table = run("config", "--config", str(broker_conf))
    assert "ignored (no such setting here): brokerRole" in as_table.stdout


def test_every_verb_has_help() -> None:
    for verb in ("queryMsgByKey", "queryMsgById", "queryMsgByUniqueKey", "queryMsgByOffset", "send", "load", "serve"):
        assert cli.main.main([verb, "--help"]) == 0


@pytest.mark.parametrize(
    "line",
    [
        ["audit", "--store", "store"],
        ["analytics", "--store", "store", "--out", "out"],
        ["archive", "--store", "store", "--archive", "archive"],
        ["rebuild", "--store", "store", "--out", "out"],
        ["query", "byId", "--archive", "archive", "--msgId", "0" * 32],
    ],
    ids=lambda line: line[0],
)
def test_a_pipeline_verb_without_spark_says_what_to_install(line, tmp_path, monkeypatch, capsys):
    """A defect: 46 lines of traceback, and exit code 1, which means that something was found."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "archive").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in list(sys.modules):
        if name.partition(".")[0] in {"pipeline", *cli.main.PIPELINE_MODULES}:
            monkeypatch.delitem(sys.modules, name)
    for name in cli.main.PIPELINE_MODULES:
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed

    code = cli.main.main(["pipeline", *line])
    for name in [name for name in sys.modules if name.partition(".")[0] == "pipeline"]:
        del sys.modules[name]  # a second copy, beside those that come back now

    assert code == 2
    shown = capsys.readouterr().err
    assert "pip install 'reput[pipeline]'" in shown
    assert len(shown.splitlines()) == 2
