"""The settings of a producer, with their limits."""

from dataclasses import dataclass, field

from reput_client.encoding import FlushMode
from reput_client.retry import RetryPolicy

# Of the service: a request holds 1 to 1,024 messages and 4 MiB of bodies.
BATCH_COUNT_MAX = 1024
BATCH_BYTES_MAX = 4 << 20
# RocketMQ's.
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
PRODUCER_GROUP_DEFAULT = "reput_client"
# Bytes that a message takes here besides its own: its future, its entry, its place in lists.
MESSAGE_OVERHEAD_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The limits and times of a producer.

    Attributes:
        linger_millis: how long a message waits for others to share its request. It also waits while `in_flight_count_max`
            requests are under way: what is sent meanwhile shares the next request.
        batch_count_max: messages of a request, at most 1,024.
        batch_bytes_max: bytes of a request, at most 4 MiB; a larger message goes alone.
        buffer_bytes_max: messages accepted and not answered, with 1 KiB for each besides its bytes. The requests under way
            are copies: at most `in_flight_count_max * batch_bytes_max` more.
        block_seconds_max: how long a send waits for room in the buffer, in the order of coming: for what it needs, and an
            eighth of the buffer while answers come; 0 = not at all.
        in_flight_count_max: requests sent and not answered. The gateway takes 8 of a stream at once.
        flush_mode: when the service answers.
        request_seconds_max: without any answer for so long, the stream is given up and begun anew.
        delivery_seconds_max: how long a message is tried before its future fails; an answer under way is awaited.
        retry: how often a request is tried and how long the pauses are.
        idle_seconds_max: a stream without messages for so long is closed: it keeps a place in the gateway.
        close_seconds_max: how long `close` waits for answers before the rest fails.
        trace: tell of each stored message in RocketMQ's format, so that `reput track` and RocketMQ's tools show who sent it and
            how long that took. Traces never fail or delay a send; what there is no room for is dropped.
        trace_topic: where traces go.
        producer_group: the name under which this producer is told of.
    """

    linger_millis: float = 5.0
    batch_count_max: int = BATCH_COUNT_MAX
    batch_bytes_max: int = 1 << 20
    buffer_bytes_max: int = 32 << 20
    block_seconds_max: float = 60.0
    in_flight_count_max: int = 8
    flush_mode: FlushMode = FlushMode.SERVER_DEFAULT
    request_seconds_max: float = 30.0
    delivery_seconds_max: float = 120.0
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempt_count_max=200))
    idle_seconds_max: float = 10.0
    close_seconds_max: float = 120.0
    trace: bool = False
    trace_topic: str = TRACE_TOPIC
    producer_group: str = PRODUCER_GROUP_DEFAULT

    def __post_init__(self) -> None:
        for name, minimum, maximum in (
            ("batch_count_max", 1, BATCH_COUNT_MAX),
            ("batch_bytes_max", 1, BATCH_BYTES_MAX),
            ("buffer_bytes_max", MESSAGE_OVERHEAD_BYTES + 1, 1 << 40),
            ("in_flight_count_max", 1, 1024),
            ("linger_millis", 0, 60_000),
            ("block_seconds_max", 0, float("inf")),
            ("request_seconds_max", 0.001, float("inf")),
            ("delivery_seconds_max", 0.001, float("inf")),
            ("idle_seconds_max", 0.001, float("inf")),
            ("close_seconds_max", 0, float("inf")),
        ):
            value = getattr(self, name)
            if not minimum <= value <= maximum:
                raise ValueError(f"{name} is {value}: {minimum} to {maximum} is possible")
        if not isinstance(self.flush_mode, FlushMode):
            raise TypeError(f"flush_mode is a FlushMode, not {self.flush_mode!r}")
