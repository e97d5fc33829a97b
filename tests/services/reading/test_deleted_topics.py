"""What is known of deleted topics: asked for seldom, and kept while the commit log does not answer."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import structlog

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.reading.deleted_topics import FAILED_SECONDS, LOOK_SECONDS, DeletedTopics
from store.errors import ServiceUnavailableError
from tests.support.calls import Answers


class Table(Answers):
    """The topic table of a commit log, which may be away."""

    def __init__(self) -> None:
        self.version = 7
        self.deleted: dict[str, int] = {}
        self.is_away = False
        self.asked: list[int] = []
        self.before_answers: Callable[[], object] = lambda: None

    def ListTopics(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        assert request.without_topics
        self.asked.append(request.known_version)
        if self.is_away:
            raise ServiceUnavailableError("it is away")
        answer = pb.ListTopicsResponse(version=self.version)
        if request.known_version != self.version:
            answer.deleted_before.update(self.deleted)
        self.before_answers()
        return answer


def test_a_deletion_is_seen_after_a_moment_and_kept_while_the_log_is_away() -> None:
    table, now = Table(), [0.0]
    deleted = DeletedTopics(table, lambda: now[0])
    assert (deleted.before("t"), table.asked) == (0, [0])
    table.deleted, table.version = {"t": 500}, 8
    assert (deleted.before("t"), table.asked) == (0, [0])

    now[0] += LOOK_SECONDS
    assert (deleted.before("t"), deleted.before("other")) == (500, 0)
    table.is_away = True
    now[0] += LOOK_SECONDS
    assert [deleted.before("t") for _ in range(3)] == [500] * 3
    assert table.asked == [0, 7, 8]
    table.is_away = False
    now[0] += FAILED_SECONDS
    assert (deleted.before("t"), table.asked[-1]) == (500, 8)


def test_a_log_that_is_being_recovered_is_asked_again_soon() -> None:
    table, now = Table(), [0.0]
    table.is_away, table.deleted = True, {"t": 500}
    deleted = DeletedTopics(table, lambda: now[0])
    assert deleted.before("t") == 0
    table.is_away = False
    now[0] += LOOK_SECONDS
    assert deleted.before("t") == 500


def test_the_table_is_an_error_while_nothing_is_known_and_the_last_one_afterwards() -> None:
    table, now = Table(), [0.0]
    table.is_away, table.deleted = True, {"t": 500}
    deleted = DeletedTopics(table, lambda: now[0])
    for _ in range(2):
        with pytest.raises(ServiceUnavailableError):
            deleted.table(1.0)
    table.is_away = False
    now[0] += LOOK_SECONDS
    known = deleted.table(1.0)
    assert dict(known.deleted_before) == {"t": 500}
    now[0] += LOOK_SECONDS
    assert deleted.table(1.0) is known


def test_a_table_is_fresh_until_the_next_look_and_until_a_deletion_is_told() -> None:
    table, now = Table(), [0.0]
    deleted = DeletedTopics(table, lambda: now[0])
    assert deleted.fresh_table() is None
    known = deleted.table(1.0)
    assert deleted.fresh_table() is known
    now[0] += LOOK_SECONDS
    assert deleted.fresh_table() is None
    assert deleted.table(1.0) is known
    deleted.expire()
    assert deleted.fresh_table() is None
    assert table.asked == [0, 7]


def test_a_deletion_that_is_told_is_asked_for_at_once() -> None:
    table, now = Table(), [0.0]
    deleted = DeletedTopics(table, lambda: now[0])
    assert deleted.before("t") == 0
    table.deleted, table.version = {"t": 500}, 8
    deleted.expire()
    assert (deleted.before("t"), table.asked) == (500, [0, 7])


def test_a_deletion_was_not_seen_while_another_thread_waited_for_an_older_answer() -> None:
    table, now = Table(), [0.0]
    deleted = DeletedTopics(table, lambda: now[0])
    assert not deleted.table(1.0).deleted_before
    is_asked, may_answer = threading.Event(), threading.Event()

    def hold() -> None:
        is_asked.set()
        assert may_answer.wait(60)

    table.before_answers = hold
    now[0] += LOOK_SECONDS
    with ThreadPoolExecutor(1) as pool:
        older = pool.submit(deleted.table, 1.0)
        assert is_asked.wait(60)
        table.deleted, table.version = {"t": 500}, 8
        deleted.expire()
        try:
            with pytest.raises(ServiceUnavailableError):  # the old table was the answer
                deleted.table(0.01)
        finally:
            may_answer.set()
        assert not older.result(60).deleted_before  # it asked before the deletion
    assert dict(deleted.table(1.0).deleted_before) == {"t": 500}
    assert table.asked == [0, 7, 7]


def test_a_table_that_is_known_to_be_old_was_the_answer_when_the_log_did_not_give_the_new_one() -> None:
    table, now = Table(), [0.0]
    deleted = DeletedTopics(table, lambda: now[0])
    assert not deleted.table(1.0).deleted_before
    table.deleted, table.version, table.is_away = {"t": 500}, 8, True
    deleted.expire()
    for _ in range(2):
        with pytest.raises(ServiceUnavailableError, match="it is away"):
            deleted.table(1.0)
    table.is_away = False
    now[0] += LOOK_SECONDS
    assert dict(deleted.table(1.0).deleted_before) == {"t": 500}


def test_each_query_asked_a_log_that_is_away_by_itself_and_waited_for_it_in_turn_after_a_deletion() -> None:
    table, now = Table(), [0.0]
    deleted = DeletedTopics(table, lambda: now[0])
    deleted.table(1.0)
    table.is_away = True
    deleted.expire()
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(ServiceUnavailableError, match="it is away"):
                deleted.table(1.0)
    assert table.asked == [0, 7]
    assert [line["event"] for line in lines] == ["topics.not_seen"]
    now[0] += LOOK_SECONDS
    with pytest.raises(ServiceUnavailableError):
        deleted.table(1.0)
    assert table.asked == [0, 7, 7]


def test_an_error_of_an_ask_before_a_deletion_answers_nobody_who_knows_of_the_deletion() -> None:
    table, now = Table(), [0.0]
    deleted = DeletedTopics(table, lambda: now[0])
    deleted.table(1.0)
    table.is_away = True
    deleted.expire()
    with pytest.raises(ServiceUnavailableError):
        deleted.table(1.0)
    table.deleted, table.version, table.is_away = {"t": 500}, 8, False
    deleted.expire()
    assert dict(deleted.table(1.0).deleted_before) == {"t": 500}
