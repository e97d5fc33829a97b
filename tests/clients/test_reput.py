"""Every official client, unmodified, consumes from `reput serve`."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.clients import lite_cases, programs, running, servers
from tests.clients.stage import opened

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


def test_a_lite_simple_consumer_of_pythons_client_is_served(tmp_path: pathlib.Path) -> None:
    with servers.reput_server(tmp_path) as server, opened(server, "python", "simple", tmp_path) as stage:
        lite_cases.a_lite_simple_consumer_asks_for_its_lite_topics(stage)
