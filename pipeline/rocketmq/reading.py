"""A task: reads one range of one queue, page by page, and makes Arrow batches.

The next page is fetched while Spark takes the current one. Each page must begin where the last one ended: a gap means lost
messages and is always reported.
"""

from collections.abc import Iterator
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
from reput_client.errors import QueueNotFoundError, TopicNotFoundError


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

    def page(queue_offset: int) -> pb.QueryMessageByOffsetResponse:
        return gateway.messages_or_end(asked.key, queue_offset, min(asked.end - queue_offset, PAGE_COUNT_MAX))

    ahead = ThreadPoolExecutor(1, thread_name_prefix="next-page")
    try:
        position = asked.begin
        coming: Future[pb.QueryMessageByOffsetResponse] | None = ahead.submit(page, position)
        while coming is not None:
            try:
                response = coming.result()
            except (TopicNotFoundError, QueueNotFoundError) as error:
                lose(position, asked.end, error.message)
                return
            follows = response.next_queue_offset
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
