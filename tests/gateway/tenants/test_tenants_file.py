"""The tenants file: what it may hold, and what is told of one that is not valid."""

import pytest

from gateway.tenants.tenants_file import GATEWAY_COUNT_MAX, NAMESPACE_COUNT_MAX, Quotas, parse_tenants_file


def test_quotas_are_read_by_namespace_and_what_is_left_out_has_no_limit() -> None:
    file = parse_tenants_file(
        b"gateway_count = 3\n[namespaces.team-a]\nsent_messages_per_second = 1_000\n[namespaces.b_1]"
    )
    assert file.gateway_count == 3
    assert file.namespaces == {"team-a": Quotas(sent_messages_per_second=1_000), "b_1": Quotas()}
    assert file.namespaces["team-a"].sent_bytes_per_second is None
    assert parse_tenants_file(b"").namespaces == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[namespaces.a]\nmessages = 1", "namespaces.a.messages"),
        ("[namespaces.a]\nsent_messages_per_second = -1", "greater than or equal to 0"),
        ("[namespaces.a]\nsent_messages_per_second = 1" + "0" * 400, "less than or equal"),
        ("[namespaces.a]\nstored_bytes = 9_223_372_036_854_775_808", "less than or equal"),
        ("[namespaces.a]\nsent_messages_per_second = 1.5", "valid integer"),
        ("[namespaces.a]\nsent_messages_per_second = true", "valid integer"),
        ('[namespaces."a%b"]', "should match pattern"),
        ('[namespaces.""]', "should match pattern"),
        ("gateway_count = 0", "greater than or equal to 1"),
        (f"gateway_count = {GATEWAY_COUNT_MAX + 1}", "less than or equal"),
        ("".join(f"[namespaces.n{number}]\n" for number in range(NAMESPACE_COUNT_MAX + 1)), "at most"),
        ("[namespaces", "Expected"),
    ],
)
def test_a_file_that_is_not_valid_says_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_tenants_file(text.encode())
