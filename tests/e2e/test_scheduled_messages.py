"""Messages that wait, through real processes: delay levels, times, recall, a kill of the service between."""

import os
import pathlib
import signal
import time

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.message.v1.message_pb2 import NewMessage, StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as pb
from services.calling.client import ServiceClient
from services.calling.commitlog import CommitLogClient
from services.convert import millis_to_timestamp, timestamp_to_millis
from services.rpcs import commitlog, consumequeue
from services.rpcs import schedule as rpc
from store.errors import ScheduledMessageNotFoundError, StoreError, TopicNotFoundError
from store.format.delivery.waiting_handles import RECALL, decode_handle
from tests.support.stack import HostedStack, Stack, hosted_stack, running_stack
from tests.support.waiting import wait_until

pytestmark = pytest.mark.life

TOPIC = "orders"
# The machine of the tests may be busy; the service needs milliseconds.
SECONDS_MAX = 30.0


class Services:
    """Clients of the services of a stack."""

    def __init__(self, stack: HostedStack | Stack) -> None:
        self.commitlog = CommitLogClient(stack.addresses["commitlog"])
        self.consumequeue = ServiceClient("consumequeue", stack.addresses["consumequeue"])
        self.schedule = ServiceClient("schedule", stack.addresses["schedule"])

    def status(self) -> pb.GetStatusResponse:
        """What the schedule service says of itself."""
        return self.schedule.call(rpc.GET_STATUS, pb.GetStatusRequest())

    def delivered(self) -> list[StoredMessage]:
        """The messages of the topic."""
        try:
            units = self.consumequeue.call(
                consumequeue.GET_QUEUE_UNITS, queue_pb.GetQueueUnitsRequest(topic=TOPIC, max_units=1_000)
            ).units
        except TopicNotFoundError:
            return []
        outcomes = self.commitlog.get_many([unit.commit_log_offset for unit in units])
        return [outcome for outcome in outcomes if not isinstance(outcome, StoreError)]

    def bodies(self) -> list[bytes]:
        """What was delivered, in order."""
        return [message.body for message in self.delivered()]

    def wait_for(self, count: int) -> None:
        """Until so many messages are delivered."""
        wait_until(lambda: len(self.delivered()) >= count, lambda: f"{count} messages, not {self.bodies()}")

    def close(self) -> None:
        """Close all."""
        for client in (self.commitlog, self.consumequeue, self.schedule):
            client.close()


def test_what_waits_comes_once_at_its_time_also_after_a_kill(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "store"
    with running_stack(store) as stack:
        services = Services(stack)
        wait_until(lambda: services.status().state == "serving", "the service has its state")
        now_millis = time.time_ns() // 1_000_000
        messages = [
            NewMessage(topic=TOPIC, queue_id=0, body=b"level", unique_key="level", delay_level=1),
            NewMessage(
                topic=TOPIC,
                queue_id=0,
                body=b"time",
                unique_key="time",
                delivery_time=millis_to_timestamp(now_millis + 2_500),
            ),
            NewMessage(
                topic=TOPIC,
                queue_id=0,
                body=b"recalled",
                unique_key="recalled",
                delivery_time=millis_to_timestamp(now_millis + 60_000),
            ),
            NewMessage(
                topic=TOPIC,
                queue_id=0,
                body=b"killed",
                unique_key="killed",
                delivery_time=millis_to_timestamp(now_millis + 8_000),
            ),
        ]
        results = services.commitlog.call(
            commitlog.APPEND_MESSAGES, log_pb.AppendMessagesRequest(messages=messages)
        ).results
        handle = decode_handle(RECALL, results[2].recall_handle, "recall_handle")
        request = pb.RecallMessageRequest(
            topic=handle.topic, unique_key=handle.unique_key, delivery_time=millis_to_timestamp(handle.number)
        )
        assert services.schedule.call(rpc.RECALL_MESSAGE, request).offset_msg_id == results[2].offset_msg_id
        with pytest.raises(ScheduledMessageNotFoundError):
            services.schedule.call(rpc.RECALL_MESSAGE, request)
        listed = services.schedule.call(rpc.LIST_SCHEDULED_MESSAGES, pb.ListScheduledMessagesRequest(topic=TOPIC))
        assert [one.unique_key for one in listed.messages][-1] == "killed"
        assert listed.messages[-1].recall_handle == results[3].recall_handle
        services.wait_for(2)
        assert sorted(services.bodies()) == [b"level", b"time"]
        for message in services.delivered():
            due_millis = now_millis + (1_000 if message.body == b"level" else 2_500)
            assert timestamp_to_millis(message.store_time, "store_time") >= due_millis
        status = services.status()
        assert (status.delivered_count, status.recalled_count, status.timer_count) == (2, 1, 1)
        os.kill(stack.children()["schedule_svc"], signal.SIGKILL)
        stack.process.wait(SECONDS_MAX)
        services.close()
    with hosted_stack(store) as stack:
        services = Services(stack)
        services.wait_for(3)
        assert sorted(services.bodies()) == [b"killed", b"level", b"time"]
        (killed,) = [message for message in services.delivered() if message.body == b"killed"]
        assert timestamp_to_millis(killed.store_time, "store_time") >= now_millis + 8_000
        assert services.status().timer_count == 0
        services.close()


def test_a_store_that_is_only_read_shows_what_waits(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "store"
    with hosted_stack(store) as stack:
        services = Services(stack)
        waits = NewMessage(topic=TOPIC, body=b"a", unique_key="a", delay_level=18)
        services.commitlog.call(commitlog.APPEND_MESSAGES, log_pb.AppendMessagesRequest(messages=[waits]))
        services.close()
    with hosted_stack(store, read_only=True) as stack:
        services = Services(stack)
        everything = pb.ListScheduledMessagesRequest()
        wait_until(
            lambda: len(services.schedule.call(rpc.LIST_SCHEDULED_MESSAGES, everything).messages) == 1,
            "the message is listed",
        )
        log_status = services.commitlog.call(commitlog.GET_STATUS, log_pb.GetStatusRequest())
        assert log_status.log_end_offset == services.status().next_offset
        services.close()
