"""The sample of `reput demo` fills every page: groups, retries, dead letters, messages that wait, an open transaction."""

import contextlib
from pathlib import Path

from cli.demo import _show
from cli.demo_traffic import (
    BEHIND_GROUP,
    ORDERS,
    REMINDERS,
    RETRYING_GROUP,
    TRACED_KEY,
    TRANSACTION_SECONDS,
    VISIT_GROUP,
    Traffic,
    audit_once,
    prepare,
)
from console.pages.reports import Reports
from reput_client import ReputClientError, TransactionResolution
from tests.support.demo_sample import sample_clients
from tests.support.stack import hosted_stack
from tests.support.waiting import wait_until


def test_the_sample_has_something_for_every_page_and_is_known_again(tmp_path: Path) -> None:
    with hosted_stack(tmp_path / "store") as stack:
        with sample_clients(stack) as (client, producer, consumer):
            (reports := tmp_path / "reports").mkdir()
            assert audit_once(tmp_path / "store", reports)
            (report,) = Reports(reports).newest_first()
            assert (report.job, report.problem, report.finding_count, report.findings) == ("audit", "", 0, ())
            for _ in range(2):  # a second start makes no second dead letter
                prepare(client, producer)
            traffic = Traffic(producer, consumer, 0.0)

            def goes_on() -> bool:
                traffic.step(15.0)  # the top of a wave
                return client.consumer_group(VISIT_GROUP).queues and any(
                    queue.consumer_offset for queue in client.consumer_group(VISIT_GROUP).queues
                )

            wait_until(goes_on, "the consumer to consume")
            orders = sum(queue.max_offset for topic in client.topics(topic=ORDERS) for queue in topic.queues)
            behind = client.consumer_group(BEHIND_GROUP)
            assert sum(queue.lag_count for queue in behind.queues) == orders == 16
            wait_until(lambda: client.consumer_group(RETRYING_GROUP).retry_count == 2, "the retries to be due")
            assert client.consumer_group(RETRYING_GROUP).dead_letter_count == 1
            assert {each.topic for each in client.scheduled_messages()} == {REMINDERS}
            assert [each.topic for each in client.pending_transactions()] == ["Payments"]
            (order,) = [each for each in client.by_key(ORDERS, TRACED_KEY) if each.tags == "created"]
            told = client.track(order.offset_msg_id, with_traces=True).traces
            assert told is not None
            assert [(each.kind.name, each.group) for each in told.events] == [
                ("SEND", "checkout"),
                ("CONSUME", RETRYING_GROUP),
            ]
            assert told.damaged_count == 0
            # After one was ended in the console, its producer's verdict failed each time, and none was opened any more.
            (pending,) = client.pending_transactions()
            client.end_transaction(pending.transaction_id, TransactionResolution.COMMIT)
            wait_until(lambda: list(client.pending_transactions()) == [], "the transaction has ended")
            with contextlib.suppress(ReputClientError):
                traffic.step(15.0 + TRANSACTION_SECONDS)
            traffic.step(15.5 + TRANSACTION_SECONDS)
            wait_until(lambda: len(list(client.pending_transactions())) == 1, "another one is open")
        assert _show(stack.background._stack, read_only=False)  # so that its traffic goes on
