"""Settings of a process: flag, then environment, then settings file, then broker.conf, then default.

A component's `settings.py` subclasses `ServiceSettings` (or `StoreSettings`, for one that works on a store root):

    class IndexSettings(StoreSettings):
        address: str = "127.0.0.1:8084"
        hash_slot_count: int = pydantic.Field(5_000_000, ge=1)

and its `__main__` reads them with `load_from_process("index", IndexSettings)`. Field names are the names in
services/setting_names.py: those with the component's name belong to it, the others are shared. A name that nobody has
is an InvalidSettingError with the nearest real one, wherever it stands; an empty environment variable counts as not
set.

Files: `.conf` and `.properties` are a RocketMQ broker.conf, `.toml` is TOML, any other is TOML if it parses as such and
a broker.conf if not. A RocketMQ name that is no setting here is not an error: `Origins.ignored_names` lists it.
"""

import argparse
import dataclasses
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pydantic

from services.broker_conf import read_broker_conf
from services.setting_names import (
    BY_ENVIRONMENT_NAME,
    COMMAND_ENVIRONMENT_NAMES,
    COMPONENTS,
    PREFIX,
    SETTINGS,
    SHARED,
    Setting,
    is_from_kubernetes,
    suggestion,
)
from store.errors import InvalidSettingError

DEFAULT = "default"


class ServiceSettings(pydantic.BaseModel):
    """What every service has. Frozen; an unknown field is an error.

    Attributes:
        address: where to listen, `HOST:PORT` (port 0 = a free one) or `unix:/path`.
        address_file: gets the bound address once the service listens.
        parent_pid: the process with which this one ends at once.
        log_level: least level of log lines.
        worker_count: calls, and as many append streams, worked on at the same time.
        metrics_address: `HOST:PORT` of the page for Prometheus; empty = none.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    address: str = "127.0.0.1:0"
    address_file: Path | None = None
    parent_pid: int | None = None
    log_level: str = "info"
    worker_count: int = pydantic.Field(64, ge=4, le=1024)
    metrics_address: str = ""


class StoreSettings(ServiceSettings):
    """What a service on a store root has besides.

    Attributes:
        store: the store root.
        read_only: write nothing under it and take no lock.
        broker_name: the shard's name.
        store_host: `IP:port` written into records.
    """

    store: Path = Path("store")
    read_only: bool = False
    broker_name: str = pydantic.Field("broker-a", min_length=1)
    store_host: str = "127.0.0.1:10911"


class Origins(dict[str, str]):
    """Where each field's value came from, by field name: `flag --store`, `environment REPUT_STORE`, `default`, ...

    Attributes:
        ignored_names: names in a broker.conf that are no settings here.
        ignored_source: that file; empty when there was none.
    """

    ignored_names: tuple[str, ...] = ()
    ignored_source: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigRow:
    """One line of `reput config`.

    Attributes:
        setting: which.
        value: as text, as given; a secret shows as `***`.
        origin: as in `Origins`.
    """

    setting: Setting
    value: str
    origin: str


Model = TypeVar("Model", bound=pydantic.BaseModel)
Key = tuple[str, str]


def load_settings(
    component: str,
    model: type[Model],
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | str | None = None,
) -> tuple[Model, Origins]:
    """The settings of a component and where each came from.

    Args:
        component: `commitlog`, `consumequeue`, `index` or `gateway`.
        model: its settings class.
        flags: field name -> value; a value of None was not given.
        environ: default: this process's environment.
        config: settings file; default: what the flag `config` or REPUT_CONFIG names.

    Raises:
        InvalidSettingError: a name nobody has, a value that does not fit, or a file that cannot be read; metadata has
            `name` and `source`.
    """
    given, ignored, ignored_source = _gather(component, flags or {}, environ, config)
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


def config_rows(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | str | None = None,
) -> tuple[list[ConfigRow], tuple[str, ...]]:
    """Every setting of every component with its value and origin, and the names in a broker.conf that are ignored.

    Args:
        flags: shared settings by name, those of a component as `component.name`.
        environ: default: this process's environment.
        config: settings file; default as for `load_settings`.

    Raises:
        InvalidSettingError: a name nobody has, or a file that cannot be read. Values are checked by their owners.
    """
    given, ignored, _ = _gather("", flags or {}, environ, config)
    rows = []
    for setting in SETTINGS:
        value, origin = given.get((setting.component, setting.name), (setting.default, DEFAULT))
        text = str(value).lower() if isinstance(value, bool) else str(value)
        rows.append(ConfigRow(setting, "***" if setting.secret and text else text, origin))
    return rows, ignored


def _gather(
    component: str, flags: Mapping[str, object], environ: Mapping[str, str] | None, config: Path | str | None
) -> tuple[dict[Key, tuple[object, str]], tuple[str, ...], str]:
    """All given values with their origins, the strongest source winning; then ignored names and their file."""
    environ = os.environ if environ is None else environ
    from_environment = _read_environment(environ)
    from_flags = {
        _flag_key(component, name): (value, f"flag --{name.rpartition('.')[2].replace('_', '-')}")
        for name, value in flags.items()
        if value is not None
    }
    config_key = (SHARED, "config")
    named = config or from_flags.get(config_key, from_environment.get(config_key, ("", "")))[0]
    given: dict[Key, tuple[object, str]] = {}
    ignored: tuple[str, ...] = ()
    ignored_source = ""
    if named:
        given, ignored = _read_file(Path(str(named)))
        ignored_source = str(named) if ignored else ""
    given |= from_environment | from_flags
    if config:
        given[config_key] = (str(config), "flag --config")
    broker_conf = given.get((SHARED, "broker_conf"), ("", ""))[0]
    if broker_conf:
        weakest, more_ignored = _read_broker_conf(Path(str(broker_conf)))
        given = weakest | given
        ignored, ignored_source = ignored + more_ignored, str(broker_conf) if more_ignored else ignored_source
    return given, ignored, ignored_source


def _flag_key(component: str, name: str) -> Key:
    owner, _, short = name.rpartition(".")
    key = (owner or component, short)
    return key if any((setting.component, setting.name) == key for setting in SETTINGS) else (SHARED, short)


def _read_environment(environ: Mapping[str, str]) -> dict[Key, tuple[object, str]]:
    given: dict[Key, tuple[object, str]] = {}
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or value == "" or name in COMMAND_ENVIRONMENT_NAMES:
            continue
        setting = BY_ENVIRONMENT_NAME.get(name)
        if setting is not None:
            given[setting.component, setting.name] = (value, f"environment {name}")
        elif not is_from_kubernetes(name, value):
            raise InvalidSettingError(
                f"no service has a setting {name}.{suggestion(name, list(BY_ENVIRONMENT_NAME))}"
                " `reput config` lists them all",
                name=name,
                source="environment",
            )
    return given


def _read_file(path: Path) -> tuple[dict[Key, tuple[object, str]], tuple[str, ...]]:
    if path.suffix in (".conf", ".properties"):
        return _read_broker_conf(path)
    try:
        return _read_toml(path, tomllib.loads(_read_text(path))), ()
    except tomllib.TOMLDecodeError as error:
        if path.suffix == ".toml":
            raise InvalidSettingError(f"{path} is no TOML: {error}", name=str(path), source=path) from error
        return _read_broker_conf(path)


def _read_toml(path: Path, table: Mapping[str, Any]) -> dict[Key, tuple[object, str]]:
    given: dict[Key, tuple[object, str]] = {}
    for name, value in table.items():
        if name in COMPONENTS and isinstance(value, dict):
            for inner_name, inner_value in value.items():
                setting = _known(name, inner_name, path)
                given[name, inner_name] = (inner_value, f"{path} {setting.toml_name}")
        else:
            given[SHARED, name] = (value, f"{path} {_known(SHARED, name, path).toml_name}")
    return given


def _known(component: str, name: str, path: Path) -> Setting:
    """The setting of that name; a nested table counts as a name that nobody has."""
    for setting in SETTINGS:
        if (setting.component, setting.name) == (component, name):
            return setting
    where = f"[{component}] {name}" if component else name
    possible = [setting.toml_name for setting in SETTINGS] + [f"[{known}]" for known in COMPONENTS]
    raise InvalidSettingError(
        f"{path}: no service has a setting {where}.{suggestion(where, possible)} `reput config` lists them all",
        name=where,
        source=path,
    )


def _read_broker_conf(path: Path) -> tuple[dict[Key, tuple[object, str]], tuple[str, ...]]:
    conf = read_broker_conf(_read_text(path), str(path))
    return {key: (value, f"{path} {names}") for key, (value, names) in conf.values.items()}, conf.ignored_names


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettingError(
            f"the settings file {path} cannot be read: {error}", name="REPUT_CONFIG", source=path
        ) from error


def _invalid_value(
    component: str, invalid: pydantic.ValidationError, values: Mapping[str, object], origins: Origins
) -> InvalidSettingError:
    problems = []
    for problem in invalid.errors():
        field = str(problem["loc"][0]) if problem["loc"] else component
        problems.append(f"{field} = {values.get(field)!r} ({origins.get(field, DEFAULT)}): {problem['msg']}")
    first = str(invalid.errors()[0]["loc"][0]) if invalid.errors()[0]["loc"] else component
    return InvalidSettingError(
        f"settings of {component}: {'; '.join(problems)}", name=first, source=origins.get(first, DEFAULT)
    )


def print_and_exit(error: InvalidSettingError) -> NoReturn:
    """For a `__main__`: the error as one line on stderr, exit code 2."""
    print(f"reput: {error.message}", file=sys.stderr)
    raise SystemExit(2)
