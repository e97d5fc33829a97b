"""A task: reads one range of one queue, page by page, and makes Arrow batches.

The next page is fetched while Spark takes the current one. Each page must begin where the last one ended: a gap means lost
messages and is always reported.

A page is a batch of a bulk pull if that has every message from its begin to its end. In every other case it comes by
QueryMessageByOffset, which also finds what is archived, and says what is lost or not built: a pull costs the services a tenth.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from pipeline.rocketmq.gateway import PAGE_COUNT_MAX, Gateway
from pipeline.rocketmq.options import READ_FROM
from pipeline.rocketmq.ranges import MessageRange, report_loss
from pipeline.rocketmq.rows import BATCH_BYTES_MAX, RowBatches, StoredMessage
from pipeline.rocketmq.security import NO_SECURITY, SecurityOptions
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.errors import QueueNotFoundError, ReputClientError, TopicNotFoundError

# Fewer messages come in one page, for which no pull is begun.
PULL_COUNT_MIN = 100
# Messages that come by pages behind one that no pull gave, before another pull is begun.
QUERIED_COUNT = 8 * PAGE_COUNT_MAX


@dataclass(frozen=True, slots=True)
class Task:
    """The settings for reading a range; made by the driver, pickled to executors.

    Attributes:
        schema: the columns.
        view: `native` or `kafka`.
        decompress: bodies as their producers sent them.
        tags: the tags of the messages to read; empty: all.
        fail_on_data_loss: a gap is an error; otherwise a warning.
        retry_seconds: how long a gateway that does not answer is tried, in seconds.
        security: TLS and credentials.
        read_from: which replicas of a shard messages are read from.
    """

    schema: StructType
    view: str
    decompress: bool
    tags: frozenset[str]
    fail_on_data_loss: bool
    retry_seconds: float
    security: SecurityOptions = NO_SECURITY
    read_from: str = READ_FROM[0]

    def read(self, asked: MessageRange) -> Iterator[pa.RecordBatch]:
        """The rows of a range."""
        rows = RowBatches(self.schema, self.view, decompress=self.decompress)
        with Gateway(asked.endpoint, self.retry_seconds, self.security, self.read_from) as gateway:
            for page in _pages(gateway, asked, fail_on_data_loss=self.fail_on_data_loss):
                wanted = [message for message in page if not self.tags or message.tags in self.tags]
                yield from _batches(gateway, wanted, rows)


@dataclass(frozen=True, slots=True)
class Page:
    """Messages of a queue, and where the next ones begin; `min_offset` and `max_offset` are the queue's."""

    messages: Sequence[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class Pages:
    """The pages of one range, for one thread.

    Args:
        gateway: where they come from.
        asked: the range.
    """

    def __init__(self, gateway: Gateway, asked: MessageRange) -> None:
        self._gateway = gateway
        self._asked = asked
        self._pull: Iterator[pb.PullMessagesResponse] | None = None
        self._pulls_from = asked.begin

    def page(self, queue_offset: int) -> Page:
        """The page that begins at a queue offset: that of the range, or where the page before has ended."""
        page = self._pulled(queue_offset)
        if page is not None:
            return page
        asked = self._asked
        answer = self._gateway.messages_or_end(asked.key, queue_offset, min(asked.end - queue_offset, PAGE_COUNT_MAX))
        return Page(answer.messages, answer.next_queue_offset, answer.min_offset, answer.max_offset)

    def _pulled(self, queue_offset: int) -> Page | None:
        """The next batch of the pull; None when it does not have every message from its begin to its end."""
        left = self._asked.end - queue_offset
        if queue_offset < self._pulls_from or (self._pull is None and left < PULL_COUNT_MIN):
            return None
        try:
            if self._pull is None:
                self._pull = self._gateway.pulled(self._asked.key, queue_offset)
            batch = next(self._pull, None)
        except ReputClientError:  # what it says is said again for the page, or has passed
            batch = None
        count = 0 if batch is None else len(batch.messages)
        if (
            batch is None
            or not count
            or batch.messages[0].queue_offset != queue_offset
            or batch.messages[-1].queue_offset != queue_offset + count - 1
            or batch.next_offset != queue_offset + count
        ):
            self._pull, self._pulls_from = None, queue_offset + QUERIED_COUNT
            return None
        count = min(count, left)
        return Page(batch.messages[:count], queue_offset + count, batch.min_offset, batch.max_offset)


def _batches(gateway: Gateway, messages: list[StoredMessage], rows: RowBatches) -> Iterator[pa.RecordBatch]:
    """The page as batches; bodies that had no room in it are downloaded, and a batch ends at `BATCH_BYTES_MAX`."""
    if not rows.needs_bodies or not any(message.body_omitted for message in messages):
        if messages:
            yield rows.batch(messages)
        return
    batch: list[StoredMessage] = []
    size_bytes = 0
    for message in messages:
        if message.body_omitted:
            message.body = gateway.body(message)
        batch.append(message)
        size_bytes += len(message.body)
        if size_bytes >= BATCH_BYTES_MAX:
            yield rows.batch(batch)
            batch, size_bytes = [], 0
    if batch:
        yield rows.batch(batch)


def _pages(gateway: Gateway, asked: MessageRange, *, fail_on_data_loss: bool) -> Iterator[list[StoredMessage]]:
    """The messages of a range that the queue still holds, in order, one page each."""

    def lose(begin: int, end: int, why: str) -> None:
        report_loss(asked.key, begin, min(end, asked.end), why, fail_on_data_loss=fail_on_data_loss)

    page = Pages(gateway, asked).page
    ahead = ThreadPoolExecutor(1, thread_name_prefix="next-page")
    try:
        position = asked.begin
        coming: Future[Page] | None = ahead.submit(page, position)
        while coming is not None:
            try:
                response = coming.result()
            except (TopicNotFoundError, QueueNotFoundError) as error:
                lose(position, asked.end, error.message)
                return
            follows = response.next_offset
            if follows <= position:
                lose(position, asked.end, f"the queue ends at {response.max_offset}")
                return
            coming = ahead.submit(page, follows) if follows < asked.end else None
            messages = list(response.messages)
            for message in messages:
                if message.queue_offset > position:
                    lose(position, message.queue_offset, f"the queue begins at {response.min_offset}")
                position = message.queue_offset + 1
            if position < follows:
                lose(position, follows, f"the queue begins at {response.min_offset}")
            position = follows
            yield messages
    finally:
        # A task that stops early, as for LIMIT, does not wait for the next page.
        ahead.shutdown(wait=False, cancel_futures=True)
