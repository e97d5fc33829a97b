"""The JSON schema of the settings that a component takes in the chart's values, made from the service's own settings class.

Values are text in the environment of a pod, and text, numbers or booleans in a file of values. So a number may be written
either way: bounds hold for the number by `minimum` and `maximum`, for the text by a pattern.
"""

import re
from typing import Any

from services.settings.setting_names import SETTINGS, SHARED, Setting
from tools.settings_table import MODELS

# The chart makes these itself, from other values; a second one would contradict it, or be without effect.
MADE_BY_CHART = re.compile(
    r"^REPUT_(CONFIG|BROKER_CONF|STORE|BROKER_NAME|STORE_HOST|NAMESERVERS|PARENT_PID|\w+_TARGET|TLS_\w+|\w+_RECEIPT_SECRET|GATEWAY_SHARD\w*"
    r"|GATEWAY_CONSOLE|GATEWAY_PAGE_TOKEN_SECRET|COMMITLOG_COORDINATOR|COMMITLOG_REPLICA_NAME|COMMITLOG_MIN_IN_SYNC"
    r"|[A-Z]+_(METRICS_|HEALTH_|CONSOLE_|REPLICA_|REMOTING_|BROKER_)?ADDRESS)$"
)
# What pydantic takes for a boolean.
BOOLEANS = [True, False, "true", "false", "on", "off", "yes", "no", "1", "0"]
ADDRESS = r"^([^:\s]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$"
# Forms that a validator of the services checks further; the service's own words for them are in setting_names.py.
PATTERNS = {
    "host:port": rf"^$|{ADDRESS}",
    "host:port,...": r"^$|^\S+:[0-9]{1,5}(,\S+:[0-9]{1,5})*$",
    "rocketmq://host:port": r"^$|^rocketmq://\S+:[0-9]{1,5}$",
    "http://host:port": r"^$|^https?://\S+$",
    "<n>s|m|h|d ...": r"^[0-9]+[smhd]( +[0-9]+[smhd])*$",
    "HH;HH...": r"^[0-9]{1,2}(;[0-9]{1,2})*$",
}


def settings_schema(component: str) -> dict[str, Any]:
    """The schema of `COMPONENT.settings`: each setting that the component reads and the chart does not make."""
    fields = MODELS[component].model_json_schema()["properties"]
    known = [each for each in SETTINGS if each.component in (SHARED, component) and each.name in fields]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            each.environment_name: _value_schema(each, fields[each.name])
            for each in known
            if not MADE_BY_CHART.match(each.environment_name)
        },
    }


def _value_schema(setting: Setting, field: dict[str, Any]) -> dict[str, Any]:
    """The schema of one value; `field` is what pydantic says of it."""
    kind = field.get("type", "string")  # a path, or none
    bounds = {name: field[name] for name in ("minimum", "maximum", "exclusiveMinimum") if name in field}
    if kind == "boolean":
        return {"enum": BOOLEANS}
    if "enum" in field:
        return {"enum": field["enum"]}
    if re.fullmatch(r"\w+(\|\w+)+", setting.unit):
        return {"enum": setting.unit.split("|")}
    if kind == "integer":
        pattern = digits_pattern(field.get("minimum", 0), field.get("maximum"))
        return {"type": ["integer", "string"], **bounds, "pattern": pattern}
    if kind == "number":
        return {"type": ["number", "string"], **bounds, "pattern": r"^[0-9]+(\.[0-9]+)?$"}
    pattern = field.get("pattern") or PATTERNS.get(setting.unit)
    # YAML reads 027 as a number, which is another text: where the text has a form, only text will do.
    return {"type": "string", "pattern": pattern} if pattern else {"type": ["string", "number"]}


def digits_pattern(low: int, high: int | None) -> str:
    """A regular expression of the decimal digits of all integers from `low` >= 0 to `high`; None: of any from `low` on."""
    if high is None:
        longer = rf"[1-9][0-9]{{{len(str(low))},}}"
        return f"^({'|'.join([*_of_one_length(str(low), '9' * len(str(low))), longer])})$"
    found: list[str] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        shortest = 10 ** (length - 1) if length > 1 else 0
        found += _of_one_length(str(max(low, shortest)), str(min(high, 10**length - 1)))
    return f"^({'|'.join(found)})$"


def _of_one_length(low: str, high: str) -> list[str]:
    """Alternatives for the texts of digits between two of the same length, both included."""
    rest = len(low) - 1
    if not low or low == high:
        return [low]
    if low[0] == high[0]:
        return [low[0] + tail for tail in _of_one_length(low[1:], high[1:])]
    first, last, found = int(low[0]), int(high[0]), []
    if low[1:] != "0" * rest:
        found += [low[0] + tail for tail in _of_one_length(low[1:], "9" * rest)]
        first += 1
    ends = high[1:] != "9" * rest
    if first <= last - ends:
        found.append(f"[{first}-{last - ends}]" + (f"[0-9]{{{rest}}}" if rest else ""))
    return [*found, *(high[0] + tail for tail in _of_one_length("0" * rest, high[1:]))] if ends else found
