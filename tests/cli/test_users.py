"""`reput user`: users of an access file, and those of a broker."""

import base64
import json

import pytest

from cli.main import main
from gateway.auth.access import READ, WRITE
from gateway.auth.access_file import parse_access_file
from services.rocketmq.codes import RequestCode
from services.rocketmq.signature import ACCESS_KEY, SIGNATURE, signature_of, signed_bytes
from tests.support.remoting import answering


def test_a_user_is_created_listed_and_deleted_in_the_file(tmp_path, capsys):
    file = str(tmp_path / "access.toml")
    assert main(["user", "create", "alice", "--file", file, "--write", "orders-*", "--group", "g"]) == 0
    secret = capsys.readouterr().out.strip()
    assert len(base64.urlsafe_b64decode(f"{secret}==")) >= 24
    clients = parse_access_file((tmp_path / "access.toml").read_bytes())
    assert clients.secrets == {"alice": secret.encode()}
    assert clients.by_access_key["alice"].allows(WRITE, "orders-1")
    assert clients.by_access_key["alice"].groups == {"g"}

    (tmp_path / "secret").write_text("chosen-secret\n")
    assert main(["user", "create", "root", "--file", file, "--super", "--secret-file", str(tmp_path / "secret")]) == 0
    assert capsys.readouterr().out == ""
    assert main(["user", "list", "--file", file]) == 0
    shown = capsys.readouterr().out
    assert shown == "alice\tNormal\tTopic:orders-*=Pub,Group:g=Sub\nroot\tSuper\t\n"
    assert main(["user", "delete", "alice", "--file", file]) == 0
    assert main(["user", "delete", "alice", "--file", file]) == 1
    assert parse_access_file((tmp_path / "access.toml").read_bytes()).secrets == {"root": b"chosen-secret"}


@pytest.mark.parametrize(
    "line",
    [
        ["create", "alice"],
        ["create", "bob", "--super", "--read", "x"],
        ["create", "bob", "--read", "a b"],
        ["create", "bob", "--secret-file", "/nowhere/secret"],
    ],
)
def test_a_user_that_cannot_be_created_changes_nothing(tmp_path, capsys, line):
    file = tmp_path / "access.toml"
    assert main(["user", "create", "alice", "--file", str(file)]) == 0
    before = file.read_bytes()
    capsys.readouterr()
    assert main(["user", *line, "--file", str(file)]) == 2
    told = capsys.readouterr()
    assert file.read_bytes() == before
    assert told.out == ""
    assert parse_access_file(before).secrets["alice"].decode() not in told.err


USERS = [
    {"username": "root", "password": "root1234", "userType": "Super", "userStatus": "enable"},
    {"username": "alice", "password": "alice123", "userType": "Normal", "userStatus": "enable"},
    {"username": "idle", "password": "idle1234", "userType": "Normal", "userStatus": "disable"},
    {"username": "shared", "password": "shared12", "userType": "Normal", "userStatus": "enable"},
    {"username": "denied", "password": "denied12", "userType": "Normal", "userStatus": "enable"},
]
ACLS = [
    {
        "subject": f"User:{name}",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [{"resource": "Topic:t", "actions": ["Sub"], "sourceIps": None, "decision": decision}],
            }
        ],
    }
    for name, decision in (("alice", "Allow"), ("denied", "Deny"))
]
ACLS.append({"subject": "Role:ops", "policies": []})


def broker(secret):
    """Answers as a broker of RocketMQ 5.5.0, to requests that are signed by root."""
    answers = {RequestCode.AUTH_LIST_USER: USERS, RequestCode.AUTH_LIST_ACL: ACLS}

    def answer(ask):
        if (ask.fields.get(ACCESS_KEY), ask.fields.get(SIGNATURE)) != ("root", signature_of(signed_bytes(ask), secret)):
            return ask.answer(16, "check signature failed.")
        return ask.answer(0, "", {}, json.dumps(answers[ask.code]).encode())

    return answering(answer)


def test_the_users_of_a_broker_come_with_their_policies_and_what_has_no_like_is_named(tmp_path, capsys):
    file, secret = tmp_path / "access.toml", tmp_path / "secret"
    secret.write_text("root1234")
    file.write_text('[[clients]]\nname = "shop"\naccess_keys = {shared = "another"}\n')
    with broker(b"root1234") as address:
        line = ["user", "import", "--file", str(file), "--broker", address, "--access-key", "root"]
        assert main([*line, "--secret-file", str(secret)]) == 3
        told = capsys.readouterr()
        assert told.out == "root\nalice\n"
        assert "idle is left out: a user of the status 'disable'" in told.err
        assert "denied is left out: Topic:t: the decision 'Deny'" in told.err
        assert f"shared is left out: {file} has another entry of this name, which stays" in told.err
        assert "Role:ops is left out: the subject 'Role:ops' is no user" in told.err
        written = file.read_bytes()
        assert main([*line, "--secret-file", str(secret)]) == 3  # again: a user that is there stays as it is
        told = capsys.readouterr()
        assert told.out == ""
        assert "alice is left out" not in told.err
        assert file.read_bytes() == written
        secret.write_text("wrong")
        assert main([*line, "--secret-file", str(secret)]) == 2
        assert "check signature failed." in capsys.readouterr().err
    clients = parse_access_file(file.read_bytes())
    assert clients.secrets == {"shared": b"another", "root": b"root1234", "alice": b"alice123"}
    assert clients.by_access_key["root"].may_do_everything
    assert clients.by_access_key["alice"].allows(READ, "t")
    assert not clients.by_access_key["alice"].allows_group("g")
    assert main([*line, "--secret-file", str(secret)]) == 4  # it is gone


def test_an_entry_that_is_more_than_the_user_and_a_missing_file_are_not_deleted_from(tmp_path, capsys):
    file = tmp_path / "access.toml"
    assert main(["user", "delete", "alice", "--file", str(file)]) == 2
    file.write_text('[[clients]]\nname = "alice"\naccess_keys = {alice = "x"}\njwt_subjects = ["alice@shop"]\n')
    assert main(["user", "delete", "alice", "--file", str(file)]) == 2
    assert "belongs to the client alice, which has a name or credentials besides it" in capsys.readouterr().err
    assert "alice" in parse_access_file(file.read_bytes()).secrets


def test_names_of_a_file_that_steer_a_terminal_are_listed_as_escapes(tmp_path, capsys):
    file = tmp_path / "access.toml"
    file.write_text('[[clients]]\nname = "x"\naccess_keys = {"a\\nroot\\tSuper\\u001b[2J" = "x"}\ngroups = []\n')
    assert main(["user", "list", "--file", str(file)]) == 0
    assert capsys.readouterr().out == "a\\nroot\\tSuper\\x1b[2J\tNormal\t\n"


PLAIN_ACL = """
accounts:
- accessKey: producer
  secretKey: of-producer
  topicPerms: [orders=PUB]
- accessKey: denied-one
  secretKey: of-denied
  defaultGroupPerm: SUB
  groupPerms: [g=DENY]
- accessKey: shared-one
  secretKey: of-shared
- accessKey: "ops-one\\e[2J"
  secretKey: of-operators
  admin: true
  whiteRemoteAddress: 10.0.0.*
"""


def test_the_accounts_of_a_broker_of_4_come_and_what_has_no_like_is_named(tmp_path, capsys):
    file, plain_acl = tmp_path / "access.toml", tmp_path / "plain_acl.yml"
    file.write_text('[[clients]]\nname = "shop"\naccess_keys = {shared-one = "another"}\n')
    plain_acl.write_text(PLAIN_ACL)
    line = ["user", "import", "--file", str(file), "--plain-acl", str(plain_acl)]
    assert main(line) == 3
    told = capsys.readouterr()
    assert told.out == "producer\n"
    assert "denied-one is left out: the group g has fewer rights than the default" in told.err
    assert f"shared-one is left out: {file} has another entry of this name, which stays" in told.err
    assert "ops-one\\x1b[2J is left out: the name " in told.err
    assert not any(f"of-{name}" in told.err for name in ("producer", "denied", "shared", "operators"))
    written = file.read_bytes()
    assert parse_access_file(written).secrets == {"shared-one": b"another", "producer": b"of-producer"}
    assert main(line) == 3
    assert file.read_bytes() == written
    plain_acl.write_text("accounts:\n- {accessKey: producer, secretKey: of-producer, topicPerms: [orders=PUB]}\n")
    assert main(line) == 0
    plain_acl.write_text("accounts: {")
    assert main(line) == 2
    assert "it is no YAML in line 1" in capsys.readouterr().err
    assert file.read_bytes() == written


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--broker", "h:1", "--plain-acl", "f"],
        ["--plain-acl", "f", "--access-key", "k"],
        ["--plain-acl", "/nowhere"],
    ],
)
def test_an_import_has_one_source_that_can_be_read(tmp_path, more):
    assert main(["user", "import", "--file", str(tmp_path / "access.toml"), *more]) == 2
    assert not (tmp_path / "access.toml").exists()
