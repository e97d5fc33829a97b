"""The list of setting names and the settings classes of the components are one truth."""

import importlib

import pydantic
import pytest

from services.settings.setting_names import COMPONENTS, SETTINGS, SHARED

MODULES = {"gateway": "gateway.settings"} | {name: f"{name}_svc.settings" for name in COMPONENTS if name != "gateway"}


def model_of(component: str) -> type[pydantic.BaseModel]:
    module = importlib.import_module(MODULES[component])
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, pydantic.BaseModel) and value.__module__ == module.__name__
    ]
    # The last one defined is the component's; others are parts of it.
    return own[-1]


def as_text(value: object) -> str:
    if value is None or value is pydantic.fields.PydanticUndefined:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_setting_of_a_component_is_listed_with_its_default(component):
    listed = {setting.name: setting.default for setting in SETTINGS if setting.component == SHARED}
    listed |= {setting.name: setting.default for setting in SETTINGS if setting.component == component}
    defaults = {
        name: as_text(field.get_default(call_default_factory=True))
        for name, field in model_of(component).model_fields.items()
    }

    assert {name: listed.get(name) for name in defaults} == defaults


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_listed_setting_of_a_component_is_read_by_it(component):
    listed = {setting.name for setting in SETTINGS if setting.component == component}

    assert listed <= set(model_of(component).model_fields)


def test_no_name_is_listed_twice():
    names = [setting.environment_name for setting in SETTINGS]

    assert len(names) == len(set(names))


def test_each_setting_says_what_it_means_in_one_line():
    wrong = [one.environment_name for one in SETTINGS if not one.help.endswith(".") or "\n" in one.help]

    assert wrong == []
