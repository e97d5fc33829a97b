"""Settings: flag, environment, file, broker.conf, default, in that order; unknown names refused; origins known."""

import pathlib

import pydantic
import pytest

from services.settings.service_settings import ServiceSettings, StoreSettings, config_rows, load_settings, parse_flags
from services.settings.setting_names import BY_ENVIRONMENT_NAME, SETTINGS
from store.errors import InvalidSettingError


class LogSettings(StoreSettings):
    """Some of the commitlog's settings."""

    file_size_bytes: int = pydantic.Field(1 << 30, ge=1024)
    flush_mode: str = "async"


@pytest.fixture
def toml(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "reput.toml"
    path.write_text('store = "/toml"\nbroker_name = "toml"\n[commitlog]\nfile_size_bytes = 3000\nflush_mode = "sync"\n')
    return path


@pytest.fixture
def broker_conf(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "broker.conf"
    path.write_text("storePathRootDir=/conf\nbrokerName=conf\nmappedFileSizeCommitLog=4000\nlistenPort=7\nbrokerId=0\n")
    return path


def test_each_source_wins_over_the_next(toml, broker_conf):
    settings, origins = load_settings(
        "commitlog",
        LogSettings,
        flags={"store": "/flag", "log_level": None},
        environ={
            "REPUT_STORE": "/env",
            "REPUT_BROKER_NAME": "env",
            "REPUT_CONFIG": str(toml),
            "REPUT_BROKER_CONF": str(broker_conf),
        },
    )

    assert settings.store == pathlib.Path("/flag")
    assert settings.broker_name == "env"
    assert settings.file_size_bytes == 3000
    assert settings.store_host == "127.0.0.1:7"
    assert settings.log_level == "info"
    assert origins["store"] == "flag --store"
    assert origins["broker_name"] == "environment REPUT_BROKER_NAME"
    assert origins["file_size_bytes"] == f"{toml} [commitlog] file_size_bytes"
    assert origins["store_host"] == f"{broker_conf} listenPort"
    assert origins["log_level"] == "default"
    assert origins.ignored_names == ("brokerId",)


def test_a_broker_conf_is_a_settings_file(broker_conf):
    settings, origins = load_settings("commitlog", LogSettings, flags={"config": str(broker_conf)}, environ={})

    assert (settings.store, settings.broker_name, settings.file_size_bytes) == (pathlib.Path("/conf"), "conf", 4000)
    assert (origins.ignored_names, origins.ignored_source) == (("brokerId",), str(broker_conf))


def test_a_file_without_an_ending_is_a_broker_conf_when_it_is_no_toml(tmp_path):
    path = tmp_path / "settings"
    path.write_text("storePathRootDir=/conf\n")

    assert load_settings("commitlog", LogSettings, environ={"REPUT_CONFIG": str(path)})[0].store.name == "conf"


@pytest.mark.parametrize(
    ("environ", "suggested"),
    [
        ({"REPUT_COMMITLOG_FILE_SIZE": "1"}, "REPUT_COMMITLOG_FILE_SIZE_BYTES"),
        ({"REPUT_STOR": "/x"}, "REPUT_STORE"),
        ({"REPUT_INDEX_HASH_SLOTS_COUNT": "1"}, "REPUT_INDEX_HASH_SLOT_COUNT"),
        ({"REPUT_GATEWAY_PORT": "8081"}, ""),
    ],
)
def test_a_name_that_no_service_has_is_refused_by_each(environ, suggested):
    with pytest.raises(InvalidSettingError, match=next(iter(environ))) as caught:
        load_settings("commitlog", LogSettings, environ=environ)

    assert suggested in caught.value.message
    assert caught.value.metadata["source"] == "environment"


def test_settings_of_other_services_are_no_mistake():
    environ = {"REPUT_INDEX_HASH_SLOT_COUNT": "no number: its owner will say so", "REPUT_GATEWAY_ADDRESS": "x"}

    assert load_settings("commitlog", LogSettings, environ=environ)[0] == LogSettings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REPUT_SERVICE_HOST", "10.0.0.1"),
        ("REPUT_COMMITLOG_SERVICE_HOST", "10.0.0.1"),
        ("REPUT_COMMITLOG_SERVICE_PORT", "8082"),
        ("REPUT_COMMITLOG_SERVICE_PORT_GRPC", "8082"),
        ("REPUT_COMMITLOG_PORT", "tcp://10.0.0.1:8082"),
        ("REPUT_COMMITLOG_PORT_8082_TCP", "tcp://10.0.0.1:8082"),
        ("REPUT_COMMITLOG_PORT_8082_TCP_ADDR", "10.0.0.1"),
        ("REPUT_PORT", "tcp://10.0.0.1:8081"),
    ],
)
def test_what_kubernetes_puts_into_containers_is_passed_over(name, value):
    assert load_settings("commitlog", LogSettings, environ={name: value})[0] == LogSettings()


def test_no_setting_has_a_name_that_kubernetes_could_make():
    """A Service called `reput-gateway` makes REPUT_GATEWAY_PORT."""
    taken = [name for name in BY_ENVIRONMENT_NAME if name.endswith("_PORT") or "_PORT_" in name or "_SERVICE_" in name]

    assert taken == []


def test_the_address_that_the_command_calls_is_no_mistake():
    assert load_settings("commitlog", LogSettings, environ={"REPUT_ADDRESS": "host:8081"})[0] == LogSettings()


def test_an_empty_variable_counts_as_not_set():
    assert load_settings("commitlog", LogSettings, environ={"REPUT_STORE": ""})[0].store == pathlib.Path("store")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[commitlog]\nfile_size = 1\n", "[commitlog] file_size_bytes"),
        ("[commitlogs]\nfile_size_bytes = 1\n", "[commitlog]"),
        ("stores = '/x'\n", "store"),
        ("[index]\nfile_size_bytes = 1\n", "file_size_bytes"),
        ("store = \n", "not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_names_file_and_setting(tmp_path, text, named):
    path = tmp_path / "reput.toml"
    path.write_text(text)
    with pytest.raises(InvalidSettingError) as caught:
        load_settings("commitlog", LogSettings, environ={"REPUT_CONFIG": str(path)})

    assert str(path) in caught.value.message
    assert named in caught.value.message


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InvalidSettingError, match="cannot be read"):
        load_settings("commitlog", LogSettings, environ={"REPUT_CONFIG": str(tmp_path / "absent.toml")})


def test_a_value_that_does_not_fit_names_its_source():
    with pytest.raises(
        InvalidSettingError, match=r"file_size_bytes = '12' .environment REPUT_COMMITLOG_FILE_SIZE_BYTES"
    ):
        load_settings("commitlog", LogSettings, environ={"REPUT_COMMITLOG_FILE_SIZE_BYTES": "12"})


@pytest.mark.parametrize("component", ["commitlog", "schedule"])
def test_a_malformed_list_of_delay_levels_is_refused_by_name(component, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=1s 5\n")
    with pytest.raises(InvalidSettingError, match=r"delay_levels = '1s 5' .* messageDelayLevel.*level 2 .* is '5'"):
        load_settings(component, StoreSettings, environ={"REPUT_BROKER_CONF": str(conf)})


def test_an_own_list_of_delay_levels_reaches_every_service_of_the_store():
    for component in ("commitlog", "schedule"):
        settings, _ = load_settings(component, StoreSettings, environ={"REPUT_DELAY_LEVELS": "2s 1h"})
        assert settings.delay_levels_millis == (2_000, 3_600_000)


def test_settings_cannot_be_changed():
    with pytest.raises(pydantic.ValidationError):
        LogSettings().broker_name = "other"


def test_flags_are_the_fields():
    given = parse_flags("commitlog", LogSettings, ["--store", "/s", "--no-read-only", "--file-size-bytes=2048"])

    assert given == {"store": "/s", "read_only": False, "file_size_bytes": "2048"}
    assert load_settings("commitlog", LogSettings, given, environ={})[0].file_size_bytes == 2048


def test_a_flag_that_does_not_exist_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_flags("commitlog", LogSettings, ["--stor", "/s", "--nope"])

    assert caught.value.code == 2
    assert "unrecognized arguments: --stor /s --nope" in capsys.readouterr().err


def test_config_rows_show_every_setting_with_value_and_origin(broker_conf):
    rows, ignored = config_rows(
        {"store": "/flag", "commitlog.file_size_bytes": 5},
        {"REPUT_GATEWAY_PAGE_TOKEN_SECRET": "hidden", "REPUT_READ_ONLY": "true", "REPUT_BROKER_CONF": str(broker_conf)},
    )
    by_name = {row.setting.environment_name: (row.value, row.origin) for row in rows}

    assert len(rows) == len(SETTINGS)
    assert by_name["REPUT_STORE"] == ("/flag", "flag --store")
    assert by_name["REPUT_COMMITLOG_FILE_SIZE_BYTES"] == ("5", "flag --file-size-bytes")
    assert by_name["REPUT_READ_ONLY"] == ("true", "environment REPUT_READ_ONLY")
    assert by_name["REPUT_BROKER_NAME"] == ("conf", f"{broker_conf} brokerName")
    assert by_name["REPUT_INDEX_HASH_SLOT_COUNT"] == ("5000000", "default")
    assert by_name["REPUT_GATEWAY_PAGE_TOKEN_SECRET"][0] == "***"
    assert ignored == ("brokerId",)


@pytest.mark.parametrize("model", [ServiceSettings, StoreSettings])
def test_the_base_settings_are_listed_with_their_defaults(model):
    listed = {setting.name: setting.default for setting in SETTINGS if not setting.component}
    for name, field in model.model_fields.items():
        if name not in ("address", "metrics_address", "health_address"):  # of each component
            default = "" if field.default is None else str(field.default)
            assert listed[name] == (default.lower() if isinstance(field.default, bool) else default)


def test_a_secret_that_does_not_fit_is_not_repeated(tmp_path):
    from gateway.settings import GatewaySettings

    file = tmp_path / "reput.toml"
    file.write_text("[gateway]\npage_token_secret = 424242\n")

    with pytest.raises(InvalidSettingError, match="page_token_secret") as refused:
        load_settings("gateway", GatewaySettings, environ={}, config=file)

    assert "424242" not in refused.value.message


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"follow": True}, "without derived"),
        ({"derived": "{root}/other"}, "without follow"),
        ({"follow": True, "derived": "{root}/other", "read_only": True}, "both set"),
        ({"follow": True, "derived": "{root}/store"}, "neither may lie in the other"),
        ({"follow": True, "derived": "{root}/store/derived"}, "neither may lie in the other"),
        ({"follow": True, "derived": "{root}/link"}, "neither may lie in the other"),
        ({"follow": True, "derived": "{root}"}, "neither may lie in the other"),
        ({"follow": True, "derived": "{root}/other", "store": "{root}/missing"}, "is no directory"),
    ],
)
def test_a_log_is_followed_with_derived_files_elsewhere_only(tmp_path, flags, why):
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    given = {name: str(value).replace("{root}", str(tmp_path)) for name, value in flags.items()}
    with pytest.raises(InvalidSettingError, match=why):
        load_settings("commitlog", LogSettings, {"store": str(tmp_path / "store"), **given}, environ={})


def test_what_is_derived_from_a_followed_log_has_a_root_of_its_own(tmp_path):
    environ = {"REPUT_STORE": str(tmp_path), "REPUT_FOLLOW": "true", "REPUT_DERIVED": f"{tmp_path}-derived"}
    settings, _ = load_settings("commitlog", LogSettings, environ=environ)
    assert (settings.derived_root, settings.writes_no_records) == (pathlib.Path(f"{tmp_path}-derived"), True)
    assert LogSettings().derived_root == LogSettings().store
