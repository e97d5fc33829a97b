"""Search: a scan of a topic's queues, or of one, for fields without an index: tags, properties, bodies, CEL.

    for each shard, by name
      for each of its queues of the topic, by number
        the window's positions, oldest or newest first
          units -> those whose tag code may match -> records -> time, tags, properties, needle, CEL -> page

A page ends when it is full or a budget is used up. `scanned_ranges` names the positions that it has searched: all pages of
a scan together cover the whole window, each position once. Messages come in the order of the queues, not of time: an order
by time would read from all queues at once, however far apart the matches are.

A message that cannot be read or searched does not end a scan: it is counted, and the answer is PARTIAL.
"""

from dataclasses import replace
from functools import partial

from gateway.ports.deadline import Cancellation, Deadline, ran_out_of_time
from gateway.ports.shard import Shard, list_queues
from gateway.ports.shards import FanOut, Shards, has_unwritten_queue, require_topic
from gateway.queries.page import Page, PageTokens, page_size
from gateway.search.cel_sandbox import CelEvaluator, CelSandbox
from gateway.search.filter import MessageFilter
from gateway.search.question import Budgets, Cursor, Meter, SearchAnswer, SearchQuestion
from gateway.search.scan import Scan, ViewOf, ask_until_gone
from store.errors import QueueNotFoundError, StoreError

METHOD = "SearchMessages"
# The time for counting in all shards; the rest of the time is for the search itself.
COUNT_SECONDS_MAX = 0.5


def search_messages(
    shards: Shards,
    threads: FanOut,
    tokens: PageTokens,
    sandbox: CelSandbox,
    question: SearchQuestion,
    budgets: Budgets,
    *,
    page_size_asked: int,
    page_token: str,
    count_total: bool = False,
    view_of: ViewOf,
    cancellation: Cancellation,
    deadline: Deadline,
) -> SearchAnswer:
    """One page.

    Args:
        shards: the shards.
        threads: call the shards, one at a time.
        tokens: seals and opens page tokens.
        sandbox: evaluates CEL.
        question: the search.
        budgets: of this page.
        page_size_asked: the most messages; 0: the default.
        page_token: of the page before, with the same question; empty: the first page.
        count_total: whether to count all positions, on the first page.
        view_of: the fields of a record for the filter.
        cancellation: of the call.
        deadline: of the call.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: a field is not valid, or the expression costs too much.
        BrokerNotFoundError, TopicNotFoundError, QueueNotFoundError: the shard, topic or queue does not exist.
        StoreError: no shard answered.
        CallerGoneError: the call was cancelled.
    """
    fields = question.sealed_fields()
    page: Page = Page(page_size(page_size_asked, "page_size"))
    cursor = Cursor.from_fields(tokens.open(page_token, METHOD, fields))
    evaluator = None
    if question.conditions.cel:
        evaluator = CelEvaluator(
            sandbox,
            question.conditions.cel,
            time_is_over=lambda: meter.time_is_over,
            cancellation=cancellation,
            deadline=deadline,
        )
    # Made when the expression is checked: a process that has to start first may take longer than a page, page after page.
    meter = Meter(budgets, deadline)
    total_count = cursor.total_count if cursor is not None else 0
    if count_total and cursor is None:
        count = partial(_position_count, shards, question)
        total_count = ask_until_gone(threads, count, cancellation, deadline, seconds_max=COUNT_SECONDS_MAX)
    scan = Scan(question, MessageFilter(question.conditions, evaluator), page, meter, view_of, cancellation)
    end = scan.run(shards, threads, cursor, deadline)
    # Messages that arrived during the scan were not counted.
    scan.answer.passed_count = min(scan.answer.passed_count, total_count)
    scan.answer.total_count = total_count
    if end is not None:
        end = replace(end, passed_count=scan.answer.passed_count, total_count=total_count)
        scan.answer.next_page_token = tokens.seal(METHOD, fields, end.to_fields())
    elif not page_token and not scan.knows_topic and all(outcome.complete for outcome in scan.answer.outcomes):
        ask_until_gone(threads, partial(_require_place, shards, question), cancellation, deadline)
    return scan.answer


def _position_count(shards: Shards, question: SearchQuestion, deadline: Deadline) -> int:
    """The number of positions of the queues in question; 0, as without counting, when a shard does not answer in time.

    The scan reports the failure of a shard that is down.
    """
    asked = [shards.named(question.broker_name)] if question.broker_name else list(shards)
    shard_deadline = deadline.for_one_of(len(asked))

    def ask(shard: Shard) -> int:
        return sum(
            max(0, queue.max_offset - queue.min_offset)
            for queue in list_queues(shard, question.topic, shard_deadline)
            if question.queue_id in (None, queue.queue_id)
        )

    answers = shards.fan_out.ask(asked, ask)
    if any(isinstance(answer, StoreError) and ran_out_of_time(answer) for answer in answers):
        return 0
    return sum(answer for answer in answers if isinstance(answer, int))


def _require_place(shards: Shards, question: SearchQuestion, deadline: Deadline) -> None:
    """Check that the topic or queue exists, although no shard has a file of it.

    Raises:
        TopicNotFoundError, QueueNotFoundError: it does not exist.
    """
    queue_id = question.queue_id
    if queue_id is None:
        require_topic(shards, question.topic, deadline)
        return
    asked = [shards.named(question.broker_name)] if question.broker_name else list(shards)
    answers = shards.fan_out.ask(asked, lambda shard: has_unwritten_queue(shard, question.topic, queue_id, deadline))
    errors = [answer for answer in answers if isinstance(answer, StoreError)]
    if len(errors) == len(answers):
        raise next((error for error in errors if isinstance(error, QueueNotFoundError)), errors[0])
