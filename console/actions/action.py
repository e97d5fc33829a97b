"""An action: a form, what it will do, the confirmation, what it did.

    GET   /actions/NAME?...      the form, filled from the URL; a GET never does anything
    POST  its fields             what it will do (`plan`): asks, changes nothing
    POST  the confirmation       does what was shown (`act`), and writes an audit line

Each action sends the RPCs that the command sends, so the gateway's guard decides at that moment, once more, whether the caller
may.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from console.calls import Calls
from console.question import Question
from console.words import Words

# Of a table: what is shown of a plan.
SHOWN_ROW_COUNT = 200


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form.

    Attributes:
        name: of its value.
        label: for people.
        kind: `text`, `number`, `area`, `file`, `time`, `hidden` or `choice`.
        value: what it holds at first.
        choices: of `choice`: values and their texts, the default first.
        hint: what it means; may be empty.
        is_required: the browser wants a value.
    """

    name: str
    label: str
    kind: str = "text"
    value: str = ""
    choices: Sequence[tuple[str, str]] = ()
    hint: str = ""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """A name, a text, and where it leads; an empty link leads nowhere."""

    name: str
    text: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under heads; a cell is a text, or a Fact with a link and no name."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str | Fact]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What an action will do.

    Attributes:
        text: in a sentence.
        facts, table: the details.
        warning: what the reader may not expect; may be empty.
        command: for `act`; None: there is nothing to do.
        size_bytes: of the command; 0: no more than what was posted.
        answer: the plan as JSON.
    """

    text: str
    facts: Sequence[Fact] = ()
    table: Table | None = None
    warning: str = ""
    command: Any = None
    size_bytes: int = 0
    answer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did.

    Attributes:
        text: in a sentence.
        facts, table: the details.
        onward: a link and its text, to what the reader does next; may be empty.
        is_whole: False: part of it was not done.
        answer: the same as JSON.
    """

    text: str
    facts: Sequence[Fact] = ()
    table: Table | None = None
    onward: tuple[str, str] = ("", "")
    is_whole: bool = True
    answer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Given:
    """What was posted: fields as a Question has them (of a repeated name all values, one a line), and files."""

    question: Question
    files: Mapping[str, bytes] = field(default_factory=dict)


class Action(Protocol):
    """One action."""

    @property
    def name(self) -> str:
        """Its name in its path."""

    @property
    def target(self) -> Sequence[str]:
        """The fields that name what is acted on, for the audit log."""

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """The RPCs that it sends, with requests that name what is acted on as far as it is known."""

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """The form."""

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """What it will do. StoreError when it cannot; nothing is changed."""

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """Do it. StoreError when it failed."""


def action_links(calls: Calls, *wanted: tuple[Action, Mapping[str, str]]) -> list[tuple[str, str]]:
    """The actions that the caller may do with what the fields name: their names and the links to their forms."""
    if not calls.acts:
        return []
    links = []
    for action, fields in wanted:
        question = Question(fields, {}, 0)
        if all(calls.may(method, request) for method, request in action.right(question)):
            links.append((action.name, question.link(f"/actions/{action.name}")))
    return links
