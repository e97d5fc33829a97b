"""`reput demo`: serve a store and show the four queries on it, as command lines with their answers.

On an empty store it first appends the sample messages that ship with the project, and a small producer and consumer then go on
in a process of their own (`cli/demo_traffic.py`), also when that store is served again. On any other store it shows messages
that are there already, and writes nothing.
"""

import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cli import serve
from cli.demo_traffic import VISITS
from cli.exits import CliError, usage_error
from cli.options import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from deploy.local import LocalStack
    from reput_client import Message, QueryClient

SAMPLES = pathlib.Path(__file__).parent / "samples" / "messages.jsonl"
BUILT_SECONDS_MAX = 20.0
CALL_SECONDS_MAX = 30.0
POLL_SECONDS = 0.05
TRAFFIC_STOP_SECONDS_MAX = 5.0
QUEUES_LOOKED_AT_MAX = 64
MESSAGES_LOOKED_AT = 32
SAMPLE_KEY = "order-1001"
REPORTS_SETTING = "REPUT_GATEWAY_CONSOLE_REPORTS"


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A stored message to query.

    Attributes:
        message: the message.
        key: one of its business keys; empty when it has none.
    """

    message: "Message"
    key: str


def demo(
    *,
    store: serve.StoreDir,
    read_only: serve.ReadOnly = False,
    gateway_port: serve.GatewayPort = None,
    console_port: serve.ConsolePort = None,
    nameserver_port: serve.NameServerPort = None,
    remoting_port: serve.RemotingPort = None,
    port_file: serve.PortFile = None,
    traffic: Annotated[
        bool, typer.Option("--traffic/--no-traffic", help="With the samples: a small producer and consumer go on.")
    ] = True,
) -> int:
    """Serve a store, show the four queries on messages in it (samples when it is empty), go on until Ctrl-C."""
    from deploy.hosts import ChildDiedError
    from deploy.local import LocalStack, StopAskedError
    from deploy.processes import say
    from store.errors import InvalidSettingError

    serve.check_store(store, read_only)
    # Only the answers and warnings are shown.
    os.environ.setdefault("REPUT_LOG_LEVEL", "warning")
    reports = None if read_only else _reports_of(store)
    if reports is not None:
        reports.mkdir(parents=True, exist_ok=True)
        os.environ[REPORTS_SETTING] = str(reports)
    stack = LocalStack(
        store,
        read_only=read_only,
        gateway_port=gateway_port,
        console_port=serve.port_of("--console-port", console_port),
        nameserver_port=serve.port_of("--nameserver-port", nameserver_port),
        remoting_port=serve.port_of("--remoting-port", remoting_port),
        port_file=port_file,
    )
    print(f"Starting the six services on {store} ...", flush=True)
    try:
        with stack.started() as failure:
            if failure is not None:
                return failure
            has_samples = False
            try:
                has_samples = _show(stack, read_only)
            except CliError as error:
                print(f"The demonstration stopped: {error.reason}: {error.message}\n{error.hint}", flush=True)
            command = [stack.addresses["gateway"], *([] if reports is None else [str(store), str(reports)])]
            with _traffic(command, goes_on=traffic and has_samples and not read_only):
                exit_code = stack.wait()
        return exit_code or stack.stop_exit_code
    except InvalidSettingError as error:
        usage_error(error.message, "`reput config` shows every setting and where its value comes from.")
    except ChildDiedError as death:
        say(str(death))
        return death.exit_code
    except StopAskedError:
        return stack.stop_exit_code


def _reports_of(store: pathlib.Path) -> pathlib.Path | None:
    """Where the report of a sample's store goes; None: another store, or the user has a directory of reports."""
    reports = store.absolute() / "reput" / "reports"
    is_sample = reports.exists() or not (store / "commitlog").exists()
    return reports if is_sample and REPORTS_SETTING not in os.environ else None


@contextmanager
def _traffic(arguments: Sequence[str], *, goes_on: bool) -> Iterator[None]:
    """A producer and a consumer of the sample, while the block lasts; the arguments are those of `cli.demo_traffic`."""
    if not goes_on:
        yield
        return
    command = [sys.executable, "-P", "-m", "cli.demo_traffic", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(TRAFFIC_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _show(stack: "LocalStack", read_only: bool) -> bool:
    """Show the queries on a message; whether the store is that of the samples."""
    from cli.client import query_client
    from cli.topics import list_topics

    address = stack.addresses["gateway"]
    with query_client(address, CALL_SECONDS_MAX) as client:
        topics = {each.topic for each in list_topics(client)[0]}
        is_empty = not _log_end_offset(client) and not topics
        if is_empty and not read_only:
            _load_samples(address)
        built = _wait_until_built(stack, client)
        example = None if is_empty and read_only else _sample(client) if is_empty else _pick(client)
    if not built:
        print("The queues and the index are still being built: answers may be partial for a while.")
    if example is None:
        print("No message to show.")
    else:
        for verb, *arguments in _command_lines(example):
            stack.check()
            _run_command(verb, arguments, address)
    _say_where(stack.addresses, example)
    return is_empty or VISITS in topics


def _load_samples(address: str) -> None:
    from cli.client import append_client
    from cli.send import append_all, flush_mode_of, read_messages

    messages = list(read_messages(SAMPLES.read_text(encoding="utf-8").splitlines(), SAMPLES.name))
    with append_client(address, CALL_SECONDS_MAX) as client:
        count = sum(len(receipts) for receipts in append_all(client, messages, flush_mode_of(sync=True)))
    print(f"Appended {count} sample messages (cli/samples/{SAMPLES.name}).", flush=True)


def _log_end_offset(client: "QueryClient") -> int:
    return max((service.log_end_offset for service in client.status() if service.service == "commitlog"), default=0)


def _wait_until_built(stack: "LocalStack", client: "QueryClient") -> bool:
    """True once the builders have reached the end of the log; False after `BUILT_SECONDS_MAX`."""
    deadline = time.monotonic() + BUILT_SECONDS_MAX
    target = _log_end_offset(client)
    while time.monotonic() < deadline:
        services = client.status()
        built = [row.next_offset for row in services if row.service != "commitlog" and row.error is None]
        if len(built) == len(services) - 1 and min(built) >= target:
            return True
        stack.check()
        time.sleep(POLL_SECONDS)
    return False


def _sample(client: "QueryClient") -> Example | None:
    found = list(client.by_key("Orders", SAMPLE_KEY, max_messages=1))
    return Example(found[0], SAMPLE_KEY) if found else _pick(client)


def _pick(client: "QueryClient") -> Example | None:
    """A message of the store, preferably one with a business key and a unique key."""
    best: Example | None = None
    for message in _newest_messages(client):
        candidate = Example(message, message.keys[0] if message.keys else "")
        if candidate.key and message.unique_key:
            return candidate
        if best is None or (bool(message.unique_key) and not best.message.unique_key):
            best = candidate
    return best


def _newest_messages(client: "QueryClient") -> "Iterator[Message]":
    """The newest messages of some queues, users' topics before RocketMQ's own."""
    from cli.topics import is_rocketmqs_own, list_topics

    listed, _ = list_topics(client)
    listed.sort(key=is_rocketmqs_own)
    queues = [(topic.topic, queue) for topic in listed for queue in topic.queues if queue.max_offset > queue.min_offset]
    for topic, queue in queues[:QUEUES_LOOKED_AT_MAX]:
        begin = max(queue.min_offset, queue.max_offset - MESSAGES_LOOKED_AT)
        yield from reversed(list(client.by_offset(topic, queue.queue_id, begin, queue.broker_name, MESSAGES_LOOKED_AT)))


def _command_lines(example: Example) -> Iterator[list[str]]:
    message = example.message
    if example.key:
        yield ["queryMsgByKey", "-t", message.topic, "-k", example.key]
    yield ["queryMsgById", "-i", message.offset_msg_id]
    if message.unique_key:
        yield ["queryMsgByUniqueKey", "-t", message.topic, "-i", message.unique_key]
    where = ["-b", message.broker_name, "-i", str(message.queue_id), "-o", str(message.queue_offset)]
    yield ["queryMsgByOffset", "-t", message.topic, *where]


def command_name() -> str:
    """This command as a person types it here: `reput`, or its path where `reput` is not found or is another program."""
    launcher = pathlib.Path(sys.executable).parent / "reput"
    found = shutil.which("reput")
    if not launcher.exists() or (found is not None and os.path.samefile(found, launcher)):
        return "reput"
    here = pathlib.Path.cwd()
    return str(launcher.relative_to(here) if launcher.is_relative_to(here) else launcher)


def _run_command(verb: str, arguments: list[str], address: str) -> None:
    """Print the command line and run it, in this process."""
    from cli.main import main

    if address != DEFAULT_ADDRESS:
        arguments = [*arguments, "--address", address]
    print(f"\n$ {shlex.join([command_name(), verb, *arguments])}", flush=True)
    main([verb, *arguments, *(["--address", address] if address == DEFAULT_ADDRESS else [])])


def _say_where(addresses: Mapping[str, str], example: Example | None) -> None:
    address = addresses["gateway"]
    print(f"\nThe gateway answers on {address} until Ctrl-C.")
    if example is not None and example.key:
        request = json.dumps({"topic": example.message.topic, "key": example.key}, ensure_ascii=False)
        call = f"grpcurl -plaintext -d {shlex.quote(request)} {address}"
        print(f"  {call} reput.gateway.v1.GatewayService/QueryMessageByKey")
    else:
        print(f"  grpcurl -plaintext {address} describe reput.gateway.v1.GatewayService")
    if "nameserver" in addresses and "remoting" in addresses:
        print(f"\nPrograms with RocketMQ's own clients: namesrvAddr = {addresses['nameserver']}")
    if console := addresses.get("console"):
        print(f"\nThe console is at http://{console}/{_console_query(example)}")
    print("", end="", flush=True)


def _console_query(example: Example | None) -> str:
    """The URL of the console's page of the message that was shown."""
    if example is None:
        return ""
    text = example.key or example.message.unique_key or example.message.offset_msg_id
    return f"?{urllib.parse.urlencode({'q': text})}"
