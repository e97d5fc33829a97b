"""The options of our gRPC servers: limits that protect a service, and how it treats idle and vanished callers."""

from services.serving.admission.descriptors import connection_count_max
from services.settings.service_settings import ServiceSettings
from store.files.open_files import open_file_limit

RECEIVE_BYTES_MAX = 4 * 1024 * 1024 + 128 * 1024
# Our calls need no metadata; a proxy's tracing headers and a bearer token stay below 8 KiB.
METADATA_BYTES_MAX = 16 * 1024
# Calls of one connection at the same time, as a multiple of the workers; further calls wait in the caller. A gateway has one
# connection to each service, which must carry the calls of all its threads. Where clients poll, there are more: polls that wait
# must leave room for acknowledgements.
CONNECTION_CALL_COUNT_FACTOR = 4
# The threads and places of a caller that vanished are free again within half a minute.
KEEPALIVE_MILLIS = 20_000
KEEPALIVE_TIMEOUT_MILLIS = 10_000
# The bytes that a caller may send ahead on a stream. gRPC's own estimate grows to many MiB for each stream that sends faster
# than the service reads. A message that is being read may always arrive whole.
WINDOW_BYTES = 128 * 1024
# An idle connection costs a descriptor and some memory; its caller reconnects by itself.
CONNECTION_IDLE_MILLIS = 15 * 60_000

# From a connection to the end of its TLS handshake and HTTP/2 greeting, as for the console. gRPC's default is 120 s, in which
# one host that says nothing fills CONNECTION_COUNT_MAX.
GREETING_MILLIS_MAX = 10_000
# Of a connection whose caller shows a certificate, without `connection_age_seconds`. TLS looks at a certificate only when a
# connection is made, so an expired one is of use for as long as this at most.
CERTIFIED_AGE_SECONDS = 3_600
# The port of health alone lies beside the service's own, in the reserve of descriptors. Probes connect anew each time.
HEALTH_CONNECTION_COUNT_MAX = 256
HEALTH_IDLE_MILLIS = 10_000

Options = tuple[tuple[str, int], ...]

SERVER_OPTIONS: Options = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    # Without it gRPC refuses sizes between the two limits at random.
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MILLIS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLIS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_connection_idle_ms", CONNECTION_IDLE_MILLIS),
    # A caller at its limit opens its next call as soon as one has ended for it. With this protection on, calls that are still
    # being cleaned up count, too, and that call is refused. Lanes protect from callers that open and reset calls at once.
    ("grpc.http.overload_protection", 0),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    # Two processes on one port would share its connections without an error.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)


def options_of(settings: ServiceSettings) -> Options:
    """The options of a service's server.

    With `connection_age_seconds` callers reconnect from time to time, and those with certificates always do. No grace is set
    for that, so a stream under way stays as long as its caller wants.
    """
    files = settings.server_tls_files
    asks_certificates = files is not None and files.ca is not None and not settings.address.startswith("unix:")
    age_millis = (settings.connection_age_seconds or (CERTIFIED_AGE_SECONDS if asks_certificates else 0)) * 1000
    return (
        *SERVER_OPTIONS,
        ("grpc.server_handshake_timeout_ms", GREETING_MILLIS_MAX),
        *((("grpc.max_connection_age_ms", age_millis),) if age_millis else ()),
        ("grpc.max_allowed_incoming_connections", connection_count_max(open_file_limit())),
        (
            "grpc.max_concurrent_streams",
            settings.worker_count * CONNECTION_CALL_COUNT_FACTOR + settings.connection_poll_count,
        ),
    )


def health_options() -> Options:
    """The options of the server that answers only health, without TLS."""
    limits = {
        "grpc.server_handshake_timeout_ms": GREETING_MILLIS_MAX,
        "grpc.max_connection_idle_ms": HEALTH_IDLE_MILLIS,
        "grpc.max_allowed_incoming_connections": HEALTH_CONNECTION_COUNT_MAX,
    }
    return tuple((dict(SERVER_OPTIONS) | limits).items())
