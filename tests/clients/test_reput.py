"""Every official client, unmodified, consumes from `reput serve`."""

import contextlib
import pathlib
from collections.abc import Iterator

import pytest

from tests.clients import lite_cases, programs, running, servers
from tests.clients.stage import opened, wait_for_ids
from tests.support.ports import free_port

WHY_NOT = programs.why_unavailable()
pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.Outcomes]:
    work = tmp_path_factory.mktemp("reput")
    with servers.reput_server(work) as server, running.begun(server, running.plays_of(request), work) as outcomes:
        yield outcomes


@running.each_play
def test_an_official_client_sees_the_case_on_reput(outcomes: running.Outcomes, language: str, case: str) -> None:
    outcomes[language, case].result()


@pytest.mark.parametrize("language", programs.PUSH_LANGUAGES)
def test_a_lite_push_consumer_goes_on_behind_a_restart_of_gateway_and_shard(
    language: str, tmp_path: pathlib.Path
) -> None:
    flags = "--gateway-port", str(free_port())
    with contextlib.ExitStack() as running:
        with servers.reput_server(tmp_path, *flags) as before:
            stage = running.enter_context(opened(before, language, language, tmp_path))
            topic = stage.topic("LITE")
            consumer = stage.lite(topic, stage.group(bind_topic=topic), "a", "b")
            sent = [each for name in "ab" for each in lite_cases.send_to(stage.producer(topic), name, range(3))]
            wait_for_ids(sent, consumer)
        with servers.reput_server(tmp_path, *flags):
            producer = stage.producer(topic)
            lite_cases.send_to(producer, "c", ["unwanted"])
            sent += [each for name in "ab" for each in lite_cases.send_to(producer, name, range(3, 6))]
            wait_for_ids(sent, consumer)
            bodies = lite_cases.by_lite_topic(consumer)
            # What was received at the last moment may come again: its acknowledgement was not answered. The client hands the
            # messages of one answer to threads, which tell of them in any order.
            assert {name: sorted(set(each)) for name, each in bodies.items()} == {
                name: [str(number) for number in range(6)] for name in "ab"
            }


def test_a_lite_simple_consumer_of_pythons_client_is_served(tmp_path: pathlib.Path) -> None:
    with servers.reput_server(tmp_path) as server, opened(server, "python", "simple", tmp_path) as stage:
        lite_cases.a_lite_simple_consumer_asks_for_its_lite_topics(stage)
