"""A pulled message that is sent back comes again when its delay level is over, with its track, over all services."""

from pathlib import Path

from reput_client import (
    AdminClient,
    Producer,
    PullConsumer,
    PullConsumerSettings,
    QueryClient,
    SendBackOutcome,
    TrackState,
)
from tests.support.stack import hosted_stack
from tests.support.waiting import wait_until

QUICK = PullConsumerSettings(members_seconds=0.2, commit_seconds=0.2, rebalance_seconds=0.5)


def test_a_message_that_is_sent_back_comes_again_with_one_attempt_more_until_it_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    with hosted_stack(tmp_path / "store") as stack:
        target = stack.addresses["gateway"]
        with AdminClient(target) as admin, QueryClient(target) as client:
            admin.create_topic("Orders", queue_count=1)
            client.update_consumer_group("billing", delivery_attempts_max=3)
        with Producer(target) as producer:
            receipt = producer.send_and_wait("Orders", b"once more", keys=["k"])

        def state() -> TrackState:
            with QueryClient(target) as client:
                tracks = client.track(offset_msg_id=receipt.offset_msg_id).tracks
            return next(each.state for each in tracks if each.consumer_group == "billing")

        with PullConsumer(target, "billing", {"Orders": "*"}, settings=QUICK) as consumer:
            seen: list[tuple[str, int]] = []
            outcomes: list[SendBackOutcome] = []
            while len(outcomes) < 3:
                for message in consumer.poll(timeout_seconds=60):
                    assert message.body == b"once more"
                    assert message.keys == ("k",)
                    seen.append((message.topic, message.reconsume_times))
                    outcomes += consumer.send_back([message], delay_level=1)
                    wait_until(lambda: state() in (TrackState.RETRYING, TrackState.DEAD_LETTER), state)
            consumer.commit()
        assert seen == [("Orders", 0), ("%RETRY%billing", 1), ("%RETRY%billing", 2)]
        assert outcomes == [SendBackOutcome.OK, SendBackOutcome.OK, SendBackOutcome.DEAD_LETTER]
        wait_until(lambda: state() is TrackState.DEAD_LETTER, state)
