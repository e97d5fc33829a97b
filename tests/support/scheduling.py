"""Which process runs which test files, and in which order: `-p tests.support.scheduling` beside pytest-xdist's `-n`.

As with `--dist loadfile` a file stays in one process, so that what its tests share is made once. Besides:

    Spark's files   all in one process, which begins with them: a session is a Java process, and slow until it is warm
    long files      before short ones, so that at the end no process is busy for minutes while others have nothing to do

What is long is guessed from what stands in a file: a wrong guess costs time, nothing else.
"""

import functools
import re
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

SPARK = "spark"
# The fixture's name among the arguments of a test or of another fixture.
ASKS_FOR_SPARK = re.compile(r"^(?:async )?def \w+\([^)]*\bspark\b", re.MULTILINE)
# Services, the command, other programs: their tests wait, and the processors are free for others meanwhile.
STARTS_PROCESSES = re.compile(r"\b(?:running_stack|Stack|Service|Lives|begun|Popen|subprocess|secured)\b")


class LongFilesFirst(LoadFileScheduling):
    """xdist's scheduling by file, for tests in the order that they were collected in, with Spark's files as one."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SPARK if kind_of(self.config.rootpath / file) == 0 else file


@functools.cache
def kind_of(path: Path) -> int:
    """0 for Spark's files, 1 for those that start processes, 2 for others."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if ASKS_FOR_SPARK.search(text):
        return 0
    return 1 if STARTS_PROCESSES.search(text) else 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first; within a file everything stays in its order."""
    items.sort(key=lambda item: kind_of(item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongFilesFirst:
    """The scheduler of this run."""
    return LongFilesFirst(config, log)
