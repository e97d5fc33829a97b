"""Page tokens that are no token of this query, and one that outlives what it pointed into."""

import base64
import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.status import from_rpc_error
from store.errors import InvalidPageTokenError
from tests.support.service import hosted_service
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

TOPIC = "Tokens"
COUNT = 40
LOG_FILE_BYTES = 4096
SETTINGS = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": str(LOG_FILE_BYTES)}

Ask = Callable[[str], object]


def append(stack: HostedStack, count: int) -> None:
    messages = [
        new_message(TOPIC, b"%d" % n, keys=["all", "other"], unique_key="one", queue_id=0) for n in range(count)
    ]
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
    for n in range(3):
        stack.gateway.AppendMessages(
            pb.AppendMessagesRequest(messages=[new_message(f"More{n}", b"x")]), timeout=WAIT_SECONDS_MAX
        )
    stack.wait_until_built()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("tokens") / "store") as running:
        append(running, COUNT)
        yield running


def paged_queries(gateway: object) -> dict[str, Ask]:
    """Each query with pages, by name; the argument is a page token."""
    return {
        "by key": lambda token: gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic=TOPIC, key="all", page_size=3, page_token=token), timeout=WAIT_SECONDS_MAX
        ),
        "by another key": lambda token: gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic=TOPIC, key="other", page_size=3, page_token=token),
            timeout=WAIT_SECONDS_MAX,
        ),
        "by unique key": lambda token: gateway.QueryMessageByUniqueKey(
            pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key="one", page_size=3, page_token=token),
            timeout=WAIT_SECONDS_MAX,
        ),
        "search": lambda token: gateway.SearchMessages(
            pb.SearchMessagesRequest(topic=TOPIC, page_size=3, page_token=token), timeout=WAIT_SECONDS_MAX
        ),
        "topics": lambda token: gateway.ListTopics(
            pb.ListTopicsRequest(page_size=1, page_token=token), timeout=WAIT_SECONDS_MAX
        ),
    }


QUERIES = list(paged_queries(None))


def is_refused(ask: Ask, token: str) -> bool:
    """Whether it is refused as it should be; any other error is one."""
    try:
        ask(token)
    except grpc.RpcError as error:
        if not isinstance(from_rpc_error(error), InvalidPageTokenError):
            raise
        return error.code() is grpc.StatusCode.INVALID_ARGUMENT
    return False


@pytest.mark.parametrize("name", QUERIES)
def test_a_token_goes_on_with_its_own_query_and_no_other(stack: HostedStack, name: str) -> None:
    queries = paged_queries(stack.gateway)
    token = queries[name]("").next_page_token
    assert token
    assert not is_refused(queries[name], token)
    for other in set(queries) - {name}:
        assert is_refused(queries[other], token), other


@pytest.mark.parametrize("name", QUERIES)
def test_a_token_with_one_changed_character_or_length_is_refused(stack: HostedStack, name: str) -> None:
    ask = paged_queries(stack.gateway)[name]
    token = ask("").next_page_token
    for at in range(len(token)):
        replaced = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        assert is_refused(ask, replaced), at
    for wrong in (token[:-1], token[1:], token + "A", token + "=", token * 2, "A" * 100_000, "你好", token.lower()):
        assert is_refused(ask, wrong), wrong[:40]


@pytest.mark.parametrize("version", [0, 1, 2, 3, 127, 255])
def test_a_token_of_another_version_is_refused_whatever_it_holds(stack: HostedStack, version: int) -> None:
    """Of a newer or an older gateway, during an upgrade: refused cleanly, the client begins anew."""
    for ask in paged_queries(stack.gateway).values():
        token = ask("").next_page_token
        data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        if data[0] == version:
            continue
        for changed in (bytes([version]) + data[1:], bytes([version]), bytes([version]) + b"\xff" * 200):
            assert is_refused(ask, base64.urlsafe_b64encode(changed).rstrip(b"=").decode())


def test_a_token_of_a_gateway_with_another_secret_is_refused_and_of_one_with_the_same_is_taken(
    stack: HostedStack, tmp_path: pathlib.Path
) -> None:
    inner = {f"REPUT_{name.upper()}_TARGET": stack.addresses[name] for name in ("commitlog", "consumequeue", "index")}
    with contextlib.ExitStack() as processes:
        same = processes.enter_context(hosted_service("gateway", tmp_path, inner))
        foreign = processes.enter_context(
            hosted_service("gateway", tmp_path, {**inner, "REPUT_GATEWAY_PAGE_TOKEN_SECRET": "another"})
        )
        for name, ask in paged_queries(stack.gateway).items():
            token = ask("").next_page_token
            assert not is_refused(paged_queries(same.stub)[name], token), name
            assert is_refused(paged_queries(foreign.stub)[name], token), name
            assert is_refused(ask, paged_queries(foreign.stub)[name]("").next_page_token), name


def test_a_token_that_points_to_what_has_expired_ends_with_what_is_left(tmp_path: pathlib.Path) -> None:
    """Retention took the older log files between two pages: the next page has what is left of its part, and nothing twice."""
    with hosted_stack(tmp_path / "store", settings=SETTINGS) as stack:
        append(stack, COUNT)
        first = paged_queries(stack.gateway)["by key"]("")
    files = sorted((tmp_path / "store" / "commitlog").iterdir())
    assert len(files) > 2
    for path in files[:-1]:
        path.unlink()
    begin = int(files[-1].name)
    with hosted_stack(tmp_path / "store", settings=SETTINGS) as stack:
        stack.wait_until_built()
        ask = paged_queries(stack.gateway)["by key"]
        everything = stack.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic=TOPIC, key="all", page_size=1000), timeout=WAIT_SECONDS_MAX
        )
        kept = [message.commit_log_offset for message in everything.messages]
        found = [message.commit_log_offset for message in first.messages]
        token = first.next_page_token
        while token:
            answer = ask(token)
            assert answer.completeness != message_pb2.COMPLETENESS_UNSPECIFIED
            found += [message.commit_log_offset for message in answer.messages]
            token = answer.next_page_token
    assert all(offset >= begin for offset in kept)
    assert [offset for offset in found if offset >= begin] == kept
    assert len(found) == len(set(found)), json.dumps(found)
