"""What a client trusts and shows."""

import pytest

from reput_client import ClientSecurity


def test_a_key_travels_to_this_machine_or_over_tls_and_nowhere_else():
    keyed = ClientSecurity(api_key="reput_x")
    for local in ("127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/tmp/s"):
        assert keyed.metadata(local)
    with pytest.raises(ValueError, match="without TLS"):
        keyed.metadata("gateway:8081")

    assert ClientSecurity(api_key="reput_x", tls=True).metadata("gateway:8081")
    assert ClientSecurity(api_key="reput_x", allow_plaintext=True).metadata("gateway:8081")
    assert ClientSecurity().metadata("gateway:8081") is None


def test_a_token_file_is_read_again_when_it_changes(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    metadata = ClientSecurity(token_file=path).metadata("127.0.0.1:1")

    assert metadata() == (("authorization", "Bearer one"),)
    path.write_text("another")
    assert metadata() == (("authorization", "Bearer another"),)


def test_the_key_is_not_shown_with_the_object():
    assert "reput_x" not in repr(ClientSecurity(api_key="reput_x"))


@pytest.mark.parametrize(
    "fields",
    [{"certificate_file": "c"}, {"api_key": "k", "token_file": "t"}, {"tls": False, "ca_file": "c"}],
)
def test_what_contradicts_itself_is_refused(fields):
    with pytest.raises(ValueError, match=r"given|together"):
        ClientSecurity(**fields)


def test_the_environment_says_the_same():
    names = ("REPUT_CLIENT_CA", "REPUT_CLIENT_CERTIFICATE", "REPUT_CLIENT_KEY", "REPUT_TOKEN_FILE")
    security = ClientSecurity.from_environment(dict.fromkeys(names, "f"))

    assert (security.ca_file, security.key_file, security.token_file, security.uses_tls) == ("f", "f", "f", True)
    assert ClientSecurity.from_environment({}) == ClientSecurity()
