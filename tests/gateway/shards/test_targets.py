"""Addresses of shards by service name, the older form by position, and what each mistake is told."""

from dataclasses import replace

import pytest

from gateway.settings import GatewaySettings
from gateway.shards.targets import ShardTargets, of_ordinals, parse_file, parse_shards, parse_template
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


@pytest.mark.parametrize(
    "text", [f"{NAMED},consumer=a:4", "broker-a=consumer=a:4,commitlog=a:1,consumequeue=a:2,index=a:3"]
)
def test_a_consumer_service_is_told_by_name(text: str) -> None:
    assert parse_shards(text) == (replace(FOUND, consumer="a:4"),)


def test_a_schedule_service_is_told_by_name_with_a_consumer_service_or_without() -> None:
    assert parse_shards(f"{NAMED},schedule=a:5") == (replace(FOUND, schedule="a:5"),)
    assert parse_shards(f"{NAMED},schedule=a:5,consumer=a:4") == (replace(FOUND, consumer="a:4", schedule="a:5"),)


def test_a_file_may_mix_the_forms() -> None:
    text = f"# two\n{NAMED}\nbroker-b=b:1,b:2,b:3  # of before\n"

    assert [shard.broker_name for shard in parse_file(text)] == ["broker-a", "broker-b"]


def test_replicas_of_a_shard_are_entries_with_names_of_their_own() -> None:
    first, second = parse_shards("broker-a@r1=commitlog=a:1,consumequeue=a:2,index=a:3; broker-a @ r2 = b:1,b:2,b:3")

    assert first == replace(FOUND, replica="r1")
    assert second == ShardTargets("broker-a", "b:1", "b:2", "b:3", replica="r2")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a@r1=a:1,a:2,a:3;a=b:1,b:2,b:3", "two shards are called 'a'"),
        ("a=a:1,a:2,a:3;a@r1=b:1,b:2,b:3", "two shards are called 'a'"),
        ("a@r1=a:1,a:2,a:3;a@r1=b:1,b:2,b:3", "has two replicas 'r1'"),
        ("a@=a:1,a:2,a:3", "write NAME@REPLICA="),
        ("@r1=a:1,a:2,a:3", "write NAME@REPLICA="),
    ],
)
def test_a_replica_without_a_name_of_its_own_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_shards(text)


def test_a_template_is_one_shard_with_each_of_its_replicas() -> None:
    replica = "a-{{i}}@{0}=commitlog={0}-{{i}}:1,consumequeue={0}-{{i}}:2,index={0}-{{i}}:3"
    template = parse_template(";".join(map(replica.format, ("r1", "r2"))))

    assert of_ordinals(template, [4, 7]) == tuple(
        ShardTargets(f"a-{shard}", f"{name}-{shard}:1", f"{name}-{shard}:2", f"{name}-{shard}:3", replica=name)
        for shard in (4, 7)
        for name in ("r1", "r2")
    )
    with pytest.raises(ValueError, match="a template is one shard, not 2"):
        parse_template(replica.format("r1") + ";b" + replica.format("r1"))
    with pytest.raises(ValueError, match=r"template's index 'index:3' has no \{i\}"):
        parse_template(replica.format("r1") + ";" + replica.format("r2").replace("index=r2-{i}", "index=index"))


def test_a_template_has_the_ordinal_in_each_address() -> None:
    (template,) = parse_template("broker-{i}=commitlog=log-{i}:1,consumequeue=queue-{i}:2,index=index-{i}:3")

    assert template.of_ordinal(7) == ShardTargets("broker-7", "log-7:1", "queue-7:2", "index-7:3")
    with pytest.raises(ValueError, match=r"template's index 'index:3' has no \{i\}"):
        parse_template("broker-{i}=commitlog=log-{i}:1,consumequeue=queue-{i}:2,index=index:3")


def test_a_template_has_the_ordinal_in_the_address_of_its_consumer_service_too() -> None:
    whole = "broker-{i}=commitlog=log-{i}:1,consumequeue=queue-{i}:2,index=index-{i}:3,consumer="

    (template,) = parse_template(whole + "consumer-{i}:4")
    assert template.of_ordinal(7).consumer == "consumer-7:4"
    with pytest.raises(ValueError, match=r"template's consumer 'consumer:4' has no \{i\}"):
        parse_template(whole + "consumer:4")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("broker-a", "'broker-a' is not a shard: write NAME=commitlog=ADDRESS"),
        ("=commitlog=a:1", "is not a shard"),
        ("broker-a=commitlog=a:1,consumequeue=a:2", "'broker-a' has no address of index"),
        ("broker-a=commitlog=a:1,consumequeue=a:2,index=", "'broker-a' has no address of index"),
        (
            "broker-a=commitlog=a:1,consumequeue=a:2,indx=a:3",
            "no service 'indx'; there are commitlog, consumequeue, index, consumer, schedule",
        ),
        (f"{NAMED},index=a:4", "'broker-a' has two addresses of index"),
        (f"{NAMED},consumer=", "'broker-a' has no address of consumer"),
        ("broker-a=a:1,a:2,a:3,a:4", "'broker-a' has 4 addresses without service names"),
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
