"""A real browser before real services: Debian's chromium, driven by Playwright.

REPUT_TEST_SCREENSHOTS names a directory for pictures of the pages; without it none are taken.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fixture_stores import unpack_store
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

CHROMIUM = shutil.which("chromium")
SIZES = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844), "phone-dark": (390, 844)}
HOSTILE_BODIES = {
    "script": b"<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">",
    "huge": b'{"rows": [' + b",".join(b'{"number": %d}' % number for number in range(45_000)) + b"]}",
    "binary": bytes(range(256)) * 8,
    "rtl": "\u202eabc\u2066 שלום عليكم".encode(),
    "control": bytes(range(1, 32)) + b"\x7f end",
    "protobuf": new_message("Orders", b"\xff\x00", queue_id=3).SerializeToString(),
    "chinese": "订单已创建".encode(),
}
HOSTILE_KEY = "<b>'\"&\u202ex"
TRACED_KEY = "7F0000010000000000000000000000AA"
_REPLICA = {
    "broker_name": "broker-a",
    "replica": "r1",
    "first_offset": 0,
    "end_offset": 9,
    "lag_bytes": 0,
    "error_count": 1,
}
REPORT = {
    **{
        "job": "audit-cluster",
        "started_at_millis": 1_800_000_000_000,
        "seconds": 1.5,
        "counts": {"log_bytes": 1 << 40},
    },
    **{"findings": [{"kind": "LOG_HOLE", "file": "commitlog/" + "0" * 90}] * 30, "notes": ["n" * 300]},
    "replicas": [{**_REPLICA, "warning_count": 0, "is_log_only": False}],
}
HIT_COUNT = 4_000  # a search by expression takes several steps, and not minutes on a busy machine


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Services on a copy of the broker's store, with hostile messages, a key that 4,000 messages have, lite topics, a message
    of which clients told, and reports."""
    from reput.gateway.v1 import gateway_service_pb2 as pb

    root = unpack_store("broker", tmp_path_factory.mktemp("console") / "store")
    (reports := root.with_name("reports")).mkdir()
    for number in range(2):
        (reports / f"cluster-{number}.json").write_text(json.dumps(REPORT))
    (reports / f"{'long_name_' * 9}.json").write_text(json.dumps({**REPORT, "job": "long_job_" * 7}))
    with running_stack(root, settings={"REPUT_GATEWAY_CONSOLE_REPORTS": str(reports)}) as running:
        messages = [
            new_message("Hostile", body, queue_id=0, keys=[name], tags=HOSTILE_KEY, properties={"<i>": HOSTILE_KEY})
            for name, body in HOSTILE_BODIES.items()
        ]
        messages += [new_message("Hostile", b"key", queue_id=0, keys=[HOSTILE_KEY])]
        messages += [new_message("Traced", b"traced", unique_key=TRACED_KEY, keys=["traced-1"])]
        messages += [new_message("RMQ_SYS_TRACE_TOPIC", traces_of(30), keys=[TRACED_KEY])]
        running.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
        for begin in range(0, HIT_COUNT, 1_000):
            batch = [new_message("Many", b"hit %d" % (begin + number), keys=["hit"]) for number in range(1_000)]
            running.gateway.AppendMessages(pb.AppendMessagesRequest(messages=batch), timeout=WAIT_SECONDS_MAX)
        add_lite_topics(running)
        running.wait_until_built()
        yield running


def traces_of(count: int) -> bytes:
    """What clients told of the traced message: its send, so many consumptions with any end, a verdict, a damaged entry."""
    group = "g" * 120
    entries = [f"Pub|1800000000000|R|{group}|Traced|{TRACED_KEY}|T|k|10.0.0.1:10911|7|12|0|7F00|true"]
    for at in range(count):
        entries += [
            f"SubBefore|180000000{at:04d}|R|{group}{at}|r{at}|{TRACED_KEY}|{at}|k",
            f"SubAfter|r{at}|{TRACED_KEY}|30|{'false' if at % 5 else 'true'}|k|{at % 5}|180000001{at:04d}|{group}{at}",
        ]
    entries.append(
        f"EndTransaction|1800000000009|R|{group}|Traced|{TRACED_KEY}|T|k|10.0.0.1:10911|2|t|ROLLBACK_MESSAGE|true"
    )
    entries.append(f"Pub|damaged|R|g|T|{TRACED_KEY}")
    return "".join(entry.replace("|", "\x01") + "\x02" for entry in entries).encode()


def add_lite_topics(running: Stack) -> None:
    """A topic with 120 lite topics, all of which a client of a group subscribes to."""
    from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
    from reput.gateway.v1 import gateway_service_pb2 as pb
    from reput.message.v1 import message_pb2
    from services.calling.client import ServiceClient
    from services.rpcs import consumer as rpc

    gateway = running.gateway
    topic = pb.CreateTopicRequest(topic="Chats", message_type=message_pb2.MESSAGE_TYPE_LITE)
    gateway.CreateTopic(topic, timeout=WAIT_SECONDS_MAX)
    group = pb.UpdateConsumerGroupRequest(consumer_group="readers", lite_attributes={"lite.bind.topic": "Chats"})
    gateway.UpdateConsumerGroup(group, timeout=WAIT_SECONDS_MAX)
    names = [*(f"user-{number:03d}" for number in range(119)), "x" * 64]
    messages = [new_message("Chats", b"hello", properties={"__LITE_TOPIC": name}) for name in names]
    gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
    subscription = consumer_pb.SyncLiteSubscriptionRequest(
        consumer_group="readers",
        topic="Chats",
        client_id="a-client",
        action=consumer_pb.LITE_ACTION_COMPLETE_ADD,
        lite_topics=names,
    )
    client = ServiceClient("consumer", running.addresses["consumer"])
    client.call(rpc.SYNC_LITE_SUBSCRIPTION, subscription, WAIT_SECONDS_MAX)
    client.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """The browser; for one module, because Playwright keeps an event loop running and other tests want their own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the console's browser tests need playwright")
    if CHROMIUM is None:
        pytest.skip("the console's browser tests need chromium (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium) -> Iterator[Callable[..., object]]:
    """Opens a page that fails the test when its script does; by name of a size, and further settings of the browser."""
    contexts, errors = [], []

    def open_in(size: str = "light", **settings: object) -> object:
        width, height = SIZES[size]
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if size.endswith("dark") else "light",
            **{"locale": "en", **settings},
        )
        context.set_default_timeout(WAIT_SECONDS_MAX * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)
        page.on("dialog", lambda dialog: errors.append(f"dialog {dialog.message}"))
        return page

    yield open_in
    for context in contexts:
        context.close()
    assert errors == []


def keep_picture(page, name: str) -> None:
    """Keep a picture of the whole page for people to look at, where that was asked for: to draw it costs more than a test."""
    if directory := os.environ.get("REPUT_TEST_SCREENSHOTS"):
        Path(directory).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
