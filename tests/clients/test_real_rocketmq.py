"""The real RocketMQ 5.3.3 and its proxy, and 5.5.0 for what is new there: what the official clients see there, the cases of
test_reput.py expect."""

from collections.abc import Iterator

import pytest

from tests.clients import programs, running, servers
from tests.clients.cases import SINCE_5_5
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
    plays = [each for each in running.plays_of(request) if each[1] not in SINCE_5_5]
    work = tmp_path_factory.mktemp("real")
    with servers.real_server(work) as server, running.begun(server, plays, work) as outcomes:
        yield outcomes


@pytest.fixture(scope="module")
def newest_outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[running.Outcomes]:
    plays = [each for each in running.plays_of(request) if each[1] in SINCE_5_5]
    work = tmp_path_factory.mktemp("newest")
    with servers.real_server(work, real_broker.NEWEST) as server, running.begun(server, plays, work) as outcomes:
        yield outcomes


@running.each_play_before_5_5
def test_an_official_client_sees_the_case_on_the_real_one(outcomes: running.Outcomes, language: str, case: str) -> None:
    outcomes[language, case].result()


@running.each_play_since_5_5
def test_an_official_client_sees_the_case_on_the_newest_one(
    newest_outcomes: running.Outcomes, language: str, case: str
) -> None:
    newest_outcomes[language, case].result()
