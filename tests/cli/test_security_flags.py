"""The flags for TLS and keys of one command are not those of the next one in the same process."""

from cli.security_flags import given_security
from tests.support.command import run_command


def test_a_command_in_one_process_took_the_authority_of_the_one_before(tmp_path):
    """The file of the first one is gone by then: the second one ended with a usage error."""
    authority = tmp_path / "ca.crt"
    authority.write_text("no certificate")
    first = run_command("topics", "--address", "127.0.0.1:1", "--tls-ca", str(authority))
    authority.unlink()
    assert given_security() is None
    second = run_command("topics", "--address", "127.0.0.1:1", "--timeout", "1")
    assert first.returncode != 0
    assert (second.returncode, str(authority) in second.stderr) == (4, False)
