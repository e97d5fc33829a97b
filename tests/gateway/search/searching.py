"""Searches over shards in memory, and the answer by brute force."""

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from gateway.ports.deadline import Deadline
from gateway.ports.shard import Built
from gateway.ports.shards import FanOut, Shards
from gateway.queries.page import PageTokens
from gateway.reput.search import view_of
from gateway.search.cel_sandbox import CelSandbox
from gateway.search.question import Budgets, SearchAnswer, SearchQuestion
from gateway.search.search_messages import search_messages
from services.serving.calls.cancellation import Cancellation
from store.format.derived.queue_unit import tags_code
from store.format.record import Record
from tests.gateway.memory_shard import MemoryShard

COMPRESSED_BIT = 1


class TaggedShard(MemoryShard):
    """A memory shard whose units carry tag codes, as consume queues do; each queue is looked up once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._queue = functools.cache(super()._queue)
        self._ranges = functools.cache(lambda topic: super(TaggedShard, self).list_queues(topic, Deadline.after(60)))

    def list_queues(self, topic, deadline):
        self._called("list_queues", deadline)
        return self._ranges(topic)

    def units(self, topic, queue_id, queue_offset, unit_count_max, deadline) -> Built:
        found = super().units(topic, queue_id, queue_offset, unit_count_max, deadline)
        for unit in found.answer.units:
            record = self._by_offset[unit.commit_log_offset]
            unit.tags_code = tags_code(record.topic, record.properties, record.store_time_millis)
        return found


def inflated(record: Record) -> bytes:
    return zlib.decompress(record.body) if record.sys_flag & COMPRESSED_BIT else record.body


class Searcher:
    """Searches some shards.

    Args:
        shards: by name.
        fan_out: their threads.
        sandbox: where CEL is evaluated.
    """

    def __init__(self, shards: dict[str, MemoryShard], fan_out: FanOut, sandbox: CelSandbox) -> None:
        self.shards = Shards([shard.shard(name) for name, shard in shards.items()], fan_out)
        self.sandbox = sandbox
        self.tokens = PageTokens("a secret")

    @classmethod
    def over(cls, shards: Shards, sandbox: CelSandbox) -> "Searcher":
        """Searches these shards, whatever their ports are."""
        searcher = cls.__new__(cls)
        searcher.shards, searcher.sandbox, searcher.tokens = shards, sandbox, PageTokens("a secret")
        return searcher

    def search(
        self,
        question: SearchQuestion,
        budgets: Budgets | None = None,
        *,
        page_size: int = 0,
        page_token: str = "",
        count_total: bool = False,
        cancellation: Cancellation | None = None,
        deadline: Deadline | None = None,
    ) -> SearchAnswer:
        return search_messages(
            self.shards,
            self.shards.fan_out,
            self.tokens,
            self.sandbox,
            question,
            budgets or Budgets(),
            page_size_asked=page_size,
            page_token=page_token,
            count_total=count_total,
            view_of=view_of,
            cancellation=cancellation or Cancellation(),
            deadline=deadline or Deadline.after(60),
        )

    def pages(
        self, question: SearchQuestion, budgets: Iterable[Budgets] = (), *, page_size: int = 0
    ) -> Iterator[SearchAnswer]:
        """All pages; the budgets go round."""
        budgets = list(budgets) or [Budgets()]
        token, number = "", 0
        while True:
            answer = self.search(question, budgets[number % len(budgets)], page_size=page_size, page_token=token)
            yield answer
            token, number = answer.next_page_token, number + 1
            if not token:
                return


def found_offsets(pages: Iterable[SearchAnswer]) -> list[tuple[str, int]]:
    return [(entry.broker_name, entry.record.commit_log_offset) for page in pages for entry in page.entries]


def scanned_positions(pages: Iterable[SearchAnswer]) -> list[tuple[str, int, int]]:
    return [
        (scanned.broker_name, scanned.queue_id, position)
        for page in pages
        for scanned in page.scanned_ranges
        for position in range(scanned.begin_offset, scanned.end_offset)
    ]


def brute_force(
    logs: dict[str, Sequence[Record]], question: SearchQuestion, matches: Callable[[Record], bool]
) -> list[tuple[str, int]]:
    """Every match of the question, in the order of the scan."""
    found = []
    for name, log in logs.items():
        for record in log:
            if record.topic != question.topic or question.queue_id not in (None, record.queue_id):
                continue
            if question.broker_name not in ("", name):
                continue
            if record.queue_offset < (question.offsets.begin_offset or 0):
                continue
            if question.offsets.end_offset is not None and record.queue_offset >= question.offsets.end_offset:
                continue
            if question.times.holds(record.store_time_millis) and matches(record):
                position = -record.queue_offset if question.newest_first else record.queue_offset
                found.append((name, record.queue_id, position, record.commit_log_offset))
    return [(name, offset) for name, _, _, offset in sorted(found)]
