"""`reput track`: what has become of a message for each consumer group."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import Exit, note, say_empty, usage_error, warn
from cli.find import forms_of, is_offset_msg_id, typed_id, why_no_key
from cli.options import BodyFormat, OutputFormat
from store.format.topic import TRACE_TOPIC

if TYPE_CHECKING:
    from reput_client import MessageTraces, MessageTracks, QueryClient, TraceEvent

    Ask = Callable[..., MessageTracks]

TIMEOUT_SECONDS = 10.0
LISTED_COUNT_MAX = 1_000
# Messages of one key: each costs a call that asks every shard.
MESSAGE_COUNT_MAX = 16
COLUMNS = ["consumer_group", "state", "delivery_attempts", "next_time", "client_id", "is_online", "copies"]
TRACE_COLUMNS = ["time", "event", "outcome", "group", "client_host", "cost_millis", "retry_count"]
NO_TRACE = "no trace of it was sent to {topic}, or it is no longer kept: that says nothing of consumers"


def track(
    *,
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="Any id or key, as for `reput find`.")] = "",
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only in this topic; needed with -i.")] = "",
    unique_key: Annotated[str, typer.Option("--unique-key", "-i", help="Instead of TEXT: the producer's id.")] = "",
    group: Annotated[str, typer.Option("--group", help="Only groups whose names hold this, ignoring case.")] = "",
    no_traces: Annotated[bool, typer.Option("--no-traces", help="Without what clients with tracing on told.")] = False,
    trace_topic: Annotated[
        str,
        typer.Option(
            "--trace-topic", help="Where their traces lie; default: as the gateway is set, RMQ_SYS_TRACE_TOPIC."
        ),
    ] = "",
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Show for each consumer group whether a message is consumed, in flight, retrying (how often, when next), dead or skipped.

    Below stands what clients of RocketMQ with tracing on told of it. A retry or a dead letter is followed to the message that
    was sent. Of a key with several messages the newest 16 are shown. Exit 1 when there is no such message, 3 when a shard did
    not answer.
    """
    from cli.client import query_client
    from cli.printing import print_rows

    if bool(text) == bool(unique_key) or (unique_key and not topic):
        usage_error("give an id or key, or --topic and --unique-key", "For example: reput track order-1001")
    with query_client(address, timeout) as client:
        ask = partial(
            client.track,
            group_contains=group,
            limit=LISTED_COUNT_MAX,
            with_traces=not no_traces,
            trace_topic=trace_topic,
        )
        answers, is_partial = (
            (_by_unique_key(ask, topic, unique_key), False)
            if unique_key
            else _found(client, ask, text, topic, {TRACE_TOPIC, trace_topic})
        )
    if not answers:
        say_empty(why_no_key(typed_id(text)) or "no message found")
        return Exit.PARTIAL if is_partial else Exit.NOTHING_FOUND
    found = Exit.PARTIAL if is_partial else Exit.FOUND
    if any(answer.has_more for answer in answers):
        warn(f"there are more than {LISTED_COUNT_MAX} groups: choose with --group TEXT")
    if len(answers) == 1 or output.is_table:
        for answer in answers:
            _print(answer, output)
        return found
    rows = [{"offset_msg_id": each.message.offset_msg_id} | row for each in answers for row in _rows(each)]
    messages = [_message_row(each) | {"state": each.state.name} | _traces_document(each.traces) for each in answers]
    print_rows("tracks", rows, ["offset_msg_id", *COLUMNS], output, {"messages": messages}, empty="no consumer group")
    return found


def _by_unique_key(ask: "Ask", topic: str, unique_key: str) -> "list[MessageTracks]":
    from reput_client import NotFoundError

    *others, last = forms_of(unique_key)
    for form in others:
        try:
            return [ask(topic=topic, unique_key=form)]
        except NotFoundError:
            continue
    return [ask(topic=topic, unique_key=last)]


def _found(
    client: "QueryClient", ask: "Ask", text: str, topic: str, trace_topics: set[str]
) -> "tuple[list[MessageTracks], bool]":
    """The tracks of the messages that `reput find` finds, each once, and whether a shard did not answer.

    The copies of a message lead to one original. What clients told of messages has their keys: it is left out unless it is
    asked for by its topic, or nothing else is found.
    """
    from reput_client import Completeness, InvalidRequestError, NotFoundError

    bare = typed_id(text)
    if is_offset_msg_id(bare):
        try:
            answer = ask(bare)
            if topic in ("", answer.message.topic):
                return [answer], False
        except (NotFoundError, InvalidRequestError):  # it may be a unique key
            pass
    answers: dict[str, MessageTracks] = {}
    is_partial = False
    for form in forms_of(text):
        pages = client.find(form, topic, page_size=MESSAGE_COUNT_MAX, max_matches=MESSAGE_COUNT_MAX)
        matches = list(pages)
        told_of = [match for match in matches if topic or match.message.topic not in trace_topics]
        for match in told_of or matches:
            answer = ask(match.message.offset_msg_id)
            answers.setdefault(answer.message.offset_msg_id, answer)
        if pages.completeness is Completeness.PARTIAL:
            is_partial = True
            warn("partial: a shard did not answer, so there may be more messages; `reput status` shows which")
        if answers:
            if pages.completeness is Completeness.TRUNCATED:
                note("there may be more messages: `reput find` shows them")
            break
    return list(answers.values()), is_partial


def _rows(answer: "MessageTracks") -> list[dict[str, Any]]:
    from cli.groups import track_row

    return [track_row(each) for each in answer.tracks]


def _message_row(answer: "MessageTracks") -> dict[str, Any]:
    from cli.messages import message_row

    row = message_row(answer.message, BodyFormat.AUTO, "base64")
    return {name: value for name, value in row.items() if not name.startswith("body")}


def _print(answer: "MessageTracks", output: OutputFormat) -> None:
    from cli.printing import print_rows
    from cli.times import iso_text

    message = answer.message
    due = iso_text(answer.due_time) if answer.due_time else None
    if output.is_table:
        until = f" until {due}" if due else ""
        print(
            f"{message.topic} queue {message.queue_id} offset {message.queue_offset} in {message.broker_name}, stored "
            f"{iso_text(message.store_time)}, {message.offset_msg_id}: {answer.state.name}{until}"
        )
        for each in answer.tracks:
            if each.reason:
                print(f"{each.consumer_group or 'consumer groups'}: {each.state.name}, {each.reason}")
    shown = _message_row(answer) if output is OutputFormat.JSON else {}
    more = {"message": shown, "state": answer.state.name, "due_time": due} | _traces_document(answer.traces)
    print_rows(
        "tracks",
        _rows(answer),
        COLUMNS,
        output,
        more,
        dropped_first=["is_online", "client_id"],
        empty="no consumer group",
    )
    if answer.traces is not None and output.is_table:
        _print_traces(answer.traces, output)


def _traces_document(traces: "MessageTraces | None") -> dict[str, Any]:
    if traces is None:
        return {}
    events = [_trace_row(each) for each in traces.events]
    told = {
        "topic": traces.topic,
        "damaged_count": traces.damaged_count,
        "has_more": traces.has_more,
        "problem": traces.problem,
    }
    return {"traces": {"events": events} | told}


def _trace_row(event: "TraceEvent") -> dict[str, Any]:
    from cli.times import iso_text

    time = event.begin_time or event.end_time
    return {
        "time": iso_text(time) if time else None,
        "end_time": iso_text(event.end_time) if event.end_time else None,
        "event": event.kind.name,
        "outcome": event.verdict or event.outcome.name,
        "group": event.group,
        "client_host": event.client_host,
        "cost_millis": None if event.cost is None else round(event.cost.total_seconds() * 1000),
        "retry_count": event.retry_count,
        "store_host": event.store_host,
        "offset_msg_id": event.offset_msg_id,
        "from_check": event.is_from_check,
    }


def _print_traces(traces: "MessageTraces", output: OutputFormat) -> None:
    from cli.printing import print_rows

    rows = [_trace_row(each) for each in traces.events]
    if rows:
        print("told by clients with tracing on")
    # Where a reason is known, none is guessed.
    known = traces.problem or (f"{traces.damaged_count} damaged entries" if traces.damaged_count else "")
    print_rows(
        "traces",
        rows,
        TRACE_COLUMNS,
        output,
        dropped_first=["retry_count", "client_host"],
        empty=known or NO_TRACE.format(topic=traces.topic or TRACE_TOPIC),
    )
    if rows and known:
        warn(f"traces: {known}")
    if traces.has_more:
        warn("traces: there are more than are read: the oldest are missing")
