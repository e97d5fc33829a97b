"""The real RocketMQ and its proxy: what the official clients see there, the cases of test_reput.py expect."""

from collections.abc import Iterator

import pytest

from tests.clients import programs, running, servers
from tests.rocketmq import real_broker

WHY_NOT = programs.why_unavailable() or real_broker.why_unavailable()
pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.release,  # a change is judged by test_reput.py
    pytest.mark.timeout(1800),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.Outcomes]:
    work = tmp_path_factory.mktemp("real")
    with (
        servers.real_server(work) as server,
        running.begun(server, running.plays_of(request), work) as outcomes,
    ):
        yield outcomes


@running.each_play
def test_an_official_client_sees_the_case_on_the_real_one(outcomes: running.Outcomes, language: str, case: str) -> None:
    outcomes[language, case].result()
