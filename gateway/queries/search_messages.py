"""Search: a scan of a topic's queues, or of one, for what no index knows: tags, properties, bodies, any expression.

    for each shard, by name
      for each of its queues of the topic, by number
        the window's positions, oldest or newest first
          units -> those whose tag code may be right -> records -> time, tags, properties, needle, CEL -> page

A page ends when it is full, or when a budget is used up, and says which positions it has looked at: `scanned_ranges` of
all pages of a scan are the whole window, each position once. The order is the queues', not one of time over all of them:
that would take reading from all of them at once, however far the matches are apart.

A message that cannot be read, or not looked into, does not end a scan: it is counted, and the answer is PARTIAL.
"""

from dataclasses import replace
from functools import partial

from gateway.deadline import Deadline
from gateway.fan_out import FanOut
from gateway.limits import page_size
from gateway.page import Page
from gateway.page_token import PageTokens
from gateway.ports import Shard
from gateway.search.asking import ask_until_gone
from gateway.search.budgets import Budgets, Meter
from gateway.search.cancellation import Cancellation
from gateway.search.cel_sandbox import CelEvaluator, CelSandbox
from gateway.search.cursor import Cursor
from gateway.search.filter import MessageFilter
from gateway.search.question import SearchAnswer, SearchQuestion
from gateway.search.scan import Scan, ViewOf
from gateway.shards import Shards, has_unwritten_queue, require_topic
from store.errors import DeadlineExceededError, QueueNotFoundError, StoreError

METHOD = "SearchMessages"
# For counting in all shards; the search itself is what its caller waits for.
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
        threads: on which they are asked, one at a time.
        tokens: what seals page tokens.
        sandbox: where CEL is evaluated.
        question: what to look for.
        budgets: what this page may cost.
        page_size_asked: messages.
        page_token: of the page before, with the same question.
        count_total: whether to count the positions that there are, on the first page.
        view_of: shows a filter what is in a record.
        cancellation: of the call.
        deadline: of the call.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: by field; also an expression that costs too much.
        BrokerNotFoundError, TopicNotFoundError, QueueNotFoundError: there is no such place.
        StoreError: no shard answered.
        CallerGoneError: soon after the cancellation.
    """
    fields = question.sealed_fields()
    page = Page(page_size(page_size_asked, "page_size"))
    cursor = Cursor.from_fields(tokens.open(page_token, METHOD, fields))
    meter = Meter(budgets, deadline)
    total_count = cursor.total_count if cursor is not None else 0
    if count_total and cursor is None:
        count = partial(_position_count, shards, question)
        total_count = ask_until_gone(threads, count, cancellation, deadline, seconds_max=COUNT_SECONDS_MAX)
    evaluator = None
    if question.conditions.cel:
        evaluator = CelEvaluator(
            sandbox,
            question.conditions.cel,
            time_is_over=lambda: meter.time_is_over,
            cancellation=cancellation,
            deadline=deadline,
        )
    scan = Scan(question, MessageFilter(question.conditions, evaluator), page, meter, view_of, cancellation)
    end = scan.run(shards, threads, cursor, deadline)
    # What came while it scanned was not counted.
    scan.answer.passed_count = min(scan.answer.passed_count, total_count)
    scan.answer.total_count = total_count
    if end is not None:
        end = replace(end, passed_count=scan.answer.passed_count, total_count=total_count)
        scan.answer.next_page_token = tokens.seal(METHOD, fields, end.to_fields())
    elif not page_token and not scan.knows_topic and all(outcome.complete for outcome in scan.answer.outcomes):
        ask_until_gone(threads, partial(_require_place, shards, question), cancellation, deadline)
    return scan.answer


def _position_count(shards: Shards, question: SearchQuestion, deadline: Deadline) -> int:
    """Positions of the queues that are asked for; 0, as if not asked for, when a shard does not say it in time.

    A shard that is down has its failure when it is scanned.
    """
    asked = [shards.named(question.broker_name)] if question.broker_name else list(shards)
    shard_deadline = deadline.for_one_of(len(asked))

    def ask(shard: Shard) -> int:
        return sum(
            max(0, queue.max_offset - queue.min_offset)
            for queue in shard.queues.list_queues(question.topic, shard_deadline)
            if question.queue_id in (None, queue.queue_id)
        )

    answers = shards.fan_out.ask(asked, ask)
    if any(isinstance(answer, DeadlineExceededError) for answer in answers):
        return 0
    return sum(answer for answer in answers if isinstance(answer, int))


def _require_place(shards: Shards, question: SearchQuestion, deadline: Deadline) -> None:
    """That there is such a topic, or such a queue, although no shard has a file of it.

    TopicNotFoundError, QueueNotFoundError otherwise.
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
