"""`plain_acl.yml` of RocketMQ 4.x: no account may do more here than `PlainPermissionChecker` of 4.9 lets it do."""

import itertools
import random

import pytest

from gateway.auth.access import READ, WRITE, Access, Role
from gateway.auth.plain_acl import read_plain_acl

# In the form of the file that a release of 4.9 has in its conf directory.
SAMPLE = b"""
globalWhiteRemoteAddresses:
- 10.10.103.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
"""


def account(*lines):
    """The file of one account."""
    rows = "".join(f"\n  {line}" for line in ("secretKey: secret-1", *lines))
    return read_plain_acl(f"accounts:\n- accessKey: account-1{rows}\n".encode())


def access_of(client):
    return Access(client.name, {role: getattr(client, role.value) for role in Role}, client.groups)


def why_left_out(*lines):
    found = account(*lines)
    assert not found.clients
    return found.left_out["account-1"]


def test_the_accounts_of_a_file_get_their_topics_groups_and_defaults():
    found = read_plain_acl(SAMPLE)
    assert found.left_out == {}
    plain, admin = found.clients["RocketMQ"], found.clients["rocketmq2"]
    assert plain.access_keys == {"RocketMQ": "12345678"}
    assert (plain.read, plain.write) == (["%RETRY%*", "topicB", "topicC"], ["%RETRY%*", "topicB"])
    assert (plain.admin, plain.groups) == ([], ["*"])
    assert access_of(admin).may_do_everything
    assert found.narrower == [
        "globalWhiteRemoteAddresses: clients of these addresses sign in here, as all others",
        "rocketmq2: whiteRemoteAddress: clients of these addresses sign here, as all others",
    ]


def test_an_account_without_rights_gets_none():
    client = account().clients["account-1"]
    assert (client.read, client.write, client.admin, client.groups) == ([], [], [], [])
    other = account("defaultTopicPerm: pub", "defaultGroupPerm: ANY", "topicPerms: [a=sub]", "groupPerms: [g=PUB]")
    assert other.clients["account-1"] == client


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["defaultTopicPerm: SUB", "defaultGroupPerm: SUB", "topicPerms: [a=DENY]"], "the topic a has fewer rights"),
        (["defaultGroupPerm: SUB", "groupPerms: [g=DENY]"], "the group g has fewer rights than the default"),
        (["defaultGroupPerm: SUB", "topicPerms: ['%RETRY%g=PUB']"], "the group g has fewer rights than the default"),
        (["defaultTopicPerm: PUB"], "the retry topics of all groups, too"),
        (["admin: true", "topicPerms: [a=DENY]"], "limit what an administrator sends and consumes"),
        (["admin: maybe"], "admin is neither true nor false"),
        (["topicPerms: ['orders-*=PUB']"], "has the name 'orders-*', which is none of a topic or group"),
        (["topicPerms: [a]"], "has a line that is no name and right"),
        (["topicPerms: a=PUB"], "topicPerms is no list of texts"),
        (["namespacePerms: [{namespace: n, perm: SUB}]"], "namespacePerms: not supported"),
        (["whiteRemoteAddress: [10.0.0.1]"], "whiteRemoteAddress is no text"),
        (["topicPerms: ['orders\u00a0=PUB']"], "which is none of a topic or group"),
    ],
)
def test_an_account_that_has_no_like_is_left_out_and_named(lines, said):
    assert said in why_left_out(*lines)


@pytest.mark.parametrize("blank", "\u00a0\u3000\u2003\u1680")
def test_a_right_with_a_blank_that_java_does_not_trim_denies_here_too(blank):
    client = account(
        f'defaultGroupPerm: "SUB{blank}"', f'defaultTopicPerm: "{blank}PUB|SUB"', f'topicPerms: ["pay=PUB{blank}"]'
    ).clients["account-1"]
    assert (client.read, client.write, client.groups) == ([], [], [])
    assert account('defaultGroupPerm: "\\t SUB\\x1f"').clients["account-1"].groups == ["*"]


@pytest.mark.parametrize(("key", "secret"), [("short6", "long-secret"), ("long-key", "short6")])
def test_a_credential_that_a_broker_of_4_refuses_makes_no_user(key, secret):
    found = read_plain_acl(f"accounts:\n- {{accessKey: {key}, secretKey: {secret}, admin: true}}\n".encode())
    assert found.clients == {}
    assert "Key of 6 characters or fewer" in found.left_out[key]


def test_merged_mappings_take_no_memory():
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}" for level in range(1, 12)]
    text = "\n".join([*lines, "accounts:", "- {<<: *a11, accessKey: account-1, secretKey: secret-1}"])
    assert read_plain_acl(text.encode()).left_out == {"account-1": "<<: not supported"}


@pytest.mark.parametrize("tag", ["!!bool", "!!int", "!!timestamp", "!!omap", "!!set", "!!null", "!!float", "!own"])
def test_a_tag_makes_no_value_and_no_traceback(tag):
    found = read_plain_acl(f"accounts:\n- {{accessKey: account-1, secretKey: {tag} secret-1}}\n".encode())
    assert "releases of RocketMQ read the secretKey differently" in found.left_out["account-1"]
    whole = read_plain_acl(f"x: {tag} secret-1\naccounts:\n- {{accessKey: account-1, secretKey: secret-1}}\n".encode())
    assert list(whole.clients) == ["account-1"]


@pytest.mark.parametrize("secret", ["01234567", "12_345_678", "1.5000e+7", "12:30:45", "0x12345678", "2024-01-01"])
def test_a_secret_that_releases_read_differently_is_not_guessed(secret):
    text = f"accounts:\n- accessKey: account-1\n  secretKey: {secret}\n"
    assert "releases of RocketMQ read the secretKey differently" in read_plain_acl(text.encode()).left_out["account-1"]
    quoted = read_plain_acl(text.replace(secret, f"'{secret}'").encode())
    assert quoted.clients["account-1"].access_keys == {"account-1": secret}


def test_accounts_that_are_none_or_there_twice_do_not_hide_the_others():
    text = b"""accounts:
- {accessKey: two-accounts, secretKey: one-secret}
- {accessKey: two-accounts, secretKey: two-secret}
- {accessKey: two-accounts, secretKey: two-secret}
- {secretKey: without-a-key}
- none
- {accessKey: good-account, secretKey: good-secret}
"""
    found = read_plain_acl(text)
    assert list(found.clients) == ["good-account"]
    assert found.left_out == {
        "two-accounts": "two accounts have this access key",
        "account 4": "it has no accessKey",
        "account 5": "it is no account with fields",
    }
    assert read_plain_acl(b"accounts:\n").clients == {}


@pytest.mark.parametrize(
    "text",
    [
        b"accounts: [\nsecret-1: {",
        b"- secret-1",
        b"accounts: secret-1",
        b"\x00secret-1",
        b"",
        b'- "secret-1 \\UFFFFFFFF"',
    ],
)
def test_a_file_that_is_none_is_refused_without_its_values(text):
    with pytest.raises(ValueError, match=r"it is no YAML|it has no list") as error:
        read_plain_acl(text)
    assert "secret-1" not in str(error.value)
    assert error.value.__cause__ is None


def is_allowed(perms, default_topic, default_group, resource, needed):
    """Whether RocketMQ 4.9 allows it (`PlainPermissionChecker`): of a group, the resource is its retry topic."""
    owned = perms.get(resource, default_group if resource.startswith("%RETRY%") else default_topic)
    return "DENY" not in owned and needed in owned.split("|")


def test_no_account_may_do_more_than_at_the_broker():
    dice = random.Random(random.getrandbits(64))
    words = ("DENY", "PUB", "SUB", "PUB|SUB")
    brought = 0
    for _ in range(400):
        default_topic, default_group = dice.choices(words, (6, 1, 1, 1))[0], dice.choice(words)
        topic_perms = {name: dice.choice(words) for name in ("a", "b", "%RETRY%h") if dice.random() < 0.5}
        group_perms = {name: dice.choice(words) for name in ("g", "h") if dice.random() < 0.5}
        found = account(
            f"defaultTopicPerm: {default_topic}",
            f"defaultGroupPerm: {default_group}",
            f"topicPerms: {[f'{name}={perm}' for name, perm in topic_perms.items()]}",
            f"groupPerms: {[f'{name}={perm}' for name, perm in group_perms.items()]}",
        )
        if not found.clients:
            continue
        brought += 1
        access = access_of(found.clients["account-1"])
        perms = {f"%RETRY%{name}": perm for name, perm in group_perms.items()} | topic_perms
        for topic, (roles, needed) in itertools.product(("a", "b", "c"), ((READ, "SUB"), (WRITE, "PUB"))):
            expected = is_allowed(perms, default_topic, default_group, topic, needed)
            assert access.allows(roles, topic) == expected, (topic, needed, perms, default_topic, default_group)
        for group in ("g", "h", "i"):
            expected = is_allowed(perms, default_topic, default_group, f"%RETRY%{group}", "SUB")
            assert access.allows_group(group) == expected
            assert access.as_member.allows(READ, f"%RETRY%{group}") == expected
            assert not access.allows(WRITE, f"%RETRY%{group}") or expected
    assert brought > 20
