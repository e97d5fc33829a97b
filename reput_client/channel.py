"""Channels to a gateway: one set of options for all clients."""

import grpc

# A page of bodies (under 4 MiB) with the properties of 1,000 messages.
RECEIVE_BYTES_MAX = 16 * 1024 * 1024
SERVICE = "/reput.gateway.v1.GatewayService/"

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    # A gateway that vanished without a word is noticed within half a minute while something is under way.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A restarted gateway is found again soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # retry.py is the one retry policy.
    ("grpc.enable_retries", 0),
    # The proxy that the environment names is for the web.
    ("grpc.enable_http_proxy", 0),
    # A channel of its own: what one client does, e.g. closing, concerns no other.
    ("grpc.use_local_subchannel_pool", 1),
)


def open_channel(target: str) -> grpc.Channel:
    """A channel to `HOST:PORT` or `unix:/path`; never blocks and never fails: calls on it do."""
    return grpc.insecure_channel(target, options=CHANNEL_OPTIONS)


def open_async_channel(target: str) -> grpc.aio.Channel:
    """The same for asyncio."""
    return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
