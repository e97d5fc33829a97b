"""Write the table of all settings from the settings classes, or prove that it is fresh.

    python -m tools.settings_table            write services/settings/setting_table.py
    python -m tools.settings_table --check    exit 1 when what is committed differs from what would be written

Each service reads only its own class and refuses unknown names, also those of others: it may not import their classes, and the
command does not load pydantic. So what they need of all classes is a table of text.
"""

import argparse
import json
import pathlib
import sys
from typing import Any

import pydantic

from commitlog_svc.settings import CommitLogSettings
from consumequeue_svc.settings import ConsumeQueueSettings
from consumer_svc.settings import ConsumerSettings
from gateway.settings import GatewaySettings
from index_svc.settings import IndexSettings
from nameserver_svc.settings import NameServerSettings
from schedule_svc.settings import ScheduleSettings
from services.settings.service_settings import StoreSettings

MODELS: dict[str, type[pydantic.BaseModel]] = {
    "commitlog": CommitLogSettings,
    "consumequeue": ConsumeQueueSettings,
    "index": IndexSettings,
    "consumer": ConsumerSettings,
    "schedule": ScheduleSettings,
    "nameserver": NameServerSettings,
    "gateway": GatewaySettings,
}
PATH = pathlib.Path(__file__).parents[1] / "services" / "settings" / "setting_table.py"
HEAD = '''"""All settings of all components. Written by tools/settings_table.py from the settings classes; do not edit."""

# ruff: noqa: E501
# fmt: off

# component ("" for all), name, default as text, unit, help, whether it is secret
ROWS: tuple[tuple[str, str, str, str, str, bool], ...] = (
'''
# Read before there is a class to fill.
SOURCES = (
    ("", "config", "", "", "Settings file: TOML, or a RocketMQ broker.conf.", False),
    ("", "broker_conf", "", "", "A RocketMQ broker.conf; the settings file overrides it.", False),
)
Row = tuple[str, str, str, str, str, bool]


def rows() -> list[Row]:
    """The rows; shared settings first.

    Raises:
        ValueError: two classes say different things of one shared setting, or a field says nothing.
    """
    shared: dict[str, Row] = {row[1]: row for row in SOURCES}
    for name in (*StoreSettings.__annotations__, *StoreSettings.model_fields):
        field = StoreSettings.model_fields[name]
        if _extra(field)["shared"]:
            shared[name] = _row("", name, field)
    own: list[Row] = []
    for component, model in MODELS.items():
        for name, field in model.model_fields.items():
            if not _extra(field)["shared"]:
                own.append(_row(component, name, field))
            elif shared.setdefault(name, row := _row("", name, field)) != row:
                raise ValueError(
                    f"{model.__name__}.{name} differs from the same setting elsewhere: {row}, {shared[name]}"
                )
    return [*shared.values(), *own]


def text() -> str:
    """The module."""
    return HEAD + "".join(f"    ({', '.join(map(_literal, row))}),\n" for row in rows()) + ")\n"


def _row(component: str, name: str, field: Any) -> Row:
    default = field.get_default(call_default_factory=True)
    shown = "" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    return component, name, shown, _unit_of(field), field.description, _extra(field)["secret"]


def _unit_of(field: Any) -> str:
    if field.annotation is bool:
        return "true|false"
    choices = getattr(field.annotation, "__args__", ()) if "Literal" in str(field.annotation) else ()
    unit: str = _extra(field)["unit"] or "|".join(map(str, choices))
    return unit


def _extra(field: Any) -> dict[str, Any]:
    if field.json_schema_extra is None:
        raise ValueError(f"a setting is made by service_settings.setting, and this field is not: {field}")
    extra: dict[str, Any] = field.json_schema_extra
    return extra


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def main() -> int:
    """The command of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the table is stale")
    if not parser.parse_args().check:
        PATH.write_text(text(), encoding="utf-8")
    elif PATH.read_text(encoding="utf-8") != text():
        print("stale: services/settings/setting_table.py (run `python -m tools.settings_table`)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
