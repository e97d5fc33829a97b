"""The sources of settings: flag, then environment, then settings file, then broker.conf; values are text here.

`service_settings.py` gives them types. This file needs no types, so that the command and `reput serve` need not load pydantic.

Files: `.conf` and `.properties` are a RocketMQ broker.conf, `.toml` is TOML, any other is TOML if it parses as such and
a broker.conf if not.
"""

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.settings.broker_conf import read_broker_conf
from services.settings.setting_names import (
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
Key = tuple[str, str]  # component and name


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigRow:
    """One line of `reput config`.

    Attributes:
        setting: the setting.
        value: as given; a secret shows as `***`.
        origin: as in `Origins`.
    """

    setting: Setting
    value: str
    origin: str


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
        InvalidSettingError: an unknown name, or a file that cannot be read. Components check values themselves.
    """
    given, ignored, _ = gather("", flags or {}, environ, config)
    rows = []
    for setting in SETTINGS:
        value, origin = given.get((setting.component, setting.name), (setting.default, DEFAULT))
        text = str(value).lower() if isinstance(value, bool) else str(value)
        rows.append(ConfigRow(setting, "***" if setting.secret and text else text, origin))
    return rows, ignored


def gather(
    component: str, flags: Mapping[str, object], environ: Mapping[str, str] | None, config: Path | str | None
) -> tuple[dict[Key, tuple[object, str]], tuple[str, ...], str]:
    """All given values with their origins, from the first source that has them; then ignored names and their file."""
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
                f"unknown setting {name}.{suggestion(name, list(BY_ENVIRONMENT_NAME))} `reput config` lists them all",
                name=name,
                source="environment",
            )
    return given


def _read_file(path: Path) -> tuple[dict[Key, tuple[object, str]], tuple[str, ...]]:
    if path.suffix in (".conf", ".properties"):
        return _read_broker_conf(path)
    try:
        return _read_toml(path, tomllib.loads(_read_text(path))), ()
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        if path.suffix == ".toml":
            raise InvalidSettingError(f"{path} is not valid TOML: {error}", name=str(path), source=path) from error
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
    """The setting of that name; a nested table counts as an unknown name."""
    for setting in SETTINGS:
        if (setting.component, setting.name) == (component, name):
            return setting
    where = f"[{component}] {name}" if component else name
    possible = [setting.toml_name for setting in SETTINGS] + [f"[{known}]" for known in COMPONENTS]
    raise InvalidSettingError(
        f"{path}: unknown setting {where}.{suggestion(where, possible)} `reput config` lists them all",
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
