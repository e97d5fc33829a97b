"""Users and policies of RocketMQ 5 as entries of the access file, and how a program changes that file."""

import fcntl
import json
import os
import stat
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.auth.access import ADMIN, READ, WRITE
from gateway.auth.access_file import (
    LOCK_SECONDS_MAX,
    Client,
    WatchedFile,
    change_access_file,
    entry_text,
    parse_access_file,
    with_entries,
)
from gateway.auth.users import (
    Users,
    acl_row,
    changed_user,
    new_user,
    user_row,
    with_policies,
    without_policies,
)
from store.errors import InvalidArgumentError, ResourceBusyError, StoreReadOnlyError

FILE = """# of the shop
[[clients]]   # first
name = "shop"
api_key_sha256 = []
access_keys = { shop-key = "its-secret" }  # exchanged in May
read = ["shop-*"]
# of the bank: see ticket 7
[[clients]]
name = "alice"
access_keys = {alice = "alice123"}

# the last one
[[clients]]
name = "last"
write = ["x"]"""


def acl(*entries, kind="Custom"):
    rows = [{"resource": resource, "actions": list(actions), "decision": "Allow"} for resource, actions in entries]
    return {"subject": "User:alice", "policies": [{"policyType": kind, "entries": rows}]}


def with_entry(text, name, client):
    return with_entries(text, parse_access_file(text.encode()).clients, {name: client})


def access_of(client):
    return parse_access_file(entry_text(client).encode()).by_access_key[client.name]


def test_a_secret_may_have_any_character_that_toml_has():
    """A DEL was written as it is, which is no TOML: one such user made every change of the file fail."""
    secret = "".join(map(chr, (*range(1, 0x30), *range(0x7F, 0xA1), 0x2028, 0x1F600)))
    assert parse_access_file(entry_text(new_user("alice", secret)).encode()).clients[0].access_keys == {"alice": secret}


def test_a_normal_user_may_do_nothing_until_it_has_policies_and_a_super_user_everything():
    normal, chief = new_user("alice", "pw"), new_user("root", "pw", "SUPER")
    assert not access_of(normal).has(READ | WRITE | ADMIN)
    assert not access_of(normal).allows_group("g")
    assert access_of(chief).may_do_everything
    assert [user_row(each.name, each)["userType"] for each in (normal, chief)] == ["Normal", "Super"]
    assert acl_row("alice", normal) is None
    assert acl_row("root", chief) is None
    assert "pw" not in json.dumps([user_row(each.name, each) for each in (normal, chief)])


def test_policies_are_rights_for_topics_and_groups_and_come_back_as_they_were():
    entries = (
        ("Topic:orders-*", ["Pub", "Sub"]),
        ("Topic:bills", ["Sub"]),
        ("Topic:own", ["All"]),
        ("Group:readers", ["Sub"]),
        ("topic:sent", ["PUB", "get", "List"]),
    )
    client = with_policies(new_user("alice", "pw"), acl(*entries))
    access = access_of(client)
    for topic, read, write, admin in (
        ("orders-eu", True, True, False),
        ("bills", True, False, False),
        ("own", True, True, True),
        ("sent", False, True, False),
        ("other", False, False, False),
    ):
        assert (access.allows(READ, topic), access.allows(WRITE, topic), access.allows(ADMIN, topic)) == (
            read,
            write,
            admin,
        )
    assert access.allows_group("readers")
    assert not access.allows_group("others")
    assert not access.may_do_everything
    row = acl_row("alice", client)
    assert with_policies(new_user("alice", "pw"), row) == client
    assert {each["resource"] for each in row["policies"][0]["entries"]} == {
        *("Topic:orders-*", "Topic:bills", "Topic:own", "Topic:sent", "Group:readers")
    }


def test_a_policy_replaces_that_of_its_resource_and_no_other_one():
    client = with_policies(
        new_user("alice", "pw"), acl(("Topic:a", ["All"]), ("Topic:b", ["Pub"]), ("Group:g", ["Sub"]))
    )
    client = with_policies(client, acl(("Topic:a", ["Sub"])))
    assert (client.read, client.write, client.admin, client.groups) == (["a"], ["b"], [], ["g"])
    assert without_policies(client, "Group:g").groups == []
    client = without_policies(client, "Topic:b")
    assert (client.read, client.write, client.groups) == (["a"], [], ["g"])
    assert without_policies(client) == new_user("alice", "pw")


@pytest.mark.parametrize("actions", [["All"], ["Pub", "Sub"]])
def test_a_policy_of_all_resources_is_one_of_all_topics_and_all_groups(actions):
    client = with_policies(new_user("alice", "pw"), acl(("*", actions)))
    assert access_of(client).allows(READ, "any")
    assert access_of(client).allows(ADMIN, "any") == (actions == ["All"])
    assert access_of(client).allows_group("any")
    assert not access_of(client).may_do_everything  # it makes no users
    assert without_policies(client, "*") == new_user("alice", "pw")


def test_no_policy_makes_a_super_user_of_a_client_without_a_line_of_groups():
    client = Client(name="alice", access_keys={"alice": "pw"})
    assert access_of(client).allows_group("any")
    changed = with_policies(client, acl(("Topic:*", ["All"])))
    assert not access_of(changed).may_do_everything
    assert access_of(changed).allows_group("any")
    assert user_row("alice", changed)["userType"] == "Normal"


DENY = {"policies": [{"entries": [{"resource": "Topic:a", "actions": ["Pub"], "decision": "Deny"}]}]}
ADDRESS = {
    "policies": [
        {"entries": [{"resource": "Topic:a", "actions": ["Pub"], "decision": "Allow", "sourceIps": ["10.0.0.1"]}]}
    ]
}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (DENY, "Deny"),
        (ADDRESS, "addresses"),
        (acl(("Topic:a", ["Pub"]), kind="Default"), "'Default'"),
        (acl(("Cluster:c", ["All"])), "'Cluster:c'"),
        (acl(("Topic:", ["All"])), "'Topic:'"),
        (acl(("Topic:a", ["Create", "Pub"])), "Create"),
        (acl(("Topic:a", ["Get"])), "neither"),
        (acl(("Group:g", ["Pub"])), "neither Sub nor All"),
        (acl(("Topic:a", ["Any", "Pub"])), "''"),
        (acl(("Topic:a b", ["Pub"])), "write"),
        ({}, "no policies"),
        ({"policies": [{"entries": "x"}]}, "no entries"),
        ({"policies": ["x"]}, "no policies"),
    ],
)
def test_a_policy_that_has_no_like_here_is_refused_by_its_name(said, why):
    with pytest.raises(InvalidArgumentError, match=why):
        with_policies(new_user("alice", "pw"), said)


def test_a_user_changes_its_type_and_password_and_is_never_disabled():
    client = with_policies(new_user("alice", "pw"), acl(("Topic:a", ["Pub"])))
    assert changed_user(client) == client
    assert changed_user(client, password="new") == client.model_copy(update={"access_keys": {"alice": "new"}})
    chief = changed_user(client, kind="Super")
    assert access_of(chief).may_do_everything
    assert not access_of(changed_user(chief, kind="Normal")).has(READ | WRITE | ADMIN)
    for wrong in ({"status": "disable"}, {"kind": "Custom"}, {"password": "x" * 129}):
        with pytest.raises(InvalidArgumentError) as refused:
            changed_user(client, **wrong)
        assert "x" * 129 not in refused.value.message
    for said in (lambda: with_policies(chief, acl(("Topic:a", ["Pub"]))), lambda: without_policies(chief)):
        with pytest.raises(InvalidArgumentError, match="Super"):
            said()
    with pytest.raises(InvalidArgumentError):
        new_user("alice", "")


def test_an_entry_is_replaced_or_removed_and_every_other_line_stays():
    changed = with_entry(FILE, "alice", new_user("alice", "new"))
    assert changed == FILE.replace('access_keys = {alice = "alice123"}', 'access_keys = {"alice" = "new"}\ngroups = []')
    removed = with_entry(FILE, "alice", None)
    assert removed == FILE.replace('[[clients]]\nname = "alice"\naccess_keys = {alice = "alice123"}\n', "")
    assert with_entry(FILE, "last", None) == FILE[: FILE.index('[[clients]]\nname = "last"')]
    added = with_entry(FILE, "bob", new_user("bob", 'b"o\\b\u20ac'))
    assert added.startswith(FILE)
    assert [each["name"] for each in tomllib.loads(added)["clients"]] == ["shop", "alice", "last", "bob"]
    assert parse_access_file(added.encode()).secrets["bob"] == 'b"o\\b\u20ac'.encode()
    assert with_entry("", "bob", new_user("bob", "b")) == entry_text(new_user("bob", "b"))
    assert with_entry(FILE, "nobody", None) == FILE


@pytest.mark.parametrize(
    "text",
    [
        'clients = [{name = "alice", access_keys = {alice = "alice123"}}, {name = "bob"}]\n',
        '[[clients]]\nname = "shop"\ncertificates = ["""\n[[clients]]\nname = "alice"\n#"""]\n[[clients]]\nname = "alice"\n',
    ],
)
def test_a_file_that_a_program_cannot_change_safely_is_not_changed(text):
    with pytest.raises(ValueError, match="cannot be changed by a program"):
        with_entry(text, "alice", None)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "access.toml"
    path.write_text(FILE)
    path.chmod(0o640)
    return path


@pytest.fixture
def users(path):
    return Users(WatchedFile("access_file", path, parse_access_file, lambda: 0.0))


def test_users_are_kept_in_the_file_with_its_mode_and_known_at_once(users, path):
    users.create("bob", "bob12345", "", "")
    users.create("bob", "bob12345", "Normal", "enable")
    users.set_policies("User:bob", acl(("Topic:t", ["Pub"])))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert parse_access_file(path.read_bytes()).by_access_key["bob"].allows(WRITE, "t")
    assert [row["username"] for row in users.rows("")] == ["shop-key", "alice", "bob"]
    assert [row["subject"] for row in users.acls("", "Topic:t")] == ["User:bob"]
    assert users.acl("User:alice") == acl_row("alice", Client(name="alice"))  # of every group: it has no `groups`
    users.delete("bob")
    users.delete("bob")
    assert users.row("bob") is None
    assert path.read_text() == f"{FILE}\n\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda users: users.create("alice", "other", "", ""), "existed"),
        (lambda users: users.create("shop", "other", "", ""), "existed: shop"),
        (lambda users: users.update("nobody", "x", "", ""), "not exist"),
        (lambda users: users.update("shop-key", "x", "", ""), "belongs to the client shop"),
        (lambda users: users.delete("shop-key"), "belongs to the client shop"),
        (lambda users: users.set_policies("Group:alice", acl(("Topic:t", ["Pub"]))), "no user"),
        (lambda users: users.acl("User:nobody"), "not exist"),
        (lambda users: users.delete_policies("User:alice", "", "Default"), "'Default'"),
        (lambda users: users.create("bob\nroot", "x", "", ""), "printable"),
    ],
)
def test_a_change_that_is_refused_leaves_the_file_as_it_is(users, path, change, why):
    with pytest.raises(InvalidArgumentError, match=why):
        change(users)
    assert path.read_text() == FILE


def test_changes_of_two_programs_at_once_are_both_kept(users, path):
    users.create("bob", "bob12345", "", "")
    others = [Users(WatchedFile("access_file", path, parse_access_file, lambda: 0.0)) for _ in range(4)]

    def work(number):
        for topic in range(5):
            others[number].set_policies("User:bob", acl((f"Topic:t{number}-{topic}", ["Pub"])))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = parse_access_file(path.read_bytes()).clients[-1].write
    assert sorted(written) == sorted(f"t{number}-{topic}" for number in range(4) for topic in range(5))


def test_a_write_protected_file_is_named_and_stays(users, path):
    path.chmod(0o440)
    with pytest.raises(StoreReadOnlyError, match=r"write-protected \(.*access.toml\); change the user bob where"):
        users.create("bob", "bob12345", "", "")
    assert path.read_text() == FILE


def as_another_user(monkeypatch, path, fchown):
    """What a program makes belongs to another user than the file."""
    of_file = path.stat()
    made = SimpleNamespace(st_uid=of_file.st_uid + 1, st_gid=of_file.st_gid + 1)
    monkeypatch.setattr("gateway.auth.access_file.os.fstat", lambda _: made)
    monkeypatch.setattr("gateway.auth.access_file.os.fchown", fchown)


def test_a_file_that_another_user_changes_keeps_its_owner_as_does_its_lock(users, path, monkeypatch):
    given = []
    owner = path.stat()
    with monkeypatch.context() as patched:
        as_another_user(patched, path, lambda _, uid, gid: given.append((uid, gid)))
        users.create("bob", "bob12345", "", "")
        users.delete("bob")
    assert given == [(owner.st_uid, owner.st_gid)] * 3  # the new lock, and each new file


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_changes_a_file_of_a_service_and_the_service_still_has_it(users, path):
    os.chown(path, 1234, 1235)
    users.create("bob", "bob12345", "", "")
    for each in (path, path.with_name(".access.toml.lock")):
        assert (each.stat().st_uid, each.stat().st_gid) == (1234, 1235)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_whose_owner_cannot_be_kept_is_not_changed(users, path, monkeypatch):
    users.create("bob", "bob12345", "", "")
    before = path.read_text()

    def fchown(*_):
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        as_another_user(patched, path, fchown)
        with pytest.raises(StoreReadOnlyError, match="change it as that user"):
            users.delete("bob")
    assert path.read_text() == before
    assert sorted(each.name for each in path.parent.iterdir()) == [".access.toml.lock", "access.toml"]


@pytest.fixture
def held(path):
    """A descriptor by which another program holds the lock."""
    lock = os.open(path.with_name(".access.toml.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield lock
    os.close(lock)


def with_bob(_):
    return {"bob": new_user("bob", "bob12345")}


@pytest.mark.usefixtures("held")
def test_a_change_waits_a_limited_time_for_another_program_and_is_refused(path):
    waited = []
    with pytest.raises(ResourceBusyError, match="another program has been changing"):
        change_access_file(path, with_bob, clock=lambda: sum(waited), sleep=waited.append)
    assert LOCK_SECONDS_MAX <= sum(waited) < LOCK_SECONDS_MAX + 0.1
    assert path.read_text() == FILE


def test_a_change_goes_on_once_the_other_program_has_ended(path, held):
    assert change_access_file(path, with_bob, clock=lambda: 0.0, sleep=lambda _: fcntl.flock(held, fcntl.LOCK_UN))
    assert "bob" in parse_access_file(path.read_bytes()).secrets


def test_a_user_that_may_read_the_directory_cannot_keep_others_from_changes(path):
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        assert change_access_file(path, with_bob, clock=lambda: 0.0, sleep=lambda _: pytest.fail("it waits"))
    finally:
        os.close(directory)


def test_what_an_editor_saves_during_a_change_is_not_lost(path):
    def edit(clients):
        path.write_text(FILE + '\n[[clients]]\nname = "new"\n')
        return with_bob(clients)

    with pytest.raises(ResourceBusyError, match="meanwhile: try again"):
        change_access_file(path, edit)
    assert [each.name for each in parse_access_file(path.read_bytes()).clients] == ["shop", "alice", "last", "new"]
    assert change_access_file(path, with_bob)


def test_a_change_is_on_the_disk_with_its_name_before_it_is_answered(path, monkeypatch):
    done = []
    replace, fsync = Path.replace, os.fsync

    def synced(fd):
        done.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def replaced(old, new):
        done.append("replace")
        return replace(old, new)

    monkeypatch.setattr("gateway.auth.access_file.os.fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    change_access_file(path, with_bob)
    assert done == ["file", "replace", "directory"]


def test_a_change_that_fails_at_its_end_leaves_no_secrets_beside_the_file(users, path, monkeypatch):
    def busy(*_):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    with pytest.raises(StoreReadOnlyError, match="resource busy"):
        users.create("bob", "bob12345", "", "")
    assert sorted(each.name for each in path.parent.iterdir()) == [".access.toml.lock", "access.toml"]
    assert path.read_text() == FILE


def test_a_file_with_line_ends_of_windows_keeps_them(path):
    old = FILE.replace("\n", "\r\n").encode()
    path.write_bytes(old)
    change_access_file(path, lambda _: {"bob": new_user("bob", "b"), "alice": new_user("alice", "new")})
    new = path.read_bytes()
    assert new.count(b"\n") == new.count(b"\r\n")
    assert new.startswith(old[: old.index(b'[[clients]]\r\nname = "alice"')])
    assert parse_access_file(new).secrets == {"shop-key": b"its-secret", "bob": b"b", "alice": b"new"}


def test_a_change_parses_the_whole_file_twice_however_many_clients_it_has(path, monkeypatch):
    names = [f"user-{number}" for number in range(20)]
    change_access_file(path, lambda _: {name: new_user(name, "pw") for name in names})
    parsed = []

    def parse(data):
        parsed.append(len(data))
        return parse_access_file(data)

    monkeypatch.setattr("gateway.auth.access_file.parse_access_file", parse)
    change_access_file(path, lambda _: {"user-7": None})
    assert [size for size in parsed if size > 100] == [parsed[0], path.stat().st_size]
    assert list(parse_access_file(path.read_bytes()).secrets) == [
        *("shop-key", "alice"),
        *(name for name in names if name != "user-7"),
    ]


def test_a_new_file_of_secrets_is_for_its_user_alone(tmp_path):
    path = tmp_path / "new.toml"
    assert change_access_file(path, lambda clients: {"bob": new_user("bob", "b")})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / ".new.toml.lock").stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == [".new.toml.lock", "new.toml"]
