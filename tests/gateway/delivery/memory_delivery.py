"""The port of delivery over messages in memory: what the consumer service of a shard does, in few lines and without a disk."""

import queue
import threading
import time
from collections import defaultdict

from gateway.ports.delivery import (
    Pulled,
)
from gateway.ports.groups import default_settings
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import millis_to_timestamp
from store.errors import (
    GroupNotFoundError,
    IllegalFilterError,
    InvalidArgumentError,
    InvalidReceiptHandleError,
    ReceiptHandleNotFoundError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from store.format.delivery.receipt_handle import HandlePayload, encode_part, encode_payload
from store.format.properties import LITE_TOPIC
from store.format.topic import lite_queue_name

QUEUE_COUNT = 4


def pulled_of(messages, next_offset, min_offset, max_offset, status, **more):
    """What a pull has found."""
    answer = pb.PullMessagesResponse(
        next_offset=next_offset, min_offset=min_offset, max_offset=max_offset, status=status, **more
    )
    return Pulled(answer, messages)


class MemoryDelivering:
    """Delivering over one shard in memory. Answers come in the thread of the caller, unless `hold` is on.

    Attributes:
        pops: the questions so far.
        kept: the clients of each KeepClients.
        confirmed: the handles of deliveries whose clients have them.
        ended: the clients that have ended.
        is_down: every call fails.
        deleted: topics that there are no more.
        begun: the groups that have begun, where they begin at the end; None: all have.
        seen_offset: what pulls have seen of the log (bytes); None: they do not say.
        synced: the questions about lite topics so far.
        sync_error: what they are answered with; None: they are taken.
        lost: lite topics that others own, which they are answered with.
    """

    def __init__(self, broker_name="broker-a"):
        self.broker_name = broker_name
        self.messages = defaultdict(list)  # by topic and queue
        self.next_offsets = defaultdict(int)  # by group, topic and queue
        self.positions = {}
        self.leases = {}  # by handle: group, message, attempt, end
        self.again = defaultdict(list)  # by group and topic: message, attempt
        self.groups = {}
        self.pops = []
        self.kept = []
        self.confirmed = []
        self.ended = []
        self.given_back = []
        self.suspended = []
        self.dead = []
        self.is_down = False
        self.deleted = set()
        self.begun = None
        self.seen_offset = None
        self.synced = []
        self.sync_error = None
        self.lost = []
        self.wanted = defaultdict(set)  # by group and client: lite topics
        self.held = None
        self._numbers = 0
        self._streams = []
        self._lock = threading.RLock()

    # What tests do.

    def store(self, topic, body, *, queue_id=0, **fields):
        """Append a message; followers hear of it."""
        with self._lock:
            messages = self.messages[topic, queue_id]
            stored = StoredMessage(
                topic=topic,
                queue_id=queue_id,
                queue_offset=len(messages),
                body=body,
                unique_key=f"{topic}-{queue_id}-{len(messages)}",
                store_time=millis_to_timestamp(1_700_000_000_000),
                born_time=millis_to_timestamp(1_700_000_000_000),
                **fields,
            )
            messages.append(stored)
        self.announce(pb.WatchArrivalsResponse(topics=[topic]))
        return stored

    def store_lite(self, topic, lite_topic, body, *clients):
        """Append a message of a lite topic; these clients, group and id, have news."""
        with self._lock:
            messages = self.messages[lite_queue_name(topic, lite_topic), 0]
            stored = StoredMessage(
                topic=topic,
                body=body,
                queue_offset=len(messages),
                properties={LITE_TOPIC: lite_topic},
                unique_key=f"{lite_topic}-{len(messages)}",
            )
            messages.append(stored)
        news = [pb.LiteClient(consumer_group=group, topic=topic, client_id=client_id) for group, client_id in clients]
        self.announce(pb.WatchArrivalsResponse(topics=[topic], lite_clients=news))
        return stored

    def announce(self, arrivals):
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.put(arrivals)

    def hold(self):
        """Keep the answers of pops until `release`."""
        self.held = []

    def release(self):
        held, self.held = self.held, None
        for answer in held:
            answer()

    def expire(self):
        """The time of all that is in flight is over."""
        with self._lock:
            for handle in list(self.leases):
                self._return(handle, is_attempt=True)

    def handle_of(self, group, topic, queue_id=0, queue_offset=0):
        """A new handle."""
        self._numbers += 1
        payload = encode_payload(HandlePayload(group, topic, queue_id, queue_offset, self._numbers, 0))
        return ".".join(map(encode_part, (self.broker_name.encode(), payload, b"signed")))

    # The port.

    def pop(self, question, seconds, then):
        def answer():
            with self._lock:
                self.pops.append(question)
                if self.is_down:
                    outcome = ServiceUnavailableError("down")
                elif question.topic in self.deleted:
                    outcome = TopicNotFoundError("deleted", isAbsent="true")
                elif self.begun is not None and question.known_only and question.consumer_group not in self.begun:
                    outcome = GroupNotFoundError("unknown", beginsAtEnd="true")
                else:
                    outcome = self._popped(question)
            then(outcome)

        if self.held is None:
            answer()
        else:
            self.held.append(answer)

    def ack(self, request, seconds, then):
        with self._lock:
            if self.is_down:
                outcome = ServiceUnavailableError("down")
            else:
                outcomes = [self._acked(request.consumer_group, handle) for handle in request.receipt_handles]
                outcome = pb.AckMessagesResponse(outcomes=outcomes)
        then(outcome)

    def change_invisible(self, request, seconds, then):
        handle, millis = request.receipt_handle, request.invisible_duration.ToMilliseconds()
        with self._lock:
            if handle not in self.leases:
                is_handle = handle.count(".") == 2
                then(ReceiptHandleNotFoundError("over") if is_handle else InvalidReceiptHandleError("none"))
                return
            group, stored, attempt, _ = self.leases.pop(handle)
            new = self._leased(group, stored, attempt, millis)
            if request.give_back:
                self.given_back.append(stored.unique_key)
            if request.suspend:
                self.suspended.append(stored.unique_key)
            if millis == 0:
                self._return(new, is_attempt=not request.give_back)
        then(pb.ChangeInvisibleDurationResponse(receipt_handle=new))

    def forward_to_dead_letters(self, request, seconds):
        handle = request.receipt_handle
        with self._lock:
            if handle not in self.leases:
                raise ReceiptHandleNotFoundError("over")
            self.dead.append(self.leases.pop(handle)[1].unique_key)

    def pull(self, question, seconds, then):
        with self._lock:
            messages = self.messages[question.topic, question.queue_id]
            is_known = any(stored for (topic, _), stored in self.messages.items() if topic == question.topic)
        end = len(messages)
        if question.topic in self.deleted:
            then(TopicNotFoundError("deleted", isAbsent="true"))
        elif not is_known:  # as the service: it does not know what is configured
            seen = {} if self.seen_offset is None else {"seenOffset": self.seen_offset}
            then(TopicNotFoundError("no message", **seen))
        elif question.queue_offset > end:
            then(pulled_of((), end, 0, end, gateway_pb.PULL_STATUS_OFFSET_ILLEGAL, seen_offset=self.seen_offset))
        elif question.queue_offset == end:
            then(pulled_of((), end, 0, end, gateway_pb.PULL_STATUS_NO_NEW_MSG, seen_offset=self.seen_offset))
        else:
            found = messages[question.queue_offset : question.queue_offset + question.max_messages]
            then(pulled_of(found, question.queue_offset + len(found), 0, end, gateway_pb.PULL_STATUS_FOUND))

    def commit_offset(self, consumer_group, topic, queue_id, queue_offset, seconds):
        self.positions[consumer_group, topic, queue_id] = queue_offset

    def offsets(self, consumer_group, topic, seconds):
        if self.is_down:
            raise ServiceUnavailableError("down")
        return {
            queue: at for (group, of, queue), at in self.positions.items() if (group, of) == (consumer_group, topic)
        }

    def keep_clients(self, clients, seconds, delivered=()):
        if self.is_down:
            raise ServiceUnavailableError("down")
        self.kept.append([(client.client_id, client.consumer_group) for client in clients])
        self.confirmed += delivered
        names = dict.fromkeys(client.consumer_group for client in clients)
        return [self.groups.get(name, default_settings(name)) for name in names]

    def sync_lite(self, request, seconds, then):
        with self._lock:
            self.synced.append(request)
            if self.is_down:
                outcome = ServiceUnavailableError("down")
            elif self.sync_error is not None:
                outcome = self.sync_error
            elif request.consumer_group not in self.groups:
                outcome = GroupNotFoundError("unknown")
            else:
                wanted = self.wanted[request.consumer_group, request.client_id]
                if request.action in (pb.LITE_ACTION_COMPLETE_ADD, pb.LITE_ACTION_COMPLETE_REMOVE):
                    wanted.clear()
                if request.action in (pb.LITE_ACTION_COMPLETE_ADD, pb.LITE_ACTION_PARTIAL_ADD):
                    wanted |= set(request.lite_topics)
                if request.action == pb.LITE_ACTION_PARTIAL_REMOVE:
                    wanted -= set(request.lite_topics)
                outcome = pb.SyncLiteSubscriptionResponse(lite_topic_count=len(wanted), lost_lite_topics=self.lost)
        then(outcome)

    def make_group(self, settings, caller, seconds):
        if self.is_down:
            raise ServiceUnavailableError("down")
        self.groups[settings.consumer_group] = settings

    def end_client(self, client_id, consumer_group, seconds, *, keep_locks=False, address=""):
        self.ended.append((client_id, consumer_group))

    def arrivals(self):
        stream = MemoryArrivals()
        stream.put(pb.WatchArrivalsResponse(all=True))
        with self._lock:
            self._streams.append(stream)
        return stream

    def break_streams(self):
        with self._lock:
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.cancel()

    # How it works; with the lock held.

    def _popped_lite(self, question):
        """All that is new of the lite topics of the client."""
        answer = pb.PopMessagesResponse()
        for lite_topic in sorted(self.wanted[question.consumer_group, question.client_id]):
            queue = lite_queue_name(question.topic, lite_topic)
            key = question.consumer_group, queue, 0
            for stored in self.messages[queue, 0][self.next_offsets[key] :]:
                handle = self.handle_of(question.consumer_group, queue, 0, stored.queue_offset)
                self.leases[handle] = question.consumer_group, stored, 1, time.time_ns() // 1_000_000 + 60_000
                answer.deliveries.add(message=stored, receipt_handle=handle, delivery_attempt=1)
            self.next_offsets[key] = len(self.messages[queue, 0])
        return answer

    def _popped(self, question):
        is_of_lite_topics = self.groups.get(question.consumer_group, pb.GroupSettings()).lite.bind_topic
        if is_of_lite_topics and not question.is_lite:
            return InvalidArgumentError("the group consumes lite topics", field="is_lite")
        if question.is_lite:
            return self._popped_lite(question)
        if question.filter.sql == "illegal":
            return IllegalFilterError("the filter cannot be read", expression="illegal")
        found = []
        again = self.again[question.consumer_group, question.topic]
        while again and len(found) < question.max_messages:
            found.append(again.pop(0))
        for queue_id in range(QUEUE_COUNT):
            key = question.consumer_group, question.topic, queue_id
            messages = self.messages[question.topic, queue_id]
            while self.next_offsets[key] < len(messages) and len(found) < question.max_messages:
                stored = messages[self.next_offsets[key]]
                self.next_offsets[key] += 1
                if question.filter.tags in ("*", stored.tags):
                    found.append((stored, 1))
        is_renewed = not question.HasField("invisible_duration")
        millis = 60_000 if is_renewed else question.invisible_duration.ToMilliseconds()
        answer = pb.PopMessagesResponse()
        for stored, attempt in found:
            handle = self._leased(question.consumer_group, stored, attempt, millis)
            until = millis_to_timestamp(self.leases[handle][3])
            answer.deliveries.add(
                message=stored, receipt_handle=handle, delivery_attempt=attempt, invisible_until=until
            )
        return answer

    def _leased(self, group, stored, attempt, millis):
        handle = self.handle_of(group, stored.topic, stored.queue_id, stored.queue_offset)
        self.leases[handle] = group, stored, attempt, time.time_ns() // 1_000_000 + millis
        return handle

    def _acked(self, group, handle):
        if handle.count(".") != 2 or (handle in self.leases and self.leases[handle][0] != group):
            return pb.AckMessagesResponse.OUTCOME_INVALID
        is_hidden = self.leases.pop(handle, None) is not None
        return pb.AckMessagesResponse.OUTCOME_OK if is_hidden else pb.AckMessagesResponse.OUTCOME_TOO_LATE

    def _return(self, handle, *, is_attempt):
        group, stored, attempt, _ = self.leases.pop(handle)
        self.again[group, stored.topic].append((stored, attempt + is_attempt))
        self.announce(pb.WatchArrivalsResponse(group_topics=[{"consumer_group": group, "topic": stored.topic}]))


class MemoryArrivals:
    """An ArrivalStream."""

    def __init__(self):
        self._arrivals = queue.SimpleQueue()
        self.put = self._arrivals.put

    def __iter__(self):
        while (arrivals := self._arrivals.get()) is not None:
            yield arrivals
        raise ServiceUnavailableError("the stream has ended")

    def cancel(self):
        self._arrivals.put(None)
