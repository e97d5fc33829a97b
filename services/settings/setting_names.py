"""Every setting of every component, as plain data: its name, default, unit and meaning.

Each component reads only its own settings, but all of them refuse an unknown name, so that a misspelled name in a shared
environment or file is reported. A component's `settings.py` defines types and checks; a test keeps the two consistent.

The same setting has these spellings (component `commitlog`, name `file_size_bytes`; shared settings have no component):

    environment   REPUT_COMMITLOG_FILE_SIZE_BYTES       REPUT_STORE
    TOML          [commitlog] file_size_bytes = ...     store = ...  (above the first section)
    flag          --file-size-bytes                     --store
"""

import dataclasses
import difflib
import re

from store.format.delivery.delay_levels import DELAY_LEVELS_DEFAULT

COMPONENTS = ("commitlog", "consumequeue", "index", "consumer", "schedule", "gateway")
SHARED = ""
PREFIX = "REPUT_"
IDENTITIES_DEFAULT = (
    "gateway=spiffe://reput/gateway;consumequeue=spiffe://reput/consumequeue;index=spiffe://reput/index;"
    "consumer=spiffe://reput/consumer;schedule=spiffe://reput/schedule;commitlog=spiffe://reput/commitlog"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        component: the component that has it; empty for shared settings.
        name: lower case, unit last.
        default: as text; empty for "none".
        unit: of the value; empty where the name or a list of values states it.
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
    Setting(SHARED, "broker_conf", "", "", "A RocketMQ broker.conf; the settings file overrides it."),
    Setting(SHARED, "store", "store", "", "Store root, laid out like RocketMQ's storePathRootDir."),
    Setting(SHARED, "read_only", "false", "true|false", "Write nothing under the store root and take no lock."),
    Setting(
        SHARED,
        "follow",
        "false",
        "true|false",
        "Follow the log of a broker that runs; write nothing under the store root.",
    ),
    Setting(SHARED, "derived", "", "", "With follow: the directory for queues, index and our own state."),
    Setting(
        SHARED,
        "mirror",
        "",
        "rocketmq://host:port",
        "The HA port of a RocketMQ broker whose log this store copies; appends are refused.",
    ),
    Setting(
        SHARED,
        "mirror_broker",
        "",
        "host:port",
        "The same broker's own port, asked for topics, groups and positions; empty: not asked.",
    ),
    Setting(SHARED, "broker_name", "broker-a", "", "The shard's name."),
    Setting(
        SHARED, "store_host", "127.0.0.1:10911", "IP:port", "Store host written into records; it is never dialled."
    ),
    Setting(
        SHARED,
        "delay_levels",
        DELAY_LEVELS_DEFAULT,
        "<n>s|m|h|d ...",
        "Delays of the delay levels of the store; RocketMQ's messageDelayLevel.",
    ),
    Setting(SHARED, "log_level", "info", "debug|info|warning|error", "Least level of log lines."),
    Setting(
        SHARED, "umask", "", "octal digits", "Permissions that new files lack; empty: the inherited umask and 027."
    ),
    Setting(SHARED, "worker_count", "64", "threads", "Calls, and as many streams, that a service works on."),
    Setting(SHARED, "address_file", "", "", "File for the bound address, written when the service listens."),
    Setting(SHARED, "kernels", "auto", "auto|eager|off", "Compiled codecs: with the first load, at once, or never."),
    Setting(SHARED, "ready_file", "", "", "File that is made when the service has opened its files."),
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
        "Callers connect anew so often, to see new addresses; 0: never, with certificates each hour.",
    ),
    Setting(SHARED, "parent_pid", "", "pid", "Process with which this one ends at once."),
    Setting(SHARED, "commitlog_target", "127.0.0.1:8082", "host:port|unix:/path", "Where the commitlog service is."),
    Setting(
        SHARED, "consumequeue_target", "127.0.0.1:8083", "host:port|unix:/path", "Where the consumequeue service is."
    ),
    Setting(SHARED, "index_target", "127.0.0.1:8084", "host:port|unix:/path", "Where the index service is."),
    Setting(SHARED, "consumer_target", "127.0.0.1:8085", "host:port|unix:/path", "Where the consumer service is."),
    Setting(SHARED, "schedule_target", "127.0.0.1:8086", "host:port|unix:/path", "Where the schedule service is."),
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
    Setting("commitlog", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: no page."),
    Setting("commitlog", "health_address", "", "host:port", "Where health is served without TLS; empty: not served."),
    Setting(
        "commitlog", "file_size_bytes", "1073741824", "bytes", "Size of a log file; an existing log decides itself."
    ),
    Setting(
        "commitlog", "lock_wait_seconds", "10.0", "seconds", "How long a start waits for a process that has the store."
    ),
    Setting(
        "commitlog",
        "timer_log_file_size_bytes",
        "104857600",
        "bytes",
        "Size of a file in timerlog/, for a broker that takes the store over; existing files decide themselves.",
    ),
    Setting(
        "commitlog",
        "flush_mode",
        "async",
        "async|sync|replicated",
        "When an append is answered, unless the append itself states it.",
    ),
    Setting(
        "commitlog",
        "coordinator",
        "",
        "etcd://HOST:PORT[,...]/PREFIX or kubernetes://NAMESPACE/LEASE_PREFIX",
        "Where the replicas of the shard agree on who leads; empty: the shard has one copy.",
    ),
    Setting(
        "commitlog",
        "coordinator_creates_shard",
        "true",
        "",
        "Make the coordinator's record of the shard if it has none; false on replicas that join a store with messages.",
    ),
    Setting(
        "commitlog",
        "coordinator_ca",
        "",
        "",
        "PEM file, the authority of the coordinator; empty: the system's, or the pod's.",
    ),
    Setting("commitlog", "coordinator_certificate", "", "", "PEM chain that etcd is shown."),
    Setting("commitlog", "coordinator_key", "", "", "PEM file of its private key."),
    Setting("commitlog", "coordinator_user", "", "", "User of etcd; empty: none."),
    Setting("commitlog", "coordinator_password_file", "", "", "File with that user's password."),
    Setting("commitlog", "replica_name", "", "", "Name of this replica among those of its shard; with a coordinator."),
    Setting(
        "commitlog", "replica_address", "", "host:port", "Where other replicas find this one; empty: the bound address."
    ),
    Setting(
        "commitlog",
        "min_in_sync",
        "2",
        "replicas",
        "Appends with FLUSH_MODE_REPLICATED need so many in-sync replicas, the leader among them.",
    ),
    Setting("commitlog", "lease_seconds", "4.0", "seconds", "How long a leader may go on without the coordinator."),
    Setting("commitlog", "renew_seconds", "1.0", "seconds", "Time between two renewals of the leader's lease."),
    Setting(
        "commitlog",
        "lag_seconds_max",
        "5.0",
        "seconds",
        "A replica that lags more leaves the in-sync set until it is back.",
    ),
    Setting(
        "commitlog",
        "replication_bytes_per_second_max",
        "0",
        "bytes",
        "Most bytes of the log a second that a leader sends to one replica; 0: no limit.",
    ),
    Setting(
        "commitlog",
        "replication_fetch_count",
        "3",
        "1 to 8",
        "Whole log files that this replica fetches at the same time while it is far behind.",
    ),
    Setting(
        "commitlog",
        "access_message_in_memory_max_ratio",
        "40",
        "percent",
        "Of the machine's memory, expected to hold the end of the log; older records are cold: replicas may read them.",
    ),
    Setting("commitlog", "flush_interval_millis", "10", "milliseconds", "Maximum age of an unflushed record."),
    Setting(
        "commitlog",
        "unflushed_bytes_max",
        "33554432",
        "bytes",
        "Maximum of unflushed bytes; further appends wait for the disk.",
    ),
    Setting("commitlog", "message_size_bytes_max", "4194304", "bytes", "Largest body of a message."),
    Setting("commitlog", "properties_crc", "true", "true|false", "Write RocketMQ's __CRC32# property."),
    Setting("commitlog", "auto_create_topic", "true", "true|false", "The first message of a topic creates it."),
    Setting("commitlog", "default_topic_queue_count", "8", "queues", "Queues of a topic made by its first message."),
    Setting(
        "commitlog",
        "timer_max_delay_seconds",
        "259200",
        "seconds",
        "How far ahead the delivery time of a message may be.",
    ),
    Setting(
        "commitlog", "file_reserved_seconds", "259200", "seconds", "Log files expire so long after their last record."
    ),
    Setting(
        "commitlog", "delete_when_hours", "04", "HH;HH...", "Hours, local time, at which expired log files are removed."
    ),
    Setting(
        "commitlog",
        "disk_clean_ratio_percent",
        "75",
        "percent",
        "Disk in use: expired log files are removed at any hour.",
    ),
    Setting(
        "commitlog",
        "disk_clean_forcibly_ratio_percent",
        "85",
        "percent",
        "Disk in use: log files are removed before they expire.",
    ),
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
    Setting(
        "commitlog", "clean_file_forcibly_enabled", "true", "true|false", "Log files may be removed before they expire."
    ),
    Setting(
        "commitlog",
        "delete_files_interval_millis",
        "100",
        "milliseconds",
        "Minimum time between two removals of files.",
    ),
    Setting("commitlog", "delete_file_batch_count_max", "10", "files", "Maximum of removals in each interval below."),
    Setting("commitlog", "clean_resource_interval_millis", "10000", "milliseconds", "The interval of that maximum."),
    Setting("commitlog", "followers", "consumequeue,index", "name,...", "Followers that retention always waits for."),
    Setting(
        "commitlog",
        "rocketmq_ha_address",
        "",
        "host:port",
        "Where slaves of RocketMQ copy this log, without TLS and for everybody who reaches it; empty: nowhere.",
    ),
    Setting(
        "commitlog",
        "rocketmq_slaves",
        "",
        "host:port,...",
        "Those slaves' own ports (listenPort): they are told where their master is.",
    ),
    Setting(
        "consumequeue",
        "address",
        "127.0.0.1:8083",
        "host:port|unix:/path",
        "Where the service listens; port 0: a free one.",
    ),
    Setting("consumequeue", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: no page."),
    Setting(
        "consumequeue", "health_address", "", "host:port", "Where health is served without TLS; empty: not served."
    ),
    Setting(
        "consumequeue",
        "file_size_bytes",
        "6000000",
        "bytes",
        "Size of a queue file; existing queues decide themselves.",
    ),
    Setting(
        "consumequeue",
        "ext",
        "false",
        "true|false",
        "Keep tags codes in consumequeue_ext/; RocketMQ's enableConsumeQueueExt.",
    ),
    Setting(
        "consumequeue",
        "ext_file_size_bytes",
        "50331648",
        "bytes",
        "Size of a file there; RocketMQ's mappedFileSizeConsumeQueueExt, which must be the same.",
    ),
    Setting(
        "consumequeue",
        "verify_bytes_per_second_max",
        "33554432",
        "bytes",
        "Limit for reading files to find damage (docs/durability.md).",
    ),
    Setting(
        "index", "address", "127.0.0.1:8084", "host:port|unix:/path", "Where the service listens; port 0: a free one."
    ),
    Setting("index", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: no page."),
    Setting("index", "health_address", "", "host:port", "Where health is served without TLS; empty: not served."),
    Setting(
        "index", "hash_slot_count", "5000000", "slots", "Hash slots of an index file; existing files decide themselves."
    ),
    Setting(
        "index", "entry_count_max", "20000000", "entries", "Entries of an index file; existing files decide themselves."
    ),
    Setting(
        "index",
        "verify_bytes_per_second_max",
        "33554432",
        "bytes",
        "Limit for reading files to find damage (docs/durability.md).",
    ),
    Setting("index", "enabled", "true", "true|false", "Build index files."),
    Setting(
        "consumer",
        "address",
        "127.0.0.1:8085",
        "host:port|unix:/path",
        "Where the service listens; port 0: a free one.",
    ),
    Setting("consumer", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: no page."),
    Setting("consumer", "health_address", "", "host:port", "Where health is served without TLS; empty: not served."),
    Setting(
        "consumer",
        "receipt_secret",
        "",
        "",
        "Signs receipt handles; empty: a secret of this store root, made at the first start.",
        secret=True,
    ),
    Setting(
        "consumer", "new_groups_from", "first", "first|last", "Where a group begins in a topic that it never consumed."
    ),
    Setting(
        "consumer",
        "cluster_name",
        "DefaultCluster",
        "",
        "RocketMQ's brokerClusterName, for a broker that takes the store over.",
    ),
    Setting(
        "consumer",
        "group_metrics",
        "false",
        "true|false",
        "Show the lag of each group and topic, with their names, on the page of metrics.",
    ),
    Setting(
        "consumer",
        "delivery_attempts_max",
        "17",
        "deliveries",
        "Of a group without a setting of its own, the first delivery included.",
    ),
    Setting(
        "consumer",
        "group_count_max",
        "100000",
        "groups",
        "Consumer groups of the shard. A client makes at most a tenth, all of an address without sign-in a quarter.",
    ),
    Setting(
        "schedule",
        "address",
        "127.0.0.1:8086",
        "host:port|unix:/path",
        "Where the service listens; port 0: a free one.",
    ),
    Setting(
        "schedule",
        "roll_after_seconds",
        "129600",
        "seconds",
        "Timers stored longer ago are stored again; at most half of file_reserved_seconds.",
    ),
    Setting("schedule", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: no page."),
    Setting("schedule", "health_address", "", "host:port", "Where health is served without TLS; empty: not served."),
    Setting(
        "schedule",
        "transaction_timeout_seconds",
        "6.0",
        "seconds",
        "No producer is asked for the verdict of a half message for so long, unless the message says otherwise.",
    ),
    Setting(
        "schedule", "transaction_check_interval_seconds", "30.0", "seconds", "Between two checks of a half message."
    ),
    Setting("schedule", "transaction_check_count_max", "15", "checks", "Of a half message, before it is given up."),
    Setting(
        "gateway", "address", "127.0.0.1:8081", "host:port|unix:/path", "Where the service listens; port 0: a free one."
    ),
    Setting("gateway", "metrics_address", "", "host:port", "Where Prometheus finds the metrics; empty: no page."),
    Setting("gateway", "health_address", "", "host:port", "Where health is served without TLS; empty: not served."),
    Setting(
        "gateway",
        "shards",
        "",
        "NAME=commitlog=ADDRESS,consumequeue=ADDRESS,index=ADDRESS,consumer=ADDRESS,schedule=ADDRESS;...",
        "The shards; empty: the one of the targets.",
    ),
    Setting("gateway", "shards_file", "", "", "File of shards, one a line as in shards; read again when it changes."),
    Setting(
        "gateway",
        "shard_template",
        "",
        "NAME-{i}=commitlog=ADDRESS-{i},consumequeue=ADDRESS-{i},index=ADDRESS-{i},consumer=ADDRESS-{i},schedule=ADDRESS-{i}",
        "Shards by ordinal {i}, from 0 on; with replicas `NAME-{i}@REPLICA=...;` for each.",
    ),
    Setting("gateway", "shard_count", "1", "shards", "Ordinals of the template that always exist."),
    Setting("gateway", "shard_count_max", "1000", "shards", "Ordinals below this join when their commitlog answers."),
    Setting(
        "gateway", "shards_poll_seconds", "5.0", "seconds", "Interval between checks of the file or the next ordinals."
    ),
    Setting(
        "gateway",
        "builder_wait_millis",
        "50",
        "milliseconds",
        "Longest wait of a query for what the log had when it arrived; 0: none.",
    ),
    Setting(
        "gateway",
        "read_from",
        "leader",
        "leader|any|replica",
        "Which replicas answer a request that does not choose: leader, any (cold records, and while nobody leads) or replica.",
    ),
    Setting(
        "gateway",
        "receive_invisible_millis_min",
        "10000",
        "milliseconds",
        "Shortest invisible time of ReceiveMessage (RocketMQ's minInvisibleTimeMillsForRecv).",
    ),
    Setting(
        "gateway",
        "poll_millis_min",
        "5000",
        "milliseconds",
        "Shortest wait of ReceiveMessage (RocketMQ's grpcClientConsumerMinLongPollingTimeoutMillis).",
    ),
    Setting(
        "gateway",
        "delivery_delay_seconds_max",
        "86400",
        "seconds",
        "How far ahead official clients may set the delivery of a message.",
    ),
    Setting(
        "gateway",
        "cluster_name",
        "DefaultCluster",
        "",
        "Replies to requests go to the topic <cluster_name>_REPLY_TOPIC; the same on every gateway.",
    ),
    Setting(
        "gateway",
        "page_token_secret",
        "reput",
        "",
        "Encrypts page tokens; the same on every gateway of the same clients.",
        secret=True,
    ),
    Setting("gateway", "archive", "", "", "Archive of the shards, a directory; empty: none. Needs pyarrow."),
    Setting("gateway", "cold", "", "s3://BUCKET/PREFIX", "Cold tier of the shards; empty: none. Needs pyarrow."),
    Setting("gateway", "cold_cache", "", "", "Directory for what was read from the cold tier; of one gateway."),
    Setting("gateway", "cold_cache_bytes", "1073741824", "bytes", "Limit of that directory."),
    Setting("gateway", "console", "on", "on|off", "Whether there is a console (docs/console.md)."),
    Setting(
        "gateway", "console_address", "127.0.0.1:8080", "host:port", "Where the console listens; port 0: a free one."
    ),
    Setting("gateway", "console_address_file", "", "", "File that gets the console's bound address."),
    Setting(
        "gateway",
        "console_host_names",
        "",
        "name,...|*",
        "Host names that browsers may use; IPs and localhost: always.",
    ),
    Setting("gateway", "console_reports", "", "", "Directory of the pipeline's reports that it shows; empty: none."),
    Setting("gateway", "console_schemas", "", "", "Directory of the schemas of message bodies; empty: none."),
    Setting("gateway", "public_tls", "true", "true|false", "Whether clients use TLS where there is a certificate."),
    Setting("gateway", "public_tls_certificate", "", "", "PEM chain shown to clients; empty: tls_certificate."),
    Setting("gateway", "public_tls_key", "", "", "PEM file of its private key."),
    Setting("gateway", "client_ca", "", "", "PEM file: clients must show a certificate signed by it; empty: none."),
    Setting("gateway", "auth", "off", "on|off", "Whether clients must sign in; on: access must be granted."),
    Setting("gateway", "access_file", "", "", "TOML file of the rights of clients (docs/security.md)."),
    Setting("gateway", "jwt_keys_file", "", "", "JWKS file of the issuers of accepted JWTs; empty: no JWTs."),
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
        "REPUT_CONTEXT",
        "REPUT_CONTEXTS",
        "REPUT_TZ",
    }
)

# What Kubernetes puts into every container for a Service called reput or reput-something.
_KUBERNETES_NAME = re.compile(r"REPUT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_\w+)")
_KUBERNETES_PORT = re.compile(r"REPUT_(\w+_)?PORT")
_KUBERNETES_PORT_VALUE = re.compile(r"(tcp|udp|sctp)://")


def is_from_kubernetes(name: str, value: str) -> bool:
    """Whether Kubernetes made this environment variable for a Service."""
    if _KUBERNETES_NAME.fullmatch(name):
        return True
    return bool(_KUBERNETES_PORT.fullmatch(name) and _KUBERNETES_PORT_VALUE.match(value))


def suggestion(name: str, possible: list[str]) -> str:
    """` Did you mean ...?` with the nearest of the possible names, or nothing when none is near."""
    near = difflib.get_close_matches(name, possible, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else ""
