"""Every setting of every component, as plain data: what exists, its default, its unit, what it means.

Each component reads only its own settings, but all of them refuse a name that nobody has, so that a typing error in an
environment or a file that four processes share does not pass in silence. A component's `settings.py` defines types and
checks; a test holds the two together.

The same setting has these spellings (component `commitlog`, name `file_size_bytes`; shared settings have no component):

    environment   REPUT_COMMITLOG_FILE_SIZE_BYTES       REPUT_STORE
    TOML          [commitlog] file_size_bytes = ...     store = ...  (above the first section)
    flag          --file-size-bytes                     --store
"""

import dataclasses
import difflib
import re

COMPONENTS = ("commitlog", "consumequeue", "index", "gateway")
SHARED = ""
PREFIX = "REPUT_"
IDENTITIES_DEFAULT = (
    "gateway=spiffe://reput/gateway;consumequeue=spiffe://reput/consumequeue;index=spiffe://reput/index"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        component: who has it; empty for the shared ones.
        name: lower case, unit last.
        default: as text; empty for "none".
        unit: of the value; empty where the name or a list of values says it.
        help: one line.
        secret: the value is never printed.
    """

    component: str
    name: str
    default: str
    unit: str
    help: str
    secret: bool = False

    @property
    def environment_name(self) -> str:
        """The name of the environment variable."""
        return PREFIX + "_".join(part.upper() for part in (self.component, self.name) if part)

    @property
    def toml_name(self) -> str:
        """The name in a settings file, with its section."""
        return f"[{self.component}] {self.name}" if self.component else self.name


SETTINGS: tuple[Setting, ...] = (
    Setting(SHARED, "config", "", "", "Settings file: TOML, or a RocketMQ broker.conf."),
    Setting(SHARED, "broker_conf", "", "", "A RocketMQ broker.conf, below the settings file in rank."),
    Setting(SHARED, "store", "store", "", "Store root, laid out like RocketMQ's storePathRootDir."),
    Setting(SHARED, "read_only", "false", "true|false", "Write nothing under the store root and take no lock."),
    Setting(SHARED, "broker_name", "broker-a", "", "The shard's name."),
    Setting(SHARED, "store_host", "127.0.0.1:10911", "IP:port", "Store host written into records; nobody dials it."),
    Setting(SHARED, "log_level", "info", "debug|info|warning|error", "Least level of log lines."),
    Setting(SHARED, "worker_count", "64", "threads", "Calls, and as many streams, that a service works on."),
    Setting(SHARED, "address_file", "", "", "File that gets the bound address once the service listens."),
    Setting(SHARED, "kernels", "auto", "auto|eager|off", "Compiled codecs: with the first load, at once, or never."),
    Setting(SHARED, "ready_file", "", "", "File that is made once the service has opened what it serves from."),
    Setting(
        SHARED,
        "otlp_endpoint",
        "",
        "http://host:port",
        "Where traces go, by OTLP/gRPC; empty: as OTEL_... variables say.",
    ),
    Setting(
        SHARED,
        "connection_age_seconds",
        "0",
        "seconds",
        "Callers connect anew so often, to see new addresses; 0: never.",
    ),
    Setting(SHARED, "parent_pid", "", "pid", "Process with which this one ends at once."),
    Setting(SHARED, "commitlog_target", "127.0.0.1:8082", "host:port|unix:/path", "Where the commitlog service is."),
    Setting(
        SHARED, "consumequeue_target", "127.0.0.1:8083", "host:port|unix:/path", "Where the consumequeue service is."
    ),
    Setting(SHARED, "index_target", "127.0.0.1:8084", "host:port|unix:/path", "Where the index service is."),
    Setting(SHARED, "tls_certificate", "", "", "PEM chain that this process shows; empty: no TLS (docs/security.md)."),
    Setting(SHARED, "tls_key", "", "", "PEM file of its private key."),
    Setting(SHARED, "tls_ca", "", "", "PEM file of the authority that signs the certificates of all services."),
    Setting(
        SHARED,
        "allowed_identities",
        IDENTITIES_DEFAULT,
        "role=identity,...;...",
        "Which names in certificates are which service.",
    ),
    Setting(
        "commitlog",
        "address",
        "127.0.0.1:8082",
        "host:port|unix:/path",
        "Where the service listens; port 0: a free one.",
    ),
    Setting("commitlog", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: nowhere."),
    Setting("commitlog", "health_address", "", "host:port", "Where health is told without TLS; empty: nowhere."),
    Setting(
        "commitlog", "file_size_bytes", "1073741824", "bytes", "Size of a log file; an existing log decides itself."
    ),
    Setting("commitlog", "flush_mode", "async", "async|sync", "When an append is answered, unless it says so itself."),
    Setting("commitlog", "flush_interval_millis", "10", "milliseconds", "Most age of an unflushed record."),
    Setting(
        "commitlog",
        "unflushed_bytes_max",
        "33554432",
        "bytes",
        "Most unflushed bytes; faster appends wait for the disk.",
    ),
    Setting("commitlog", "message_size_bytes_max", "4194304", "bytes", "Largest body of a message."),
    Setting("commitlog", "properties_crc", "true", "true|false", "Write RocketMQ's __CRC32# property."),
    Setting("commitlog", "auto_create_topic", "true", "true|false", "A first message makes its topic."),
    Setting("commitlog", "default_topic_queue_count", "8", "queues", "Queues of a topic made by its first message."),
    Setting(
        "commitlog", "file_reserved_seconds", "259200", "seconds", "Log files expire so long after their last record."
    ),
    Setting("commitlog", "delete_when_hours", "04", "HH;HH...", "Hours, local time, at which expired log files go."),
    Setting("commitlog", "disk_clean_ratio_percent", "75", "percent", "Disk in use: expired log files go at any hour."),
    Setting("commitlog", "disk_clean_forcibly_ratio_percent", "85", "percent", "Disk in use: log files go unexpired."),
    Setting("commitlog", "disk_full_ratio_percent", "90", "percent", "Disk in use: appends are refused."),
    Setting(
        "commitlog", "disk_clean_free_bytes", "10737418240", "bytes", "Only if no more is free does that ratio count."
    ),
    Setting(
        "commitlog",
        "disk_clean_forcibly_free_bytes",
        "3221225472",
        "bytes",
        "Only if no more is free does that ratio count.",
    ),
    Setting(
        "commitlog", "disk_full_free_bytes", "1073741824", "bytes", "Only if no more is free does that ratio count."
    ),
    Setting("commitlog", "clean_file_forcibly_enabled", "true", "true|false", "Log files may go before they expire."),
    Setting(
        "commitlog", "delete_files_interval_millis", "100", "milliseconds", "Least time between two removed files."
    ),
    Setting("commitlog", "delete_file_batch_count_max", "10", "files", "Most removals in each interval below."),
    Setting(
        "commitlog", "clean_resource_interval_millis", "10000", "milliseconds", "Interval that the above counts in."
    ),
    Setting(
        "consumequeue",
        "address",
        "127.0.0.1:8083",
        "host:port|unix:/path",
        "Where the service listens; port 0: a free one.",
    ),
    Setting("consumequeue", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: nowhere."),
    Setting("consumequeue", "health_address", "", "host:port", "Where health is told without TLS; empty: nowhere."),
    Setting(
        "consumequeue",
        "file_size_bytes",
        "6000000",
        "bytes",
        "Size of a queue file; existing queues decide themselves.",
    ),
    Setting(
        "index", "address", "127.0.0.1:8084", "host:port|unix:/path", "Where the service listens; port 0: a free one."
    ),
    Setting("index", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: nowhere."),
    Setting("index", "health_address", "", "host:port", "Where health is told without TLS; empty: nowhere."),
    Setting(
        "index", "hash_slot_count", "5000000", "slots", "Hash slots of an index file; existing files decide themselves."
    ),
    Setting(
        "index", "entry_count_max", "20000000", "entries", "Entries of an index file; existing files decide themselves."
    ),
    Setting("index", "enabled", "true", "true|false", "Build index files."),
    Setting(
        "gateway", "address", "127.0.0.1:8081", "host:port|unix:/path", "Where the service listens; port 0: a free one."
    ),
    Setting("gateway", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: nowhere."),
    Setting("gateway", "health_address", "", "host:port", "Where health is told without TLS; empty: nowhere."),
    Setting(
        "gateway", "shards", "", "name=commitlog,consumequeue,index;...", "The shards; empty: the one of the targets."
    ),
    Setting("gateway", "shards_file", "", "", "File of shards, one a line as in shards; read again when it changes."),
    Setting(
        "gateway", "shard_template", "", "name-{i}=commitlog,consumequeue,index", "Shards by ordinal {i}, from 0 on."
    ),
    Setting("gateway", "shard_count", "1", "shards", "Ordinals of the template that surely exist."),
    Setting("gateway", "shard_count_max", "1000", "shards", "Ordinals below this join once their commitlog answers."),
    Setting(
        "gateway", "shards_poll_seconds", "5.0", "seconds", "How often the file, or the next ordinals, are looked at."
    ),
    Setting(
        "gateway",
        "page_token_secret",
        "reput",
        "",
        "Seals page tokens; the same on every gateway of the same clients.",
        secret=True,
    ),
    Setting("gateway", "archive", "", "", "Archive of the shards, a directory; empty: none. Needs pyarrow."),
    Setting("gateway", "console", "on", "on|off", "Whether there is a console (docs/console.md)."),
    Setting("gateway", "console_address", "127.0.0.1:8080", "host:port", "Where the console is; port 0: a free one."),
    Setting("gateway", "console_address_file", "", "", "File that gets the console's bound address."),
    Setting(
        "gateway", "console_host_names", "", "name,...|*", "Names that browsers may know it by; IPs, localhost: always."
    ),
    Setting("gateway", "console_reports", "", "", "Directory of the pipeline's reports that it shows; empty: none."),
    Setting(
        "gateway", "public_tls", "true", "true|false", "Whether clients come over TLS where there is a certificate."
    ),
    Setting("gateway", "public_tls_certificate", "", "", "PEM chain that clients are shown; empty: tls_certificate."),
    Setting("gateway", "public_tls_key", "", "", "PEM file of its private key."),
    Setting("gateway", "client_ca", "", "", "PEM file: clients must show a certificate signed by it; empty: none."),
    Setting("gateway", "auth", "off", "on|off", "Whether clients must sign in; on: what is not allowed is denied."),
    Setting("gateway", "access_file", "", "", "TOML file: who may do what (docs/security.md)."),
    Setting("gateway", "jwt_keys_file", "", "", "JWKS file: whose JWTs are taken; empty: nobody's."),
    Setting("gateway", "jwt_issuer", "", "", "The `iss` that a JWT must have."),
    Setting("gateway", "jwt_audience", "", "", "The `aud` that a JWT must have."),
)
BY_ENVIRONMENT_NAME = {setting.environment_name: setting for setting in SETTINGS}

# Variables of the `reput` command, which no service reads and none refuses.
COMMAND_ENVIRONMENT_NAMES = frozenset(
    {
        "REPUT_ADDRESS",
        "REPUT_API_KEY",
        "REPUT_TOKEN_FILE",
        "REPUT_CLIENT_CA",
        "REPUT_CLIENT_CERTIFICATE",
        "REPUT_CLIENT_KEY",
    }
)

# What Kubernetes puts into every container for a Service called reput or reput-something.
_KUBERNETES_NAME = re.compile(r"REPUT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_\w+)")
_KUBERNETES_PORT = re.compile(r"REPUT_(\w+_)?PORT")
_KUBERNETES_PORT_VALUE = re.compile(r"(tcp|udp|sctp)://")


def is_from_kubernetes(name: str, value: str) -> bool:
    """True for an environment variable that Kubernetes made for a Service, and no user."""
    if _KUBERNETES_NAME.fullmatch(name):
        return True
    return bool(_KUBERNETES_PORT.fullmatch(name) and _KUBERNETES_PORT_VALUE.match(value))


def suggestion(name: str, possible: list[str]) -> str:
    """` Did you mean ...?` with the nearest of the possible names, or nothing when none is near."""
    near = difflib.get_close_matches(name, possible, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else ""
