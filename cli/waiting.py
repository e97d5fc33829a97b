"""`reput scheduled`, `reput transactions` and `reput recall`: messages that wait."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import PARTIAL, Exit, usage_error, warn
from cli.options import OutputFormat

if TYPE_CHECKING:
    from reput_client import PendingTransaction, ScheduledMessage, TransactionResolution

TIMEOUT_SECONDS = 10.0
LIST_MAX_DEFAULT = 64
# Columns that a narrow terminal leaves out, the first one first.
DROPPED_FIRST = ("broker_name", "check_count", "delay_level", "next_check_time", "unique_key")
SCHEDULED_COLUMNS = ["delivery_time", "topic", "unique_key", "delay_level", "broker_name", "offset_msg_id"]
TRANSACTION_COLUMNS = [
    "born_time",
    "topic",
    "unique_key",
    "check_count",
    "next_check_time",
    "broker_name",
    "transaction_id",
]

OnlyTopic = Annotated[str, typer.Option("--topic", "-t", help="Only messages of this topic.")]
ListMax = Annotated[int, typer.Option("--maxNum", "-m", min=1, help="At most this many.")]


def scheduled(
    *,
    topic: OnlyTopic = "",
    max_messages: ListMax = LIST_MAX_DEFAULT,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List the messages that wait for a time, in each shard the next due one first. JSON has the handle that recalls each."""
    from cli.client import query_client
    from cli.printing import print_rows
    from reput_client import Completeness

    with query_client(address, timeout) as client:
        pages = client.scheduled_messages(topic, max_count=max_messages)
        rows = [_scheduled_row(each) for each in pages]
    print_rows("messages", rows, SCHEDULED_COLUMNS, output, dropped_first=DROPPED_FIRST, empty="no message waits")
    if pages.completeness is Completeness.PARTIAL:
        warn(PARTIAL)
        return Exit.PARTIAL
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def transactions(
    *,
    topic: OnlyTopic = "",
    commit: Annotated[
        str, typer.Option("--commit", metavar="ID", help="Commit the transaction with this transaction_id.")
    ] = "",
    rollback: Annotated[
        str, typer.Option("--rollback", metavar="ID", help="Roll back the transaction with this transaction_id.")
    ] = "",
    max_messages: ListMax = LIST_MAX_DEFAULT,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """List the half messages that wait for a verdict, in each shard the oldest first; or end one of their transactions.

    Exit 1 when there is none, also when the transaction that was named has ended.
    """
    from cli.client import query_client
    from cli.printing import print_rows
    from reput_client import Completeness, TransactionResolution

    if commit and rollback:
        usage_error("give --commit or --rollback, not both")
    if commit or rollback:
        verdict = TransactionResolution.COMMIT if commit else TransactionResolution.ROLLBACK
        return _end(commit or rollback, verdict, topic, output, address, timeout)
    with query_client(address, timeout) as client:
        pages = client.pending_transactions(topic, max_count=max_messages)
        rows = [_transaction_row(each) for each in pages]
    print_rows(
        "transactions", rows, TRANSACTION_COLUMNS, output, dropped_first=DROPPED_FIRST, empty="no transaction waits"
    )
    if pages.completeness is Completeness.PARTIAL:
        warn(PARTIAL)
        return Exit.PARTIAL
    return Exit.FOUND if rows else Exit.NOTHING_FOUND


def recall(
    *,
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="The recall_handle of `reput send`.")],
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Take back a message that waits for its time: no consumer gets it. Exit 1 when it was delivered or recalled before."""
    from cli.client import query_client
    from cli.printing import print_rows

    with query_client(address, timeout) as client:
        try:
            unique_key = client.recall(handle)
        except ValueError as error:
            usage_error(str(error))
    print_rows("recalled", [{"unique_key": unique_key}], ["unique_key"], output)
    return Exit.FOUND


def _end(
    transaction_id: str,
    verdict: "TransactionResolution",
    topic: str,
    output: OutputFormat,
    address: str,
    timeout: float,
) -> int:
    from cli.client import query_client
    from cli.messages import receipt_row
    from cli.printing import print_rows

    with query_client(address, timeout) as client:
        try:
            receipt = client.end_transaction(transaction_id, verdict, topic=topic, is_from_check=True)
        except ValueError as error:
            usage_error(str(error))
    row: dict[str, Any] = {"resolution": verdict.name}
    if receipt is not None:
        row |= receipt_row(receipt)
    print_rows("transactions", [row], list(row), output)
    return Exit.FOUND


def _scheduled_row(message: "ScheduledMessage") -> dict[str, Any]:
    from cli.times import iso_text

    return {
        "delivery_time": iso_text(message.delivery_time),
        "topic": message.topic,
        "unique_key": message.unique_key,
        "delay_level": message.delay_level,
        "broker_name": message.broker_name,
        "offset_msg_id": message.offset_msg_id,
        "recall_handle": message.recall_handle,
    }


def _transaction_row(half: "PendingTransaction") -> dict[str, Any]:
    from cli.times import iso_text

    return {
        "born_time": iso_text(half.born_time),
        "topic": half.topic,
        "unique_key": half.unique_key,
        "check_count": half.check_count,
        "next_check_time": iso_text(half.next_check_time) if half.next_check_time else None,
        "producer_group": half.producer_group,
        "broker_name": half.broker_name,
        "offset_msg_id": half.offset_msg_id,
        "transaction_id": half.transaction_id,
    }
