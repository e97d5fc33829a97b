"""Where the gateway finds its shards."""

import pytest

from gateway.settings import GatewaySettings, ShardTargets
from services.setting_names import SETTINGS
from services.settings import load_settings
from store.errors import InvalidSettingError


def test_without_shards_the_targets_make_one():
    settings, _ = load_settings(
        "gateway", GatewaySettings, environ={"REPUT_BROKER_NAME": "b", "REPUT_INDEX_TARGET": "unix:/run/index"}
    )

    assert settings.shard_targets() == (ShardTargets("b", "127.0.0.1:8082", "127.0.0.1:8083", "unix:/run/index"),)


def test_several_shards_are_told_by_name():
    text = "broker-a=a:1,a:2,a:3; broker-b=[::1]:1,unix:/run/q,b:3;"
    settings, _ = load_settings("gateway", GatewaySettings, environ={"REPUT_GATEWAY_SHARDS": text})

    assert settings.shard_targets() == (
        ShardTargets("broker-a", "a:1", "a:2", "a:3"),
        ShardTargets("broker-b", "[::1]:1", "unix:/run/q", "b:3"),
    )


@pytest.mark.parametrize("text", ["a", "a=1", "a=1,2", "a=1,2,3,4", "=1,2,3", "a=1,,3", "a=1,2,3;a=4,5,6"])
def test_what_names_no_shards_is_refused(text):
    with pytest.raises(InvalidSettingError):
        load_settings("gateway", GatewaySettings, environ={"REPUT_GATEWAY_SHARDS": text})


def test_every_setting_is_listed():
    listed = {setting.name for setting in SETTINGS if setting.component in ("", "gateway")}

    assert set(GatewaySettings.model_fields) <= listed
