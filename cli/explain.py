"""`reput explain`: how a query was answered, file by file and step by step."""

import dataclasses
import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import Exit, say_empty, usage_error, warn
from cli.find import typed_id
from cli.messages import MESSAGES_DEFAULT, PAGE_SIZE_MAX, TIMEOUT_SECONDS, window
from cli.options import OutputFormat
from cli.terminal import one_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from reput_client import Explanation
    from reput_client.querying.explanation import Lookup, ShardExplanation
    from reput_client.querying.question import Cursor, Question


def explain(
    *,
    text: Annotated[str, typer.Argument(help="Any id or key, as for `reput find`.")] = "",
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic name.")] = "",
    key: Annotated[str, typer.Option("--msgKey", "-k", help="Business key, as for queryMsgByKey.")] = "",
    unique_key: Annotated[
        str, typer.Option("--uniqueKey", "-u", help="The producer's id, as for queryMsgByUniqueKey.")
    ] = "",
    offset_msg_id: Annotated[str, typer.Option("--msgId", "-i", help="offsetMsgId, as for queryMsgById.")] = "",
    queue_id: Annotated[int | None, typer.Option("--queueId", help="Queue, as for queryMsgByOffset.")] = None,
    queue_offset: Annotated[int, typer.Option("--offset", help="Position in that queue.")] = 0,
    broker_name: Annotated[str, typer.Option("--brokerName", help="The shard, for -i and --queueId.")] = "",
    begin: Annotated[str | None, typer.Option("--begin", "-b", help="Stored at or after this.")] = None,
    end: Annotated[str | None, typer.Option("--end", "-e", help="Stored at or before this.")] = None,
    max_messages: Annotated[
        int, typer.Option("--maxNum", "-m", min=1, max=PAGE_SIZE_MAX, help="Messages of the page to explain.")
    ] = MESSAGES_DEFAULT,
    page_token: Annotated[str, typer.Option("--pageToken", help="Explain the page that begins at this token.")] = "",
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="In the table also each file and lookup that led to no message.")
    ] = False,
    output: options.Output = OutputFormat.TABLE,
    read_from: options.ReadFromOption = options.ReadFromName.DEFAULT,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Explain how a query is answered: index files, candidates, what was rejected and why, bytes and time.

    One of TEXT, -k, -u, -i and --queueId says which query. Times are epoch milliseconds, ISO-8601, `now`, or
    relative (-2h). -o jsonl prints a line for each shard.
    """
    from cli import printing
    from cli.client import query_client
    from reput_client import Completeness, NotFoundError, queries

    text, unique_key, offset_msg_id = typed_id(text), typed_id(unique_key), typed_id(offset_msg_id)
    given = [text, key, unique_key, offset_msg_id, "" if queue_id is None else "queue"]
    if sum(map(bool, given)) != 1:
        usage_error("name one query: TEXT, -k KEY, -u UNIQUE_KEY, -i MSG_ID or --queueId N", "For example: -t T -k KEY")
    if (key or unique_key or queue_id is not None) and not topic:
        usage_error("this query needs -t TOPIC", "`reput topics` lists the topics that are there.")
    if (begin or end) and not (text or key):
        usage_error("--begin and --end are for TEXT and -k")
    first, last = window(begin, end)
    query: Cursor[Any] | Question[Any]
    if text:
        query = queries.find(text, topic, first, last, page_size=max_messages, page_token=page_token)
    elif key:
        query = queries.by_key(topic, key, first, last, page_size=max_messages, page_token=page_token)
    elif unique_key:
        query = queries.by_unique_key(topic, unique_key, page_size=max_messages, page_token=page_token)
    elif offset_msg_id:
        query = queries.by_id(offset_msg_id, topic=topic, broker_name=broker_name)
    else:
        assert queue_id is not None, "one query was named"
        query = queries.by_offset(
            topic, queue_id, queue_offset, broker_name, page_size=max_messages, page_token=page_token
        )
    with query_client(address, timeout, read_from.value) as client:
        answer = client.explain(query)
    document = _document(answer)
    if output is OutputFormat.CSV:
        usage_error("an explanation is a tree: it has no CSV", "Give -o json or -o jsonl.")
    if output is OutputFormat.JSON:
        printing.print_json(document)
    elif output is OutputFormat.JSONL:
        printing.print_jsonl(document["shards"])
    else:
        for line in explanation_lines(document, folded=not (show_all or output is OutputFormat.WIDE)):
            print(line)
    if answer.error is not None:
        warn(f"the query fails: {answer.error.message}")
        return Exit.NOTHING_FOUND if isinstance(answer.error, NotFoundError) else Exit.UNAVAILABLE
    if answer.completeness is Completeness.PARTIAL:
        warn("the query's answer is partial: a shard's error says why")
        return Exit.PARTIAL
    if not answer.message_count:
        say_empty("the query finds no message")
        return Exit.NOTHING_FOUND
    return Exit.FOUND


def _document(answer: "Explanation") -> dict[str, Any]:
    """The answer with its fields by their names in the contract."""
    document: dict[str, Any] = {
        "message_count": answer.message_count,
        "completeness": answer.completeness.name if answer.completeness is not None else "UNSPECIFIED",
        "next_page_token": answer.next_page_token,
        "elapsed_micros": answer.elapsed_micros,
        "shards": [_shard(shard) for shard in answer.shards],
    }
    if answer.error is not None:
        document["error"] = answer.error.message
    return document


def _shard(shard: "ShardExplanation") -> dict[str, Any]:
    row: dict[str, Any] = {"broker_name": shard.broker_name}
    if shard.error is not None:
        row["error"] = shard.error.message
    if shard.replicas:
        row["replicas"] = list(shard.replicas)
        row["known_lag_bytes"] = shard.known_lag_bytes
    if shard.staleness is not None:
        row["staleness_seconds"] = shard.staleness.total_seconds()
    row["elapsed_micros"] = shard.elapsed_micros
    row["steps"] = [_fields(step) for step in shard.steps]
    row["lookups"] = [_lookup(lookup) for lookup in shard.lookups]
    if shard.omitted_lookup_count:
        row["omitted_lookup_count"] = shard.omitted_lookup_count
    return row


def _lookup(lookup: "Lookup") -> dict[str, Any]:
    row = _fields(lookup, leave_out=("visits", "rejected"))
    row["visits"] = [_fields(visit) for visit in lookup.visits]
    row["rejected"] = [_fields(rejected) for rejected in lookup.rejected]
    return row


def _fields(value: "DataclassInstance", leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """All fields of a flat value, also those that are 0; an absent one is an empty text."""
    row: dict[str, Any] = {}
    for name in (each.name for each in dataclasses.fields(value) if each.name not in leave_out):
        field = getattr(value, name)
        row[name] = "" if field is None else field.name.lower() if isinstance(field, enum.Enum) else field
    return row


def explanation_lines(document: dict[str, Any], *, folded: bool) -> Iterator[str]:
    """For people.

    Args:
        document: the answer.
        folded: files and lookups that led to no candidate are counted, unless there is only one of them.
    """
    yield (
        f"{document['message_count']} messages, {document['completeness']}, {document['elapsed_micros'] / 1000:.2f} ms"
        + (", more pages follow" if document["next_page_token"] else "")
    )
    for shard in document["shards"]:
        yield f"shard {one_line(shard['broker_name'])}: {shard['elapsed_micros'] / 1000:.2f} ms"
        if "error" in shard:
            yield f"  error: {one_line(shard['error'])}"
        for step in shard["steps"]:
            yield (
                f"  {step['name']:<12} {step['call_count']} calls, {step['item_count']} items, "
                f"{step['message_bytes']} bytes of messages, {step['elapsed_micros'] / 1000:.2f} ms"
            )
        fruitless = [lookup for lookup in shard["lookups"] if not lookup["candidate_count"]]
        is_folded = folded and len(fruitless) > 1
        for lookup in shard["lookups"]:
            if lookup["candidate_count"] or not is_folded:
                yield from _lookup_lines(lookup, folded=folded)
        if is_folded:
            yield f"  {_counted(fruitless, 'lookups')} led to no candidate; --all shows them"
        if shard.get("omitted_lookup_count"):
            yield f"  and {shard['omitted_lookup_count']} more lookups"


def _lookup_lines(lookup: dict[str, Any], *, folded: bool) -> Iterator[str]:
    name = one_line(f"{lookup['topic']}#{lookup['key']}")
    if lookup["passed_over"]:
        yield f"  {name}: hash {lookup['key_hash']}, not asked: its {lookup['passed_over']} rules a match out"
        return
    yield (
        f"  {name}: hash {lookup['key_hash']}, slot {lookup['slot']} of {lookup['slot_count']}, "
        f"{lookup['round_count']} rounds, {lookup['read_bytes']} bytes, {lookup['search_micros'] / 1000:.2f} ms inside"
    )
    yield (
        f"    {lookup['candidate_count']} candidates: {lookup['match_count']} match, {lookup['rejected_count']} rejected, "
        f"{lookup['unread_count']} not read"
    )
    fruitless = [visit for visit in lookup["visits"] if not visit["candidate_count"] and not visit["damaged"]]
    is_folded = folded and len(fruitless) > 1
    for visit in lookup["visits"]:
        if is_folded and visit in fruitless:
            continue
        if visit["passed_over"]:
            yield f"    file {visit['name']}: passed over by {visit['passed_over']}"
        else:
            yield (
                f"    file {visit['name']}: chain of {visit['chain_entry_count']}, {visit['same_hash_count']} with the "
                f"hash, {visit['outside_count']} out of window, {visit['candidate_count']} candidates"
                + (", damaged" if visit["damaged"] else "")
            )
    if is_folded:
        yield f"    {_counted(fruitless, 'files')} have no candidate"
    for rejected in lookup["rejected"]:
        reason = rejected["reason"].replace("_", " ")
        yield f"    rejected {rejected['commit_log_offset']}: {reason}: {one_line(rejected['detail'])}"


def _counted(parts: list[dict[str, Any]], noun: str) -> str:
    """`23 files (20 passed over by filter, 1 by time)`."""
    counts: dict[str, int] = {}
    for part in parts:
        if part["passed_over"]:
            counts[part["passed_over"]] = counts.get(part["passed_over"], 0) + 1
    reasons = [f"{count} passed over by {reason}" for reason, count in sorted(counts.items())]
    return f"{len(parts)} {noun}" + (f" ({', '.join(reasons)})" if reasons else "")
