"""docs/console.md#end-an-incident: an operator who ends an incident in the console alone, by the steps that stand there."""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin

import pytest

from cli.demo_traffic import BEHIND_GROUP, ORDERS, RETRYING_GROUP, Traffic, prepare
from reput_client import Consumer, NewMessage, QueryClient, QueuePosition
from store.format.message_trace import ENTRY_END, FIELD_END
from store.format.topic import TRACE_TOPIC, pull_retry_topic_of
from tests.support.demo_sample import sample_clients
from tests.support.stack import Stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/console.md"
# A press of the table: a link, button or row, a box to tick, or a search.
PRESS = re.compile(r"(choose )?\*\*(.+?)\*\*|search `(.+?)`")
GIVEN = re.compile(r"([A-Z][A-Za-z ]*): `(.+?)`")
FAILED_KEY, PAYMENT_KEY, AGAIN_KEY = "order-1009", "PAY-6001", "order-1003"


@dataclass(frozen=True)
class Step:
    """A row of the table: why, what is pressed (`PRESS`), and values by the labels of fields."""

    goal: str
    presses: list[tuple[str, str, str]]
    given: dict[str, str]


def steps() -> list[Step]:
    """The rows of the table."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## End an incident\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    return [Step(row[0], PRESS.findall(row[1]), dict(GIVEN.findall(" ".join(row[2:])))) for row in rows]


@dataclass
class Row:
    """A row of a list."""

    text: str = ""


@dataclass
class Field:
    """A field of a form, its label and, of a choice, its values by their texts."""

    name: str
    value: str | None
    label: str = ""
    row: Row | None = None
    choices: dict[str, str] = field(default_factory=dict)


@dataclass
class Form:
    """Where a form goes, and its fields."""

    action: str
    method: str
    fields: list[Field] = field(default_factory=list)


@dataclass
class Control:
    """A link or a button of a form."""

    tag: str
    attributes: dict[str, str]
    form: Form | None
    row: Row | None
    text: str = ""


class Looked(HTMLParser):
    """What of a page a person can press and fill in."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.controls: list[Control] = []
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._row: Row | None = None
        self._control: Control | None = None
        self._label: str | None = None
        self._option: str | None = None
        self.text = ""
        self.feed(page)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = Form(attributes.get("action", ""), attributes.get("method", "get"))
            self.forms.append(self._form)
        elif tag == "tr":
            self._row = Row()
        elif tag == "label":
            self._label = ""
        elif tag in ("a", "button"):
            self._control = Control(tag, attributes, self._form, self._row)
            self.controls.append(self._control)
        elif tag in ("input", "select", "textarea") and self._form is not None and "name" in attributes:
            is_ticked = attributes.get("type") != "checkbox"
            value = attributes.get("value", "")
            known = Field(attributes["name"], value if is_ticked else None, " ".join((self._label or "").split()))
            known.row, known.choices = self._row, {"": value}
            self._form.fields.append(known)
        elif tag == "option" and self._form is not None:
            self._option = attributes.get("value", "")
            if "selected" in attributes or len(self._form.fields[-1].choices) == 1:
                self._form.fields[-1].value = self._option

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "tr":
            self._row = None
        elif tag == "label":
            self._label = None
        elif tag in ("a", "button"):
            self._control = None
        elif tag == "option":
            self._option = None

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"
        if self._row is not None:
            self._row.text += f" {data}"
        if self._control is not None:
            self._control.text += f" {data}"
        if self._option is not None and self._form is not None:
            self._form.fields[-1].choices[data.strip()] = self._option
        elif self._label is not None:
            self._label += data

    def find(self, words: str) -> Control | None:
        """The link or button with these words; otherwise one that begins with them, then the first of a row with them."""
        named = [(" ".join(each.text.split()), each) for each in self.controls]
        for matches in (
            [each for text, each in named if text == words],
            [each for text, each in named if text.startswith(f"{words} ")],
            [each for _, each in named if each.row is not None and words in each.row.text.split()],
        ):
            if matches:
                return matches[0]
        return None


class Operator:
    """Somebody with a browser without JavaScript, who reads the table and knows no URL but the console's.

    Attributes:
        url, text: of the page before them.
        body: its bytes.
    """

    def __init__(self, address: str) -> None:
        self._origin = f"http://{address}"
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
        )
        self._open("/")

    @property
    def text(self) -> str:
        return self._page.text

    def do(self, step: Step) -> None:
        """Press what the step says; the fields that it gives are filled in where a form has them."""
        left = dict(step.given)
        for chosen, words, sought in step.presses:
            if sought:
                self._open(f"/?{urlencode({'q': sought})}")
            elif chosen:
                boxes = [each for form in self._page.forms for each in form.fields if each.row and each.value is None]
                (box,) = [each for each in boxes if words in each.row.text.split()]
                box.value = box.choices[""]
            else:
                self._wait_for(lambda words=words: self._page.find(words), words)
                control = self._page.find(words)
                assert control is not None
                self._press(control, left)
        assert left == {}, f"no form has the fields {sorted(left)}"

    def sees(self, pattern: str) -> None:
        """Return once the page has such a text."""
        self._wait_for(lambda: re.search(pattern, self.text), pattern)

    def _wait_for(self, look: Callable[[], object], what: str) -> None:
        """A page that had to be shown before all of it was known is loaded again."""

        def is_there() -> bool:
            if not look() and self._is_read:
                self._open(self.url)
            return bool(look())

        wait_until(is_there, lambda: f"{what!r} on the page: {self.text}")

    def _press(self, control: Control, left: dict[str, str]) -> None:
        if control.tag == "a":
            self._open(control.attributes["href"])
            return
        form = control.form
        assert form is not None
        for label, text in list(left.items()):
            for each in form.fields:
                if each.label == label or each.label.startswith(f"{label} "):
                    each.value = each.choices[text] if len(each.choices) > 1 else text
                    del left[label]
                    break
        values = [(each.name, each.value) for each in form.fields if each.value is not None]
        if "name" in control.attributes:
            values.append((control.attributes["name"], control.attributes.get("value", "")))
        action = control.attributes.get("formaction", form.action)
        assert form.method == "post"
        self._open(action, urlencode(values).encode())

    def _open(self, href: str, content: bytes | None = None) -> None:
        url = urljoin(f"{self._origin}/", href)
        assert url.startswith(f"{self._origin}/")
        request = urllib.request.Request(url, content, {"Origin": self._origin} if content is not None else {})
        with self._opener.open(request, timeout=WAIT_SECONDS_MAX) as answer:
            self.body = answer.read()
            self.url = answer.url.removeprefix(self._origin)
            self._is_read = content is None
            if answer.headers["content-type"].startswith("text/html"):
                self._page = Looked(self.body.decode())


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """The sample of `make run`, once its clients have gone; the group's clients traced, as most fleets do."""
    with running_stack(tmp_path / "store") as stack:
        with sample_clients(stack) as (client, producer, consumer):
            prepare(client, producer)
            Traffic(producer, consumer, 0.0).step(0.0)
            wait_until(lambda: client.consumer_group(RETRYING_GROUP).retry_count == 2, "the retries are due")
            wait_until(lambda: client.consumer_group(RETRYING_GROUP).dead_letter_count == 1, "there is a dead letter")
            (order,) = client.by_key(ORDERS, FAILED_KEY)
            end = ("SubAfter", "R9", order.unique_key, 5_000, "false", FAILED_KEY, 1, 0, RETRYING_GROUP)
            begun = order.store_time.timestamp() * 1000
            begin = ("SubBefore", round(begun), "", RETRYING_GROUP, "R9", order.unique_key, 0, FAILED_KEY)
            body = b"".join(FIELD_END.join(str(each).encode() for each in entry) + ENTRY_END for entry in (begin, end))
            producer.append([NewMessage(TRACE_TOPIC, body, [order.unique_key])])
        stack.wait_until_built()
        yield stack


def audit_lines(stack: Stack) -> list[dict[str, Any]]:
    lines = (line for line in stack.log().splitlines() if '"audit.console"' in line)
    return [json.loads(line[line.index("{") :]) for line in lines]


def taken(consumer: Consumer) -> bytes:
    """The body of the next message, acknowledged."""
    delivery = consumer.take(60.0)
    assert delivery is not None
    delivery.ack().result(WAIT_SECONDS_MAX)
    return delivery.message.body


def test_an_operator_ends_an_incident_in_the_console_alone(stack: Stack) -> None:
    see, read, cause, members, keep, resend, drop, skip, again, recall, end, fall = steps()
    operator = Operator(stack.addresses["console"])
    with QueryClient(stack.addresses["gateway"]) as client:

        def lag_of(group: str) -> int:
            return sum(each.lag_count for each in client.consumer_group(group).queues)

        def bodies(topic: str, key: str) -> list[bytes]:
            return [each.body for each in client.by_key(topic, key)]

        (order,) = client.by_key(ORDERS, FAILED_KEY)
        assert (lag_of(BEHIND_GROUP), lag_of(RETRYING_GROUP)) == (16, 2)

        operator.do(see)
        assert operator.url == f"/groups/{RETRYING_GROUP}"
        operator.sees("2 retries, 1 dead letter")
        operator.do(read)
        operator.sees("Given up: stored as a dead letter")
        operator.do(cause)
        assert order.offset_msg_id in operator.url
        operator.sees(rf"Handled by {RETRYING_GROUP} \S+ took too long · 5\.0 s told by the client")
        operator.do(members)
        assert operator.url == f"/groups/{RETRYING_GROUP}/members"
        operator.do(keep)
        (letter,) = map(json.loads, operator.body.splitlines())
        assert letter["body"].encode() == order.body
        assert audit_lines(stack) == []

        operator.do(resend)
        wait_until(lambda: bodies(ORDERS, FAILED_KEY) == [order.body] * 2, "the order is there again")
        operator.do(drop)
        wait_until(lambda: client.consumer_group(RETRYING_GROUP).dead_letter_count == 0, "the dead letters are gone")
        stack.wait_until_built()

        operator.do(skip)
        (topic,) = client.topics(topic=ORDERS)
        ends = {(each.broker_name, each.queue_id): each.max_offset for each in topic.queues}
        queues = [each for each in client.consumer_group(BEHIND_GROUP).queues if each.topic == ORDERS]
        assert {(each.broker_name, each.queue_id): each.consumer_offset for each in queues} == {
            queue: ends[queue] for queue in ends if ends[queue]
        }
        assert lag_of(BEHIND_GROUP) == 0

        with Consumer(stack.addresses["gateway"], BEHIND_GROUP, {ORDERS: "*"}) as mended:
            assert mended.take(0.0) is None  # it lives
            wait_until(lambda: client.consumer_group(BEHIND_GROUP).members, "the group's consumer lives")
            operator.do(again)
            assert taken(mended) in bodies(ORDERS, AGAIN_KEY)

        waiting = {each.unique_key for each in client.scheduled_messages()}
        soonest = min(client.scheduled_messages(), key=lambda each: each.delivery_time)
        paid = len(bodies("Payments", PAYMENT_KEY))
        operator.do(recall)
        wait_until(
            lambda: {each.unique_key for each in client.scheduled_messages()} == waiting - {soonest.unique_key},
            "the message is taken back",
        )
        assert len(list(client.pending_transactions())) == 1
        operator.do(end)
        wait_until(lambda: list(client.pending_transactions()) == [], "the transaction has ended")
        assert len(bodies("Payments", PAYMENT_KEY)) == paid

        with Consumer(stack.addresses["gateway"], RETRYING_GROUP, {ORDERS: "*"}) as mended:
            assert taken(mended) == order.body
        # And one over remoting, which reads the retries of such consumers.
        retries = QueuePosition(pull_retry_topic_of(RETRYING_GROUP), 0, 2, order.broker_name)
        client.commit_offsets(RETRYING_GROUP, [retries])
        wait_until(lambda: lag_of(RETRYING_GROUP) == lag_of(BEHIND_GROUP) == 0, "nobody is behind")
        operator.do(fall)
        operator.sees("0 messages to consume, 0 in flight, 0 retries, 0 dead letters")
    assert [(line["action"], line["outcome"]) for line in audit_lines(stack)] == [
        (action, "OK")
        for action in (
            "resend-dead-letters",
            "drop-dead-letters",
            "reset-offset",
            "redeliver",
            "recall",
            "end-transaction",
        )
    ]
