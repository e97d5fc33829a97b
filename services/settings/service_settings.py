"""Settings of a process: flag, then environment, then settings file, then broker.conf, then default.

A component's `settings.py` subclasses `ServiceSettings` (or `StoreSettings`, for one that works on a store root):

    class IndexSettings(StoreSettings):
        address: str = listens_at("127.0.0.1:8084")
        hash_slot_count: int = setting(5_000_000, "Hash slots of an index file.", unit="slots", ge=1)

and its `__main__` reads them with `load_from_process("index", IndexSettings)`. Field names are the names in
services/settings/setting_names.py: those with the component's name belong to it, the others are shared. An unknown name, in any
source, is an InvalidSettingError that suggests the nearest known one. An empty environment variable counts as not set. A
RocketMQ name in a file that is no setting here is no error: `Origins.ignored_names` lists it.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self, TypeVar

import pydantic

from services.rocketmq.address import parse_address, parse_mirror
from services.settings.certificates import TlsFiles, client_context, parse_identities
from services.settings.setting_names import SETTINGS, SHARED
from services.settings.setting_sources import DEFAULT, ConfigRow, config_rows, gather
from store.errors import InvalidArgumentError, InvalidSettingError
from store.files.umask import UMASK_PATTERN
from store.format.delivery.delay_levels import DELAY_LEVELS_DEFAULT, parse_delay_levels

if TYPE_CHECKING:
    import ssl

__all__ = [
    "DEFAULT",
    "ConfigRow",
    "Origins",
    "ServiceSettings",
    "StoreSettings",
    "TlsFiles",
    "config_rows",
    "load_from_process",
    "load_settings",
    "parse_flags",
    "print_and_exit",
]


# The names in the certificates of the services.
IDENTITIES_DEFAULT = (
    "gateway=spiffe://reput/gateway;consumequeue=spiffe://reput/consumequeue;index=spiffe://reput/index;"
    "consumer=spiffe://reput/consumer;schedule=spiffe://reput/schedule;commitlog=spiffe://reput/commitlog"
)
# Where each service listens when nothing else is said, on loopback.
TARGETS = {
    "commitlog": "127.0.0.1:8082",
    "consumequeue": "127.0.0.1:8083",
    "index": "127.0.0.1:8084",
    "consumer": "127.0.0.1:8085",
    "schedule": "127.0.0.1:8086",
}
SECRET_NAMES = frozenset(setting.name for setting in SETTINGS if setting.secret)


@contextlib.contextmanager
def as_value_error() -> Iterator[None]:
    """An InvalidArgumentError inside the block becomes the ValueError that a validator of pydantic raises."""
    try:
        yield
    except InvalidArgumentError as error:
        raise ValueError(error.message) from error


def setting(
    default: Any, help: str, *, unit: str = "", shared: bool = False, secret: bool = False, **bounds: Any
) -> Any:
    """A field of a settings class; tools/settings_table.py makes the table, help texts and schemas of it.

    Args:
        default: its value where no source has one.
        help: one line.
        unit: of the value; empty where the type says it.
        shared: it has one name for all components; else each has its own.
        secret: the value is never printed.
        bounds: `ge`, `pattern` and so on; see pydantic.Field.
    """
    extra: Any = {"unit": unit, "shared": shared, "secret": secret}
    return pydantic.Field(default, description=help, json_schema_extra=extra, **bounds)


def listens_at(address: str) -> Any:
    """The setting `address` of a component."""
    return setting(address, "Where the service listens; port 0: a free one.", unit="host:port|unix:/path")


def target(service: str) -> Any:
    """The setting that says where a service is."""
    return setting(TARGETS[service], f"Where the {service} service is.", unit="host:port|unix:/path", shared=True)


def authority_of_nameservers() -> Any:
    """The setting `nameservers_ca` of components that call name servers."""
    help = "PEM file: the authority of name servers with tls://; empty: those that this machine trusts."
    return setting(None, help, shared=True)


class ServiceSettings(pydantic.BaseModel):
    """The settings that every service has. Frozen; an unknown field is an error.

    Attributes:
        connection_poll_count: no setting: what a kind of service adds to the calls of one connection.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    connection_poll_count: ClassVar[int] = 0

    address: str = listens_at("127.0.0.1:0")
    address_file: Path | None = setting(
        None, "File for the bound address, written when the service listens.", shared=True
    )
    # Also when it has tried and failed; a service that ends by itself writes the cause into it.
    ready_file: Path | None = setting(None, "File that is made when the service has opened its files.", shared=True)
    parent_pid: int | None = setting(None, "Process with which this one ends at once.", unit="pid", shared=True)
    log_level: str = setting("info", "Least level of log lines.", unit="debug|info|warning|error", shared=True)
    # store/files/umask.py.
    umask: str = setting(
        "",
        "Permissions that new files lack; empty: the inherited umask and 027.",
        unit="octal digits",
        shared=True,
        pattern=UMASK_PATTERN,
    )
    # Of a client that is alone; of all clients twice as many, and four times as many append streams
    # (services/serving/lanes.py).
    worker_count: int = setting(
        64, "Calls, and as many streams, that a service works on.", unit="threads", shared=True, ge=4, le=1024
    )
    # store/compiled/loading.py.
    kernels: Literal["auto", "eager", "off"] = setting(
        "auto", "Compiled codecs: off for plain Python; auto and eager are accepted and change nothing.", shared=True
    )
    metrics_address: str = setting("", "Where Prometheus finds the metrics; empty: no page.", unit="host:port")
    otlp_endpoint: str = setting(
        "", "Where traces go, by OTLP/gRPC; empty: as OTEL_... variables say.", unit="http://host:port", shared=True
    )
    # Calls under way go on. Behind a name of several addresses, a caller sees new ones only when it connects.
    connection_age_seconds: int = setting(
        0,
        "Callers connect anew so often, to see new addresses; 0: never, with certificates each hour.",
        unit="seconds",
        shared=True,
        ge=0,
    )
    # Callers see it, and the services that this one calls.
    tls_certificate: Path | None = setting(
        None, "PEM chain that this process shows; empty: no TLS (docs/security.md).", shared=True
    )
    tls_key: Path | None = setting(None, "PEM file of its private key.", shared=True)
    tls_ca: Path | None = setting(
        None, "PEM file of the authority that signs the certificates of all services.", shared=True
    )
    # services/serving/identity.py.
    allowed_identities: str = setting(
        IDENTITIES_DEFAULT, "Which names in certificates are which service.", unit="role=identity,...;...", shared=True
    )
    health_address: str = setting("", "Where health is served without TLS; empty: not served.", unit="host:port")

    @pydantic.field_validator("allowed_identities")
    @classmethod
    def _are_identities(cls, value: str) -> str:
        parse_identities(value)
        return value

    @pydantic.model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        given = [path is not None for path in (self.tls_certificate, self.tls_key, self.tls_ca)]
        if any(given) and not all(given):
            raise ValueError("tls_certificate, tls_key and tls_ca are set together or not at all")
        return self

    @property
    def tls_files(self) -> TlsFiles | None:
        """The certificate that this process shows to other services, and the authority that it accepts."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_key, self.tls_ca)

    def client_context(self, ca: Path | None) -> "ssl.SSLContext":
        """What a connection to a server of others is opened with, which may ask for the certificate of this process.

        Args:
            ca: PEM, of the server's authority; None: those that this machine trusts.

        Raises:
            OSError: the files, as they are now, cannot be used.
        """
        own = self.tls_files
        return client_context(ca) if own is None else client_context(ca, own.certificate, own.key)

    @property
    def server_tls_files(self) -> TlsFiles | None:
        """The certificate shown to callers; with a `ca`, they must show a certificate of it."""
        return self.tls_files

    @property
    def checks_identities(self) -> bool:
        """Whether callers are checked by `allowed_identities`."""
        return self.tls_files is not None and not self.address.startswith("unix:")


class StoreSettings(ServiceSettings):
    """The further settings of a service on a store root."""

    store: Path = setting(Path("store"), "Store root, laid out like RocketMQ's storePathRootDir.", shared=True)
    read_only: bool = setting(False, "Write nothing under the store root and take no lock.", shared=True)
    # ADR 0063.
    follow: bool = setting(
        False, "Follow the log of a broker that runs; write nothing under the store root.", shared=True
    )
    derived: Path | None = setting(None, "With follow: the directory for queues, index and our own state.", shared=True)
    # ADR 0064.
    mirror: str = setting(
        "",
        "The HA port of a RocketMQ broker whose log this store copies; appends are refused.",
        unit="rocketmq://host:port",
        shared=True,
    )
    mirror_broker: str = setting(
        "",
        "The same broker's own port, asked for topics, groups and positions; empty: not asked.",
        unit="host:port",
        shared=True,
    )
    broker_name: str = setting("broker-a", "The shard's name.", shared=True, min_length=1)
    # Behind it is the shard's remoting door, if it has one (ADR 0127).
    store_host: str = setting(
        "127.0.0.1:10911",
        "Store host in records and ids, which clients over remoting dial.",
        unit="IP:port",
        shared=True,
    )
    # store/format/delivery/delay_levels.py.
    delay_levels: str = setting(
        DELAY_LEVELS_DEFAULT,
        "Delays of the delay levels of the store; RocketMQ's messageDelayLevel.",
        unit="<n>s|m|h|d ...",
        shared=True,
    )

    @pydantic.field_validator("delay_levels")
    @classmethod
    def _are_delay_levels(cls, value: str) -> str:
        with as_value_error():
            parse_delay_levels(value)
        return value

    @pydantic.field_validator("mirror", "mirror_broker")
    @classmethod
    def _are_addresses(cls, value: str, info: pydantic.ValidationInfo) -> str:
        with as_value_error():
            if value:
                (parse_mirror if info.field_name == "mirror" else parse_address)(value)
        return value

    @pydantic.model_validator(mode="after")
    def _can_mirror(self) -> Self:
        if self.mirror and (self.read_only or self.follow):
            raise ValueError("mirror is set with read_only or follow: a mirror writes to its store")
        if self.mirror_broker and not self.mirror:
            raise ValueError("mirror_broker is set without mirror: set both")
        return self

    @pydantic.model_validator(mode="after")
    def _follows_elsewhere(self) -> Self:
        if not self.follow:
            if self.derived is not None:
                raise ValueError("derived is set without follow: queues and index of a store lie in its root")
            return self
        if self.read_only:
            raise ValueError("follow and read_only are both set: follow writes nothing under the store root already")
        if self.derived is None:
            raise ValueError("follow is set without derived: name the directory for queues and index")
        store, derived = self.store.resolve(), self.derived.resolve()
        if store == derived or store in derived.parents or derived in store.parents:
            raise ValueError(f"derived is {derived}, store is {store}: neither may lie in the other")
        if not store.is_dir():
            raise ValueError(f"{store} is no directory: name the store root of the broker")
        return self

    @property
    def writes_no_records(self) -> bool:
        """Whether nothing may be appended to the log."""
        return self.read_only or self.follow or bool(self.mirror)

    @property
    def has_live_broker(self) -> bool:
        """Whether a broker of RocketMQ delivers what this store shows."""
        return self.follow or bool(self.mirror_broker)

    @property
    def derived_root(self) -> Path:
        """The root of what is derived from the log, and of our own state."""
        return self.derived or self.store

    @property
    def delay_levels_millis(self) -> tuple[int, ...]:
        """The delays of the levels; level 1 is the first."""
        return parse_delay_levels(self.delay_levels)


class Origins(dict[str, str]):
    """The source of each field's value, by field name: `flag --store`, `environment REPUT_STORE`, `default`, ...

    Attributes:
        ignored_names: names in a broker.conf that are no settings here.
        ignored_source: that file; empty when there was none.
    """

    ignored_names: tuple[str, ...] = ()
    ignored_source: str = ""


Model = TypeVar("Model", bound=pydantic.BaseModel)


def load_settings(
    component: str,
    model: type[Model],
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | str | None = None,
) -> tuple[Model, Origins]:
    """The settings of a component and the source of each.

    Args:
        component: `commitlog`, `consumequeue`, `index`, `consumer`, `schedule` or `gateway`.
        model: its settings class.
        flags: field name -> value; a value of None was not given.
        environ: default: this process's environment.
        config: settings file; default: what the flag `config` or REPUT_CONFIG names.

    Raises:
        InvalidSettingError: an unknown name, an invalid value, or a file that cannot be read; metadata has
            `name` and `source`.
    """
    given, ignored, ignored_source = gather(component, flags or {}, environ, config)
    origins = Origins()
    origins.ignored_names, origins.ignored_source = ignored, ignored_source
    values: dict[str, object] = {}
    for field in model.model_fields:
        origins[field] = DEFAULT
        for key in ((component, field), (SHARED, field)):
            if key in given:
                values[field], origins[field] = given[key]
                break
    try:
        return model.model_validate(values), origins
    except pydantic.ValidationError as invalid:
        raise _invalid_value(component, invalid, values, origins) from invalid


def load_from_process(component: str, model: type[Model], argv: Sequence[str] | None = None) -> tuple[Model, Origins]:
    """The settings from this process's command line and environment, for a `__main__`.

    Raises:
        InvalidSettingError: as `load_settings`.
        SystemExit: 2 for a flag that does not exist, 0 after `--help`.
    """
    return load_settings(component, model, parse_flags(component, model, argv))


def parse_flags(component: str, model: type[pydantic.BaseModel], argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Field name -> text or bool for each flag given; a bool has `--read-only` and `--no-read-only`."""
    program = f"python -m {component}" if component == "gateway" else f"python -m {component}_svc"
    parser = argparse.ArgumentParser(program, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="settings file: TOML, or a RocketMQ broker.conf")
    helps = {setting.name: setting.help for setting in SETTINGS if setting.component in (SHARED, component)}
    for field, info in model.model_fields.items():
        flag, text = "--" + field.replace("_", "-"), helps.get(field, "").replace("%", "%%")
        if info.annotation is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            parser.add_argument(flag, metavar="VALUE", help=text)
    parsed = vars(parser.parse_args(argv))
    return {name: value for name, value in parsed.items() if value is not None}


def _invalid_value(
    component: str, invalid: pydantic.ValidationError, values: Mapping[str, object], origins: Origins
) -> InvalidSettingError:
    problems = []
    for problem in invalid.errors():
        field = str(problem["loc"][0]) if problem["loc"] else component
        shown = "***" if field in SECRET_NAMES else repr(values.get(field))
        problems.append(f"{field} = {shown} ({origins.get(field, DEFAULT)}): {problem['msg']}")
    first = str(invalid.errors()[0]["loc"][0]) if invalid.errors()[0]["loc"] else component
    return InvalidSettingError(
        f"settings of {component}: {'; '.join(problems)}", name=first, source=origins.get(first, DEFAULT)
    )


def print_and_exit(error: InvalidSettingError) -> NoReturn:
    """For a `__main__`: print the error as one line on stderr and exit with code 2."""
    print(f"reput: {error.message}", file=sys.stderr)
    raise SystemExit(2)
