"""Addresses of shards by service name, the older form by position, and what each mistake is told."""

import pytest

from gateway.settings import GatewaySettings
from gateway.shards.targets import ShardTargets, parse_file, parse_shards, parse_template
from services.settings.service_settings import load_settings
from store.errors import InvalidSettingError

NAMED = "broker-a=commitlog=a:1,consumequeue=a:2,index=a:3"
FOUND = ShardTargets(broker_name="broker-a", commitlog="a:1", consumequeue="a:2", index="a:3")


@pytest.mark.parametrize(
    "text",
    [
        NAMED,
        "broker-a = index = a:3, commitlog = a:1 , consumequeue=a:2;",
        "broker-a=a:1,a:2,a:3",
        "broker-a=a:1, a:2 ,a:3\n",
    ],
)
def test_services_are_told_by_name_in_any_order_or_by_position(text: str) -> None:
    assert parse_shards(text) == (FOUND,)


@pytest.mark.parametrize("form", ["{0},{1},{2}", "commitlog={0},index={2},consumequeue={1}"])
def test_every_kind_of_address_has_a_place_in_both_forms(form: str) -> None:
    """Also a socket whose path looks like a name and a value."""
    addresses = ("unix:/run/commitlog=a.sock", "dns:///queue.queues:8083", "[::1]:8084")

    assert parse_shards("a=" + form.format(*addresses)) == (ShardTargets("a", *addresses),)


def test_a_file_may_mix_the_forms() -> None:
    text = f"# two\n{NAMED}\nbroker-b=b:1,b:2,b:3  # of before\n"

    assert [shard.broker_name for shard in parse_file(text)] == ["broker-a", "broker-b"]


def test_a_template_has_the_ordinal_in_each_address() -> None:
    template = parse_template("broker-{i}=commitlog=log-{i}:1,consumequeue=queue-{i}:2,index=index-{i}:3")

    assert template.of_ordinal(7) == ShardTargets("broker-7", "log-7:1", "queue-7:2", "index-7:3")
    with pytest.raises(ValueError, match=r"template's index 'index:3' has no \{i\}"):
        parse_template("broker-{i}=commitlog=log-{i}:1,consumequeue=queue-{i}:2,index=index:3")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("broker-a", "'broker-a' is not a shard: write NAME=commitlog=ADDRESS"),
        ("=commitlog=a:1", "is not a shard"),
        ("broker-a=commitlog=a:1,consumequeue=a:2", "'broker-a' has no address of index"),
        ("broker-a=commitlog=a:1,consumequeue=a:2,index=", "'broker-a' has no address of index"),
        (
            "broker-a=commitlog=a:1,consumequeue=a:2,indx=a:3",
            "no service 'indx'; there are commitlog, consumequeue, index",
        ),
        (f"{NAMED},index=a:4", "'broker-a' has two addresses of index"),
        ("broker-a=commitlog=a:1,a:2,a:3", "'broker-a': 'a:2' has no service name"),
        ("broker-a=a:1,a:2", "'broker-a' has 2 addresses without service names"),
        ("broker-a=a:1,,a:3", "'broker-a' has no address of consumequeue"),
        (f"{NAMED};broker-a=a:1,a:2,a:3", "two shards are called 'broker-a'"),
    ],
)
def test_a_mistake_is_told_with_the_setting_the_shard_and_what_to_write(text: str, why: str) -> None:
    with pytest.raises(InvalidSettingError, match="shards") as refused:
        load_settings("gateway", GatewaySettings, environ={"REPUT_GATEWAY_SHARDS": text})
    assert why in refused.value.message
    assert "REPUT_GATEWAY_SHARDS" in refused.value.message
