"""`reput make-key`, and the flags for TLS and keys that every verb with an address has."""

import tomllib

import pytest

from cli.exits import CliError
from cli.main import VERBS, _build_app, main
from cli.make_key import make_key
from cli.security_flags import FLAGS, with_flags
from gateway.auth.access import READ, WRITE
from gateway.auth.access_file import hash_key, parse_access_file


def test_a_key_is_printed_once_and_its_hash_and_rights_stand_in_the_file(tmp_path, capsys):
    file = tmp_path / "access.toml"
    for name in ("first", "second"):
        make_key(name=name, read=["a-*"], write=None, admin=None, file=file)
    first, second = capsys.readouterr().out.split()

    clients = parse_access_file(file.read_bytes())
    assert first not in file.read_text()
    assert clients.by_key_hash[hash_key(first)].name == "first"
    assert clients.by_key_hash[hash_key(second)].allows(READ, "a-1")
    assert not clients.by_key_hash[hash_key(second)].allows(WRITE, "a-1")


def test_without_a_file_the_entry_is_told_beside_the_key(capsys):
    make_key(name="one", admin=["*"], read=None, write=None, file=None)
    told = capsys.readouterr()

    entry = tomllib.loads(told.err[told.err.index("[[clients]]") :])["clients"][0]
    assert entry == {"name": "one", "api_key_sha256": [hash_key(told.out.strip())], "admin": ["*"]}


@pytest.mark.parametrize(
    ("name", "pattern"), [("a\x1bb", "x"), ("a" * 129, "x"), ("", "x"), ("a\nb", "x"), ("a", 'x"]'), ("a", "x y")]
)
def test_a_name_or_pattern_that_would_break_the_file_is_refused(tmp_path, name, pattern):
    file = tmp_path / "access.toml"
    with pytest.raises(CliError):
        make_key(name=name, read=[pattern], write=None, admin=None, file=file)
    assert not file.exists()


def test_a_name_that_is_taken_changes_nothing(tmp_path):
    file = tmp_path / "access.toml"
    make_key(name="one", read=["x"], write=None, admin=None, file=file)
    before = file.read_bytes()
    with pytest.raises(CliError, match="two clients"):
        make_key(name="one", read=["x"], write=None, admin=None, file=file)
    assert file.read_bytes() == before


def test_every_verb_that_calls_a_gateway_has_the_flags_for_tls_and_keys():
    import importlib

    verbs = {name: getattr(importlib.import_module(module), function) for name, (module, function) in VERBS.items()}
    calling = {name for name, verb in verbs.items() if with_flags(verb) is not verb}

    assert {"find", "search", "queryMsgById", "send", "load", "topics", "status"} <= calling
    for command in _build_app(sorted(calling), {}).registered_commands:
        assert command.callback is not None
        assert set(FLAGS) <= set(command.callback.__signature__.parameters), command.name


@pytest.mark.parametrize(
    "flags",
    [
        ["--tls-cert", "a.crt"],
        ["--tls-ca", "/nowhere/ca.crt"],
        ["--api-key", "reput_x", "--token-file", "f"],
        ["--api-key", "reput_canary"],
    ],
)
def test_flags_that_do_not_fit_are_a_usage_error_that_repeats_no_key(flags, capsys):
    """The last one: a key to another machine without TLS."""
    code = main(["topics", "--address", "gateway.example:8081", *flags])

    assert code == 2
    assert "reput_" not in capsys.readouterr().err


def test_an_access_key_and_its_secret_are_printed_and_sign_for_the_client(tmp_path, capsys):
    file = tmp_path / "access.toml"
    rights = {"read": ["a-*"], "write": None, "admin": None, "group": ["readers"]}
    make_key(name="one", access_key=True, file=file, **rights)
    key, secret = capsys.readouterr().out.split()

    clients = parse_access_file(file.read_bytes())
    assert clients.secrets == {key: secret.encode()}
    assert clients.by_access_key[key].name == "one"
    assert clients.by_access_key[key].groups == {"readers"}
    assert file.stat().st_mode & 0o777 == 0o600
