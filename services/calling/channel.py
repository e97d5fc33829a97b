"""gRPC channels between our services, all with the same options.

An address is `HOST:PORT` or `unix:/path`. A channel connects when it is first used and reconnects by itself. Over TLS the
server must have the name that was dialled and gets our certificate. A unix socket has no TLS: its file mode protects it.
"""

import grpc
import grpc.experimental

from services.observing import tracing
from services.serving.tls import PemFiles, TlsIdentity

# The largest answer between our services: a page of bodies (4 MiB) with the properties of 1,000 messages.
RECEIVE_BYTES_MAX = 16 * 1024 * 1024

WINDOW_BYTES = 128 * 1024

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", RECEIVE_BYTES_MAX),
    # A peer that is gone without closing is detected within half a minute, also under an idle tail.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # No estimate of our own of what is sent ahead on a stream: `window_bytes`, as in services/serving/server_options.py. A
    # gateway holds it for each slow caller.
    ("grpc.http2.bdp_probe", 0),
    # Reconnect soon after a restart of the service.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also what an attempt to connect may take. On an overloaded machine the other side greets late: with 100 ms no attempt of a
    # new channel came to its end there.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A name is resolved again as soon as its address refuses: a restarted pod has another address.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # services/retry.py is the one retry policy.
    ("grpc.enable_retries", 0),
    # The proxy in the environment is for the web; our services are not behind it.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


# Calls with a stream of answers are read by the thread that iterates over them, instead of by one of the channel that wakes it:
# a sixth less for each answer. Callbacks of such a call come only when it is read to its end, and it does not keep its channel
# open. So not over TLS: a channel that reloads its certificate counts its calls by callbacks.
READ_BY_CALLER = (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)


def open_channel(
    address: str, tls: TlsIdentity | None = None, *, window_bytes: int = WINDOW_BYTES, read_by_caller: bool = False
) -> grpc.Channel:
    """A channel to an address. Opening does not block and does not fail; calls on it may.

    Args:
        address: see above.
        tls: our certificate and the authority that we trust; None: no TLS.
        window_bytes: what may be sent ahead to us on a stream.
        read_by_caller: see READ_BY_CALLER; without effect over TLS.
    """
    options = (*CHANNEL_OPTIONS, ("grpc.http2.lookahead_bytes", window_bytes))
    if tls is None or address.startswith("unix:"):
        if read_by_caller:
            options += (READ_BY_CALLER,)
        return tracing.traced_channel(grpc.insecure_channel(address, options=options))
    from reput_client.reloading_channel import ReloadingChannel

    def make(pem: PemFiles) -> grpc.Channel:
        return grpc.secure_channel(
            address, grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate), options=options
        )

    return tracing.traced_channel(ReloadingChannel(tls, make))
