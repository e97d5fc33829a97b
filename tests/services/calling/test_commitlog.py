"""The commitlog client over a real socket."""

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services import convert, status
from services.calling.commitlog import CommitLogClient
from store.errors import RecordNotFoundError, ServiceUnavailableError
from tests.services.loopback import commit_log_server

BODY = bytes(100)


def batch_get(request, context):
    """At most three outcomes an answer; odd offsets hold no record; bodies until `body_bytes_max`."""
    response = pb.BatchGetMessagesResponse()
    body_bytes = 0
    for offset in request.commit_log_offsets[:3]:
        outcome = response.outcomes.add()
        if offset % 2:
            outcome.error.CopyFrom(status.to_status(RecordNotFoundError("none", commitLogOffset=offset)))
            continue
        outcome.message.commit_log_offset = offset
        outcome.message.store_time.CopyFrom(convert.millis_to_timestamp(1_000 + offset))
        if request.omit_bodies or body_bytes >= request.body_bytes_max:
            outcome.message.body_omitted = True
        else:
            outcome.message.body = BODY
            body_bytes += len(BODY)
    return response


def test_many_records_are_asked_for_until_each_has_its_outcome():
    with commit_log_server(batch_get_messages=batch_get) as server:
        outcomes = CommitLogClient(server.address).get_many(list(range(10)))

    offsets = [outcome.commit_log_offset for outcome in outcomes[::2]]
    assert offsets == [0, 2, 4, 6, 8]
    assert {type(outcome) for outcome in outcomes[1::2]} == {RecordNotFoundError}


def test_the_limit_of_bodies_holds_over_all_answers_together():
    with commit_log_server(batch_get_messages=batch_get) as server:
        outcomes = CommitLogClient(server.address).get_many(list(range(0, 20, 2)), body_bytes_max=450)

    assert [outcome.body_omitted for outcome in outcomes] == [False] * 5 + [True] * 5


def test_store_times_come_without_bodies():
    with commit_log_server(batch_get_messages=batch_get) as server:
        times = CommitLogClient(server.address).store_times_millis([4, 5, 6])

    assert (times[0], times[2]) == (1_004, 1_006)
    assert type(times[1]) is RecordNotFoundError


def test_no_offsets_take_no_call():
    assert CommitLogClient("127.0.0.1:1").get_many([]) == []


def test_an_answer_without_outcomes_does_not_loop_for_ever():
    def nothing(request, context):
        return pb.BatchGetMessagesResponse()

    with commit_log_server(batch_get_messages=nothing) as server, pytest.raises(ServiceUnavailableError):
        CommitLogClient(server.address).get_many([0])


def test_a_cancelled_stream_ends_as_unavailable():
    def reput(request, context):
        while context.is_active():
            yield pb.ReputResponse(next_offset=request.start_offset)

    with commit_log_server(reput=reput) as server:
        stream = CommitLogClient(server.address).reput(7)
        batches = iter(stream)
        assert next(batches).next_offset == 7
        stream.cancel()
        with pytest.raises(ServiceUnavailableError):
            list(batches)
