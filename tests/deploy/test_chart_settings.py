"""Values of settings in the chart: the schema refuses what a service would refuse at its start."""

import re
from pathlib import Path

import pydantic
import pytest

from services.rocketmq.remoting_server import kept_bytes_max
from services.settings.service_settings import load_settings
from services.settings.setting_names import SETTINGS
from store.errors import InvalidSettingError
from tests.deploy.test_kubernetes import _value_errors, _values
from tools.chart_readme import rows
from tools.render_manifests import CHART
from tools.settings_schema import MADE_BY_CHART, MODELS, digits_pattern, settings_schema

OTHER_NAMES = ("REPUT_COMMITLOG_FLUSH_MODE", "REPUT_GATEWAY_ARCHIVE")


def _taken(component: str, model: type[pydantic.BaseModel], name: str, value: str) -> str:
    """What the service says against the value; empty when it takes it."""
    try:
        load_settings(component, model, environ={name: value})
    except InvalidSettingError as error:
        return error.message
    return ""


@pytest.mark.parametrize("component", MODELS)
def test_every_default_that_a_service_has_may_be_given_in_the_chart(component: str) -> None:
    allowed = settings_schema(component)["properties"]
    fields = MODELS[component].model_fields
    given = {
        setting.environment_name: setting.default
        for setting in SETTINGS
        if setting.environment_name in allowed and setting.name in fields and setting.default
    }
    assert len(given) >= (5 if component == "nameserver" else 10)
    assert _value_errors(_values(**{f"{component}__settings": given})) == []


@pytest.mark.parametrize("component", MODELS)
def test_every_setting_of_a_service_is_given_by_the_chart_or_may_be_given_to_it(component: str) -> None:
    names = {
        setting.environment_name
        for setting in SETTINGS
        if setting.component in ("", component) and setting.name in MODELS[component].model_fields
    }
    allowed = settings_schema(component)["properties"].keys()
    assert {name for name in names if not MADE_BY_CHART.match(name)} == allowed


@pytest.mark.parametrize(
    ("component", "name", "value"),
    [
        ("commitlog", "REPUT_COMMITLOG_FLUSH_MODE", "sometimes"),
        ("commitlog", "REPUT_COMMITLOG_MIN_IN_SYNC", "16"),
        ("commitlog", "REPUT_COMMITLOG_FILE_SIZE_BYTES", "1GiB"),
        ("commitlog", "REPUT_COMMITLOG_FILE_SIZE_BYTES", "2147483648"),
        ("commitlog", "REPUT_COMMITLOG_DISK_FULL_RATIO_PERCENT", "0"),
        ("commitlog", "REPUT_COMMITLOG_PROPERTIES_CRC", "perhaps"),
        ("commitlog", "REPUT_COMMITLOG_LEASE_SECONDS", "4s"),
        ("commitlog", "REPUT_COMMITLOG_DELETE_WHEN_HOURS", "at four"),
        ("commitlog", "REPUT_DELAY_LEVELS", "1 second"),
        ("commitlog", "REPUT_MIRROR", "10.0.0.1:10912"),
        ("index", "REPUT_WORKER_COUNT", "3"),
        ("index", "REPUT_UMASK", "9"),
        ("consumer", "REPUT_CONSUMER_NEW_GROUPS_FROM", "middle"),
        ("gateway", "REPUT_GATEWAY_AUTH", "true"),
        ("gateway", "REPUT_KERNELS", "on"),
    ],
)
def test_a_value_that_the_service_refuses_is_refused_before_it_is_installed(
    component: str, name: str, value: str
) -> None:
    assert _taken(component, MODELS[component], name, value)
    assert _value_errors(_values(**{f"{component}__settings": {name: value}}))


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_a_setting_of_another_component_is_refused_because_it_has_no_effect(name: str) -> None:
    assert _value_errors(_values(index__settings={name: "x"}))


def test_numbers_may_be_numbers_and_are_bounded_then_too() -> None:
    assert _value_errors(_values(index__settings={"REPUT_WORKER_COUNT": 64})) == []
    assert _value_errors(_values(index__settings={"REPUT_WORKER_COUNT": 3}))
    # What YAML makes of an unquoted `on`, and of 027: other texts than those that were meant.
    assert _value_errors(_values(gateway__settings={"REPUT_GATEWAY_AUTH": True}))
    assert _value_errors(_values(index__settings={"REPUT_UMASK": 23}))


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 9), (1, 1), (4, 1024), (7, 15), (20, 99), (68, 2147), (100, 1000), (0, 2999), (5, None), (0, None)],
)
def test_the_pattern_of_digits_takes_exactly_the_numbers_between_the_bounds(low: int, high: int | None) -> None:
    pattern = re.compile(digits_pattern(low, high))
    for number in range(3_000):
        assert bool(pattern.match(str(number))) == (low <= number and (high is None or number <= high)), number
    assert not any(pattern.match(text) for text in ("", "-1", "1.5", "1e3", " 5", "5x"))


@pytest.mark.parametrize("component", ["gateway", "nameserver"])
def test_what_clients_of_rocketmq_may_have_a_pod_keep_fits_into_half_of_its_memory(component: str) -> None:
    """The limit of requests was as large as the memory of the gateway's pod."""
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    limit = yaml.safe_load((CHART / "values.yaml").read_text())[component]["resources"]["limits"]["memory"]
    memory_bytes = int(limit.removesuffix("Mi")) << 20
    assert kept_bytes_max(memory_bytes) <= memory_bytes // 2


def test_the_readme_of_the_chart_has_a_row_for_each_value() -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    text = Path(CHART / "values.yaml").read_text(encoding="utf-8")
    listed = [row.path for row in rows(text)]
    assert len(listed) == len(set(listed))
    values = yaml.safe_load(text)
    for path in listed:
        place = values
        for name in path.split("."):
            assert name in place, path
            place = place[name]
    for name, value in values.items():
        assert any(path.split(".")[0] == name for path in listed), name
        for inner in value if isinstance(value, dict) else ():
            assert name in listed or any(path.split(".")[:2] == [name, inner] for path in listed), (name, inner)
