"""The console of a gateway whose clients must sign in: what a key may see over gRPC, and nothing else."""

import http.client
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.gateway.auth.conftest import CLIENTS, OTHER, OWN, SecuredStack, access_text, key_of
from tests.support.stack import running_stack
from tests.support.waiting import WAIT_SECONDS_MAX


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory):
    root: Path = tmp_path_factory.mktemp("secured")
    access = root / "access.toml"
    access.write_text(access_text(CLIENTS))
    settings = {"REPUT_GATEWAY_AUTH": "on", "REPUT_GATEWAY_ACCESS_FILE": str(access)}
    with running_stack(root / "store", settings=settings) as stack:
        yield SecuredStack(stack)


def get(secured: SecuredStack, path: str, client: str | None, accept: str = "application/json") -> tuple[int, str]:
    host, _, port = secured.stack.addresses["console"].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_SECONDS_MAX)
    cookie = {} if client is None else {"Cookie": f"reput_session={key_of(client)}"}
    try:
        connection.request("GET", path, headers={"Accept": accept, **cookie})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def paths_of(secured: SecuredStack, topic: str) -> list[str]:
    return [
        f"/topics/{topic}",
        f"/topics/{topic}/0?broker=broker-a",
        f"/?mode=key&topic={topic}&key=common-key",
        f"/?mode=unique&topic={topic}&unique={secured.unique_keys[topic]}",
        f"/?mode=search&topic={topic}",
        f"/?mode=id&id={secured.ids[topic]}",
        f"/messages/{secured.ids[topic]}?broker=broker-a",
        f"/messages/{secured.ids[topic]}/body",
        f"/explain?mode=key&topic={topic}&key=common-key",
    ]


@pytest.mark.parametrize(
    ("client", "topic"), [("own-reader", OTHER), ("other-reader", OWN), ("idler", OWN), ("own-writer", OWN)]
)
def test_no_page_shows_what_the_key_may_not_read(secured: SecuredStack, client: str, topic: str) -> None:
    for path in [*paths_of(secured, topic), "/?q=common-key", "/topics", f"/?q={secured.ids[topic]}"]:
        for accept in ("application/json", "text/html"):
            status, text = get(secured, path, client, accept)
            assert f"body of {topic}" not in text, (path, status)
            if path.partition("?")[0] not in ("/", "/topics"):
                assert status in (403, 404), (path, status, text[:300])


def test_a_reader_sees_its_own_topic_on_every_page(secured: SecuredStack) -> None:
    for path in paths_of(secured, OWN):
        assert get(secured, path, "own-reader")[0] == 200, path
    assert OTHER not in get(secured, "/topics", "own-reader")[1]
    assert OTHER not in get(secured, f"/?q={quote('common-key')}", "own-reader", "text/html")[1]


def test_the_store_is_for_admins(secured: SecuredStack) -> None:
    for path in ("/store", "/reports", "/replicas"):
        assert get(secured, path, "own-reader")[0] == 403
        assert get(secured, path, "chief")[0] == 200


def test_nobody_and_an_unknown_key_are_sent_to_sign_in(secured: SecuredStack) -> None:
    assert get(secured, "/topics", None)[0] == 401
    assert get(secured, "/topics", None, "text/html")[0] == 303
    assert get(secured, "/topics", "stranger")[0] == 401


def test_no_key_and_no_body_is_in_the_log(secured: SecuredStack) -> None:
    log = secured.stack.log()
    assert "denied" in log
    assert "/reput.gateway.v1.GatewayService/" in log
    assert not [client for client in [*CLIENTS, "stranger"] if key_of(client) in log]
    assert "body of" not in log
