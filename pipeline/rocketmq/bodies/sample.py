"""The schema of JSON bodies without option `bodySchema`: from the newest messages of the queues, read by the driver."""

from pyspark.sql.types import StructType

from pipeline.rocketmq.bodies.compression import decompressed_or_none
from pipeline.rocketmq.bodies.json_schema import inferred
from pipeline.rocketmq.gateway import Gateways
from pipeline.rocketmq.options import ReadOptions
from pipeline.rocketmq.ranges import choose_queues
from pipeline.scan.options import OptionError
from reput_client.errors import QueueNotFoundError, TopicNotFoundError

# Of all queues together. Each queue is asked once, and gives what fits a page; so a schema costs some seconds at most.
SAMPLE_COUNT_MAX = 1_000


def sampled_schema(options: ReadOptions) -> StructType:
    """The schema of the newest messages of the queues; of those with the tags that are asked for. Option `sql` is not applied.

    Raises:
        OptionError: none of them is a JSON object with a field.
        TopicNotFoundError, QueueNotFoundError: there are no such queues.
    """
    bodies: list[bytes | None] = []
    with Gateways(options.endpoints, options.retry_seconds, options.security) as gateways:
        held = choose_queues(gateways.queue_ranges(), options.subscription)
        filled = {key: queue for key, queue in held.items() if queue.max_offset > queue.min_offset}
        left = SAMPLE_COUNT_MAX
        # The shorter queues first: what they have not is left for the others.
        by_length = sorted(filled.items(), key=lambda each: each[1].max_offset - each[1].min_offset)
        for place, (key, queue) in enumerate(by_length):
            count = min(left // (len(by_length) - place), queue.max_offset - queue.min_offset)
            if count == 0:
                continue
            left -= count
            try:
                page = gateways[queue.endpoint].messages(key, queue.max_offset - count, count)
            except (TopicNotFoundError, QueueNotFoundError):
                continue  # removed since it was listed
            bodies += [
                decompressed_or_none(message.body, message.sys_flag)
                for message in page.messages
                if not message.body_omitted and (not options.tags or message.tags in options.tags)
            ]
    found = inferred(bodies)
    if found is None:
        raise OptionError(
            f"None of the {len(bodies)} newest messages is a JSON object with a field: give their schema, such as "
            'bodySchema="id long, name string".'
        )
    return found
