"""Names of a caller's certificate: which count."""

import datetime

import pytest

from services.serving.identity import CERTIFICATE_FACT, SHOWN_CHARACTERS_MAX, peer_identities, shown
from tests.support.certificates import DNS, EMAIL, URI, Authority, general_names

GATEWAY = b"spiffe://reput/gateway"


class Call:
    """As much of gRPC's context as is looked at; gRPC's own list of names says that it is the gateway."""

    def __init__(self, pem=None):
        self._pem = pem

    def auth_context(self):
        names = {"x509_subject_alternative_name": [GATEWAY]}
        return names if self._pem is None else names | {CERTIFICATE_FACT: [self._pem.certificate.read_bytes()]}


def test_uris_and_dns_names_of_a_certificate_count(tmp_path):
    pem = Authority(tmp_path).issue("a", "localhost", "127.0.0.1", GATEWAY.decode())

    assert peer_identities(Call(pem)) == {"localhost", GATEWAY.decode()}
    assert peer_identities(Call()) == frozenset()


@pytest.mark.parametrize(
    "san",
    [
        general_names((URI, GATEWAY + b"\0.evil")),
        general_names((DNS, GATEWAY)),
        general_names((EMAIL, GATEWAY)),
        general_names((URI, b"\xff" + GATEWAY)),
        general_names((URI, GATEWAY + b"/")),
        GATEWAY,
    ],
    ids=["cut at a zero byte", "as a DNS name", "as an e-mail address", "not ASCII", "longer", "no SAN at all"],
)
def test_a_name_that_only_looks_like_the_gateway_is_not_the_gateway(tmp_path, san):
    pem = Authority(tmp_path).issue("a", san=san)

    assert GATEWAY.decode() not in peer_identities(Call(pem))


@pytest.mark.parametrize("san", [general_names((URI, b"localhost")), general_names((EMAIL, b"localhost"))])
def test_a_name_of_another_kind_is_no_dns_name(tmp_path, san):
    assert "localhost" not in peer_identities(Call(Authority(tmp_path).issue("a", san=san)))


def test_a_connection_older_than_its_certificate_was_refused_for_ever(tmp_path):
    """gRPC's clients do not reconnect on UNAUTHENTICATED: those with a renewed certificate were refused, too."""
    pem = Authority(tmp_path).issue("a", GATEWAY.decode(), lifetime=datetime.timedelta(minutes=-5))

    assert peer_identities(Call(pem)) == {GATEWAY.decode()}


def test_errors_show_the_begin_of_a_long_list_of_names():
    assert shown(frozenset()) == "nobody"
    assert len(shown(frozenset(f"spiffe://reput/{number}" for number in range(1000)))) == SHOWN_CHARACTERS_MAX
