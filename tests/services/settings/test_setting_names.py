"""The table of settings is what the settings classes say."""

import pytest

from services.settings.service_settings import ServiceSettings, setting
from services.settings.setting_names import SETTINGS
from tools import settings_table


def test_the_table_is_made_of_the_classes_as_they_are():
    assert settings_table.PATH.read_text(encoding="utf-8") == settings_table.text(), "python -m tools.settings_table"


def test_no_name_is_listed_twice():
    names = [setting.environment_name for setting in SETTINGS]

    assert len(names) == len(set(names))


def test_each_setting_says_what_it_means_in_one_line():
    wrong = [one.environment_name for one in SETTINGS if not one.help.endswith(".") or "\n" in one.help]

    assert wrong == []


def test_two_components_that_say_different_things_of_a_shared_setting_are_refused(monkeypatch):
    class Other(ServiceSettings):
        worker_count: int = setting(65, "Calls that a service works on.", unit="threads", shared=True)

    monkeypatch.setitem(settings_table.MODELS, "index", Other)
    with pytest.raises(ValueError, match=r"Other\.worker_count differs"):
        settings_table.rows()


def test_defaults_have_the_form_that_a_file_or_variable_has(monkeypatch):
    class Other(ServiceSettings):
        text: str = setting("a", "A text.")
        nothing: str | None = setting(None, "None.")
        switch: bool = setting(True, "A switch.")
        seconds: float = setting(1.0, "A time.", unit="seconds")
        secret: str = setting("s", "A secret.", secret=True)

    monkeypatch.setitem(settings_table.MODELS, "index", Other)
    rows = {name: row for component, name, *row in settings_table.rows() if component == "index"}
    assert rows["text"] == ["a", "", "A text.", False]
    assert rows["nothing"] == ["", "", "None.", False]
    assert rows["switch"] == ["true", "true|false", "A switch.", False]
    assert rows["seconds"] == ["1.0", "seconds", "A time.", False]
    assert rows["secret"] == ["s", "", "A secret.", True]
