"""Settings of a process: flag, then environment, then settings file, then broker.conf, then default.

A component's `settings.py` subclasses `ServiceSettings` (or `StoreSettings`, for one that works on a store root):

    class IndexSettings(StoreSettings):
        address: str = "127.0.0.1:8084"
        hash_slot_count: int = pydantic.Field(5_000_000, ge=1)

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
from typing import Any, ClassVar, Literal, NoReturn, Self, TypeVar

import pydantic

from services.rocketmq.address import parse_address, parse_mirror
from services.settings.identity_names import parse_identities
from services.settings.setting_names import IDENTITIES_DEFAULT, SETTINGS, SHARED
from services.settings.setting_sources import DEFAULT, ConfigRow, config_rows, gather
from services.settings.tls_files import TlsFiles
from store.errors import InvalidArgumentError, InvalidSettingError
from store.files.umask import UMASK_PATTERN
from store.format.delivery.delay_levels import DELAY_LEVELS_DEFAULT, parse_delay_levels

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


SECRET_NAMES = frozenset(setting.name for setting in SETTINGS if setting.secret)


@contextlib.contextmanager
def as_value_error() -> Iterator[None]:
    """An InvalidArgumentError inside the block becomes the ValueError that a validator of pydantic raises."""
    try:
        yield
    except InvalidArgumentError as error:
        raise ValueError(error.message) from error


class ServiceSettings(pydantic.BaseModel):
    """What every service has. Frozen; an unknown field is an error.

    Attributes:
        address: where to listen, `HOST:PORT` (port 0 = a free one) or `unix:/path`.
        address_file: gets the bound address when the service listens.
        ready_file: is made when the service has opened its files, or has tried and failed; a service that ends by
            itself writes the cause into it.
        parent_pid: the process with which this one ends at once.
        log_level: least level of log lines.
        umask: what new files are not permitted; empty: the inherited umask and 027 (store/files/umask.py).
        worker_count: calls of a client that is alone that run at the same time; of all clients twice as many, and four times as
            many append streams (services/serving/lanes.py).
        connection_age_seconds: callers reconnect so often, calls under way go on; 0 = never, or each hour when they
            show certificates. Behind a name of several addresses, a caller sees new ones only when it connects.
        kernels: whether the compiled codecs are loaded with the first load, at once, or never (store/compiled/loading.py).
        metrics_address: `HOST:PORT` of the metrics page; empty = none.
        otlp_endpoint: `http://HOST:PORT` of the collector that traces go to; empty = what `OTEL_EXPORTER_OTLP_ENDPOINT` says.
        tls_certificate: PEM chain that this process shows to its callers and to the services it calls; None = no TLS.
        tls_key: its private key.
        tls_ca: the authority that signs the certificates of all services.
        allowed_identities: the names in certificates, by service (services/serving/identity.py).
        health_address: `HOST:PORT` where only health is served, without TLS; empty = not served.
        connection_poll_count: no setting: what a kind of service adds to the calls of one connection.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    connection_poll_count: ClassVar[int] = 0

    address: str = "127.0.0.1:0"
    address_file: Path | None = None
    ready_file: Path | None = None
    parent_pid: int | None = None
    log_level: str = "info"
    umask: str = pydantic.Field("", pattern=UMASK_PATTERN)
    worker_count: int = pydantic.Field(64, ge=4, le=1024)
    kernels: Literal["auto", "eager", "off"] = "auto"
    metrics_address: str = ""
    otlp_endpoint: str = ""
    connection_age_seconds: int = pydantic.Field(0, ge=0)
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    allowed_identities: str = IDENTITIES_DEFAULT
    health_address: str = ""

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

    @property
    def server_tls_files(self) -> TlsFiles | None:
        """The certificate shown to callers; with a `ca`, they must show a certificate of it."""
        return self.tls_files

    @property
    def checks_identities(self) -> bool:
        """Whether callers are checked by `allowed_identities`."""
        return self.tls_files is not None and not self.address.startswith("unix:")


class StoreSettings(ServiceSettings):
    """The further settings of a service on a store root.

    Attributes:
        store: the store root.
        read_only: write nothing under it and take no lock.
        follow: the same, while a broker of RocketMQ writes there: its log is followed as it grows (ADR 0063).
        derived: the root of queues, index and our own state, with `follow` only.
        mirror: `rocketmq://host:port`, the HA port of a broker whose log this store copies; empty: it copies none (ADR 0064).
        mirror_broker: `host:port` of the same broker, asked for topics, groups and positions; empty: it is not asked.
        broker_name: the shard's name.
        store_host: `IP:port` written into records.
        delay_levels: the delays of the levels, as RocketMQ's `messageDelayLevel` (store/format/delivery/delay_levels.py).
    """

    store: Path = Path("store")
    read_only: bool = False
    follow: bool = False
    derived: Path | None = None
    mirror: str = ""
    mirror_broker: str = ""
    broker_name: str = pydantic.Field("broker-a", min_length=1)
    store_host: str = "127.0.0.1:10911"
    delay_levels: str = DELAY_LEVELS_DEFAULT

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
