"""Where the gateway finds its shards."""

import pytest

from gateway.settings import GatewaySettings
from gateway.shards.targets import ShardTargets, parse_file
from services.settings.service_settings import load_settings
from services.settings.setting_names import SETTINGS
from store.errors import InvalidSettingError


def test_without_shards_the_targets_make_one():
    settings, _ = load_settings(
        "gateway", GatewaySettings, environ={"REPUT_BROKER_NAME": "b", "REPUT_INDEX_TARGET": "unix:/run/index"}
    )

    assert settings.shard_targets() == (
        ShardTargets("b", "127.0.0.1:8082", "127.0.0.1:8083", "unix:/run/index", "127.0.0.1:8085", "127.0.0.1:8086"),
    )


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


TEMPLATE = "broker-{i}=log-{i}:1,queue-{i}:2,index-{i}:3"


def test_a_template_and_a_count_make_shards():
    environ = {"REPUT_GATEWAY_SHARD_TEMPLATE": TEMPLATE, "REPUT_GATEWAY_SHARD_COUNT": "2"}
    settings, _ = load_settings("gateway", GatewaySettings, environ=environ)

    assert settings.shard_targets() == (
        ShardTargets("broker-0", "log-0:1", "queue-0:2", "index-0:3"),
        ShardTargets("broker-1", "log-1:1", "queue-1:2", "index-1:3"),
    )


def test_a_template_with_replicas_makes_each_replica_of_each_shard():
    text = "b-{i}@r0=l-{i}-0:1,q-{i}-0:2,i-{i}-0:3;b-{i}@r1=l-{i}-1:1,q-{i}-1:2,i-{i}-1:3"
    environ = {"REPUT_GATEWAY_SHARD_TEMPLATE": text, "REPUT_GATEWAY_SHARD_COUNT": "2"}
    settings, _ = load_settings("gateway", GatewaySettings, environ=environ)

    assert settings.shard_targets() == tuple(
        ShardTargets(f"b-{shard}", f"l-{shard}-{r}:1", f"q-{shard}-{r}:2", f"i-{shard}-{r}:3", replica=f"r{r}")
        for shard in (0, 1)
        for r in (0, 1)
    )


def test_a_file_names_shards_line_by_line():
    text = "# the shards\n\nbroker-a=a:1,a:2,a:3  # the first\nbroker-b=b:1,b:2,b:3;broker-c=c:1,c:2,c:3\n"

    assert [shard.broker_name for shard in parse_file(text)] == ["broker-a", "broker-b", "broker-c"]
    assert parse_file(text)[0] == ShardTargets("broker-a", "a:1", "a:2", "a:3")


@pytest.mark.parametrize("text", ["", "# none", "broker-a", "a=1,2,3\na=4,5,6"])
def test_a_file_that_makes_no_sense_is_refused(text):
    with pytest.raises(ValueError, match=r"shard|not name="):
        parse_file(text)


@pytest.mark.parametrize(
    "environ",
    [
        {"REPUT_GATEWAY_SHARD_TEMPLATE": "broker=log-{i}:1,queue-{i}:2,index-{i}:3"},
        {"REPUT_GATEWAY_SHARD_TEMPLATE": "broker-{i}=log-{i}:1,queue-{i}:2,index:3"},
        {"REPUT_GATEWAY_SHARD_TEMPLATE": f"{TEMPLATE};other-{TEMPLATE}"},
        {"REPUT_GATEWAY_SHARD_TEMPLATE": "b-{i}@r0=l-{i}:1,q-{i}:2,i-{i}:3;b-{i}@r1=l:1,q-{i}:2,i-{i}:3"},
        {"REPUT_GATEWAY_SHARD_TEMPLATE": TEMPLATE, "REPUT_GATEWAY_SHARDS": "a=1,2,3"},
        {"REPUT_GATEWAY_SHARDS_FILE": "shards", "REPUT_GATEWAY_SHARDS": "a=1,2,3"},
        {"REPUT_GATEWAY_SHARD_TEMPLATE": TEMPLATE, "REPUT_GATEWAY_SHARD_COUNT": "1001"},
    ],
)
def test_what_cannot_be_meant_is_refused(environ):
    with pytest.raises(InvalidSettingError):
        load_settings("gateway", GatewaySettings, environ=environ)


@pytest.mark.parametrize(
    "url", ["https://t.example/", "ftp://t.example/{trace_id}", "javascript:{trace_id}", "{trace_id}"]
)
def test_a_link_to_traces_is_a_web_address_with_a_place_for_the_trace(url):
    with pytest.raises(InvalidSettingError, match="console_trace_url"):
        load_settings("gateway", GatewaySettings, environ={"REPUT_GATEWAY_CONSOLE_TRACE_URL": url})


@pytest.mark.parametrize("topic", ["a/b", "..", "x" * 300])
def test_a_trace_topic_that_can_be_no_topic_is_refused(topic):
    with pytest.raises(InvalidSettingError, match="trace_topic"):
        load_settings("gateway", GatewaySettings, environ={"REPUT_GATEWAY_TRACE_TOPIC": topic})


def test_every_setting_is_listed():
    listed = {setting.name for setting in SETTINGS if setting.component in ("", "gateway")}

    assert set(GatewaySettings.model_fields) <= listed


GUARDED = {
    "REPUT_GATEWAY_REMOTING_ADDRESS": "127.0.0.1:0",
    "REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE": "a.crt",
    "REPUT_GATEWAY_PUBLIC_TLS_KEY": "a.key",
}


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"REPUT_GATEWAY_AUTH": "on"}, "access_file"),
        ({"REPUT_GATEWAY_JWT_KEYS_FILE": "jwks.json", "REPUT_GATEWAY_JWT_ISSUER": "i"}, "jwt_audience"),
        ({"REPUT_GATEWAY_CLIENT_CA": "ca.crt"}, "client_ca needs TLS"),
        ({"REPUT_GATEWAY_SIGNATURE_TIME_ZONES": "Asia/Shanghai,Mars"}, "'Mars' is no time zone"),
        ({"REPUT_GATEWAY_SIGNATURE_TIME_ZONES": "../../etc/passwd"}, "is no time zone"),
        ({"REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE": "a.crt"}, "public_tls_key"),
        ({"REPUT_TLS_CERTIFICATE": "a.crt", "REPUT_TLS_KEY": "a.key"}, "tls_ca"),
    ],
)
def test_security_that_would_be_half_is_refused(environ, why):
    with pytest.raises(InvalidSettingError, match=why):
        load_settings("gateway", GatewaySettings, environ=environ)


def test_time_zones_of_signed_dates_are_named_as_in_the_database():
    environ = {"REPUT_GATEWAY_SIGNATURE_TIME_ZONES": "Asia/Shanghai, Europe/Berlin"}
    settings, _ = load_settings("gateway", GatewaySettings, environ=environ)
    assert [str(zone) for zone in settings.time_zones] == ["Asia/Shanghai", "Europe/Berlin"]


def test_a_remoting_address_that_is_off_is_none_at_all():
    environ = GUARDED | {"REPUT_GATEWAY_REMOTING_ADDRESS": "off", "REPUT_GATEWAY_CLIENT_CA": "ca.crt"}
    settings, _ = load_settings("gateway", GatewaySettings, environ=environ)
    assert settings.remoting_address == ""


PERMISSIVE = {"REPUT_GATEWAY_REMOTING_TLS": "permissive"}


@pytest.mark.parametrize(
    ("more", "expected"), [({}, True), ({"REPUT_GATEWAY_PUBLIC_TLS": "false"}, False), (PERMISSIVE, False)]
)
def test_a_remoting_door_takes_plain_connections_only_where_the_grpc_port_does_or_it_is_permissive(more, expected):
    settings, _ = load_settings("gateway", GatewaySettings, environ=GUARDED | more)
    assert settings.are_doors_tls_only is expected


def test_a_permissive_door_would_let_clients_in_without_the_certificate_that_is_wanted():
    with pytest.raises(InvalidSettingError, match="remoting_tls"):
        load_settings("gateway", GatewaySettings, environ=GUARDED | PERMISSIVE | {"REPUT_GATEWAY_CLIENT_CA": "ca.crt"})


def test_clients_are_shown_the_public_certificate_and_services_the_own_one():
    inner = {"REPUT_TLS_CERTIFICATE": "a.crt", "REPUT_TLS_KEY": "a.key", "REPUT_TLS_CA": "ca.crt"}
    public = {"REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE": "p.crt", "REPUT_GATEWAY_PUBLIC_TLS_KEY": "p.key"}

    def shown(environ):
        settings, _ = load_settings("gateway", GatewaySettings, environ=environ)
        files = settings.server_tls_files
        return files and (str(files.certificate), str(files.key), files.ca and str(files.ca))

    assert shown({}) is None
    assert shown(inner) == ("a.crt", "a.key", None)
    assert shown(inner | public) == ("p.crt", "p.key", None)
    assert shown(public | {"REPUT_GATEWAY_CLIENT_CA": "c.crt"}) == ("p.crt", "p.key", "c.crt")
    assert shown(inner | {"REPUT_GATEWAY_PUBLIC_TLS": "false"}) is None


def test_an_archive_behind_a_uri_is_refused_at_the_start_and_not_answered_partially():
    with pytest.raises(InvalidSettingError, match=r"archive is a URI.*ship-cold"):
        load_settings("gateway", GatewaySettings, environ={"REPUT_GATEWAY_ARCHIVE": "s3://bucket/archive?region=x"})


def test_page_tokens_of_signed_in_clients_were_sealed_with_a_secret_that_everybody_knows(tmp_path):
    """A gateway makes one of its own where none is set; gateways that share clients share the setting."""
    from gateway.__main__ import _token_secret

    (tmp_path / "access.toml").write_text("")
    signed_in = GatewaySettings(auth="on", access_file=tmp_path / "access.toml")
    assert len({_token_secret(signed_in), _token_secret(signed_in), "reput"}) == 3
    assert _token_secret(signed_in.model_copy(update={"page_token_secret": "set"})) == "set"
    assert _token_secret(GatewaySettings()) == "reput"


@pytest.mark.parametrize(
    ("settings", "is_beside"),
    [
        ({}, True),
        ({"commitlog_target": "127.0.0.1:8082"}, False),
        ({"archive": "archive"}, False),
        ({"cold": "s3://bucket/place", "cold_cache": "cache"}, False),
        ({"shards": "a=unix:/a,unix:/q,unix:/i"}, True),
        ({"shards": "a=unix:/a,unix:/q,unix:/i;b=unix:/b,unix:/q,unix:/i"}, False),
        ({"shards_file": "shards"}, False),
        ({"shard_template": "a-{i}=unix:/a-{i},unix:/q-{i},unix:/i-{i}", "shard_count": 1}, False),
    ],
)
def test_queries_are_tried_at_once_where_one_shard_without_archive_is_on_this_machine(tmp_path, settings, is_beside):
    from gateway.__main__ import _is_beside_its_shard

    paths = {name: tmp_path / settings[name] for name in ("archive", "shards_file", "cold_cache") if name in settings}
    (tmp_path / "shards").write_text("a=unix:/a,unix:/q,unix:/i\n")
    made = GatewaySettings(**({"commitlog_target": f"unix:{tmp_path}/commitlog"} | settings | paths))
    assert _is_beside_its_shard(made) == is_beside
