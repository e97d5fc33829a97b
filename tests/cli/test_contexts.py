"""`reput context`: names for gateways, and which one a call goes to."""

import pathlib

import pytest

import cli.main
from cli.contexts import Context, chosen_context, read_contexts
from cli.exits import CliError
from reput_client.security import ClientSecurity

LINE, ENVIRONMENT, NOWHERE = "COMMANDLINE", "ENVIRONMENT", "DEFAULT"


@pytest.fixture
def file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The file of contexts of this test, in a folder that does not exist yet."""
    path = tmp_path / "new" / "contexts.toml"
    monkeypatch.setenv("REPUT_CONTEXTS", str(path))
    for name in ("REPUT_ADDRESS", "REPUT_CONTEXT", "REPUT_API_KEY", "REPUT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return path


def reput(*arguments: str) -> int:
    return cli.main.main(["context", *arguments])


def test_contexts_are_added_listed_used_and_removed(file, tmp_path, monkeypatch, capsys):
    (tmp_path / "ca.crt").touch()
    monkeypatch.chdir(tmp_path)
    assert reput("list") == 1
    assert capsys.readouterr().err == "no contexts\n"
    assert reput("add", "prod", "--endpoint", "gw.example:8081", "--ca", "ca.crt") == 0
    assert reput("add", 'odd "name"', "--endpoint", "[::1]:8081", "--tls") == 0

    assert read_contexts(file).by_name == {
        "prod": Context("gw.example:8081", ca=str(tmp_path / "ca.crt")),
        'odd "name"': Context("[::1]:8081", tls=True),
    }
    assert file.stat().st_mode & 0o077 == 0
    assert reput("use", "prod") == 0
    assert read_contexts(file).current == "prod"
    capsys.readouterr()
    assert reput("list", "-o", "csv") == 0
    assert f"*,prod,gw.example:8081,{tmp_path / 'ca.crt'},,,false," in capsys.readouterr().out
    assert reput("remove", "prod") == 0
    assert read_contexts(file).current == ""
    assert reput("use", "prod") == 2


@pytest.mark.parametrize(
    ("named", "address_origin", "endpoint"),
    [
        (("", NOWHERE), NOWHERE, "current:1"),
        (("", NOWHERE), LINE, None),
        (("", NOWHERE), ENVIRONMENT, None),
        (("other", LINE), NOWHERE, "other:1"),
        (("other", ENVIRONMENT), NOWHERE, "other:1"),
        (("other", LINE), ENVIRONMENT, "other:1"),
        (("other", ENVIRONMENT), LINE, None),
    ],
)
def test_the_command_line_is_stronger_than_the_environment_and_both_than_the_current_context(
    file, named, address_origin, endpoint
):
    """An address that is named gets no context: a token must not go to another gateway than its own."""
    reput("add", "other", "--endpoint", "other:1")
    reput("add", "current", "--endpoint", "current:1")
    context = chosen_context(*named, address_origin, {"REPUT_CONTEXTS": str(file)})

    assert (None if context is None else context.endpoint) == endpoint


def test_a_context_and_an_address_together_are_refused(file, capsys):
    reput("add", "prod", "--endpoint", "127.0.0.1:1")

    assert cli.main.main(["topics", "--context", "prod", "--address", "127.0.0.1:2"]) == 2
    assert cli.main.main(["topics", "--context", "nonesuch"]) == 2
    assert "prod" in capsys.readouterr().err


def test_a_verb_asks_the_gateway_of_the_current_context(file, capsys):
    reput("add", "prod", "--endpoint", "127.0.0.1:1")

    assert cli.main.main(["topics", "--timeout", "5"]) == 4
    assert "no answer from 127.0.0.1:1" in capsys.readouterr().err


def test_a_context_fills_in_what_is_not_given_and_mixes_no_credentials():
    context = Context("gw:1", ca="/ca", certificate="/crt", key="/key", token_file="/token")
    nothing = {"tls_ca": None, "tls_cert": None, "tls_key": None, "tls": False, "api_key": "", "token_file": None}

    filled = context.completed(nothing)
    assert [str(filled[name]) for name in ("tls_ca", "tls_cert", "tls_key", "token_file")] == [
        *("/ca", "/crt", "/key", "/token"),
    ]
    with_key = context.completed({**nothing, "api_key": "reput_x"})
    assert (with_key["api_key"], with_key["token_file"]) == ("reput_x", None)
    ClientSecurity(ca_file=with_key["tls_ca"], api_key=with_key["api_key"])


@pytest.mark.parametrize("content", ["current = ", "[contexts]\nprod = 1", "[contexts.prod]\nport = 1", "\xff"])
def test_a_file_that_cannot_be_read_is_named(file, content):
    file.parent.mkdir()
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(CliError, match=r"contexts\.toml"):
        read_contexts(file)


@pytest.mark.parametrize(
    "line",
    [
        ["prod", "--endpoint", "no-port"],
        ["prod", "--endpoint", "gw:1", "--ca", "/nowhere/ca.crt"],
        ["prod", "--endpoint", "gw:1", "--cert", "/etc/hostname"],
        ["a\nb", "--endpoint", "gw:1"],
    ],
)
def test_a_context_that_cannot_work_is_refused_and_nothing_is_written(file, line):
    assert reput("add", *line) == 2
    assert not file.exists()
