"""Runs cases side by side: most of a case is waiting, for a poll, a back-off or an invisible time to end."""

import concurrent.futures
import contextlib
import pathlib
from collections.abc import Iterator, Sequence

import pytest

from tests.clients import lite_cases, waiting_cases  # noqa: F401  # they register their cases
from tests.clients.cases import CASES
from tests.clients.servers import Server, wait_until_routed
from tests.clients.stage import opened

# More JVMs at once make two processors too slow for the clients' own deadlines.
SIDE_BY_SIDE = 8
Play = tuple[str, str]
Outcomes = dict[Play, concurrent.futures.Future[None]]

PLAYS: list[Play] = [(language, name) for name, (_, languages) in CASES.items() for language in languages]


each_play = pytest.mark.parametrize(("language", "case"), PLAYS, ids=["-".join(play) for play in PLAYS])


def play(server: Server, language: str, case: str, work: pathlib.Path) -> None:
    """One case of one language."""
    name = f"{language}-{list(CASES).index(case)}"
    with opened(server, language, name, work / name) as stage:
        CASES[case][0](stage)


def plays_of(request: pytest.FixtureRequest) -> list[Play]:
    """Those of this module that were chosen for this run, in their order."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    calls = [item.callspec for item in items if item.path == request.path and hasattr(item, "callspec")]
    return [(call.params["language"], call.params["case"]) for call in calls if "case" in call.params]


@contextlib.contextmanager
def begun(server: Server, plays: Sequence[Play], work: pathlib.Path) -> Iterator[Outcomes]:
    """The outcomes of cases, which run; those that have not begun when the block ends never do."""
    server.create_topic("First", 1, "NORMAL")
    wait_until_routed(server, "First")  # a cold server takes longer than clients wait
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        outcomes = {each: pool.submit(play, server, *each, work) for each in plays}
        try:
            yield outcomes
        finally:
            pool.shutdown(cancel_futures=True)
