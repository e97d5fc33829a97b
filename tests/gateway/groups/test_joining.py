"""A shard that does not know a group is told its settings and where it began, by shards in memory."""

import pytest

from gateway.groups.joining import (
    CALL_SECONDS,
    CONSUMERS,
    GAP_SECONDS,
    LASTING_SECONDS,
    QUEUES,
    SILENT_SECONDS,
    Join,
    Silence,
    ask_joined,
    begin_in,
    begin_later,
    join,
)
from gateway.groups.positions import commit_positions, reset_positions
from gateway.groups.pulling import send_back
from gateway.ports.deadline import Deadline
from gateway.ports.groups import COMMIT_OFFSETS, GET_OFFSETS
from gateway.ports.shards import Shards
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import GroupDisabledError, ServiceUnavailableError
from tests.gateway.groups.memory_groups import InOrder, back, group_settings, groups_with, position, resetting

AWAY = ServiceUnavailableError("it is away")


@pytest.fixture
def near():
    return groups_with(q0=5, q1=7)


@pytest.fixture
def far():
    return groups_with(q0=3)


@pytest.fixture
def shards(near, far):
    return Shards([near.shard("near"), far.shard("far")], InOrder())


def of(broker_name, *, begins_at_end=True):
    return Join(broker_name, "g", "T", begins_at_end, "peer")


def positions(groups):
    return {(topic, queue): at for (_, topic, queue), at in groups.held.items()}


def test_a_new_group_begins_at_the_end_of_every_shard_at_once(shards, near, far):
    assert join(shards, of("near"))
    assert positions(near) == {("T", 0): 5, ("T", 1): 7}
    assert positions(far) == {("T", 0): 3}


def test_a_group_begins_at_the_first_message_of_a_shard_that_joined_later(near, far):
    alone = Shards([near.shard("near")], InOrder())
    assert join(alone, of("near"))
    both = Shards([near.shard("near"), far.shard("far")], InOrder())
    far.memory.ranges["T", 1] = (2, 9)

    assert not join(both, of("far")), "it has begun in the other shard"
    begin_later(both, of("far"))
    assert positions(far) == {("T", 0): 0}, "a later queue begins at its first message by itself"
    assert positions(near) == {("T", 0): 5, ("T", 1): 7}


def test_a_shard_that_was_restored_empty_begins_at_its_first_message_again(shards, near, far):
    assert join(shards, of("near"))
    far.groups, far.held = {}, {}
    assert not join(shards, of("far"))
    begin_later(shards, of("far"))
    assert positions(far) == {("T", 0): 0}


def test_nothing_begins_while_a_shard_does_not_answer_that_may_know_where_the_group_began(shards, near, far):
    far.failure = AWAY
    with pytest.raises(ServiceUnavailableError, match="because shard far does not answer"):
        join(shards, of("near"))
    assert positions(near) == {}
    far.failure = None
    assert join(shards, of("near"))
    assert positions(near) == {("T", 0): 5, ("T", 1): 7}


def mark_silent(silence, shards, shard, service, clock):
    """A call to the shard that is late."""

    def late(*_):
        clock[0] += CALL_SECONDS
        raise AWAY

    assert isinstance(silence.ask(shards, [shard], service, late)[0], ServiceUnavailableError)


def test_a_service_of_a_shard_that_is_late_silences_no_other_one(shards):
    clock = [0.0]
    silence, near, far = Silence(lambda: clock[0]), *shards
    mark_silent(silence, shards, near, QUEUES, clock)

    def answers(*_):
        return "here"

    assert silence.ask(shards, [near, far], CONSUMERS, answers) == ["here", "here"]
    skipped, other = silence.ask(shards, [near, far], QUEUES, answers)
    assert (isinstance(skipped, ServiceUnavailableError), other) == (True, "here")
    clock[0] += SILENT_SECONDS
    assert silence.ask(shards, [near], QUEUES, answers) == ["here"]


def test_a_shard_is_away_for_long_only_when_nothing_was_heard_of_it_meanwhile(shards):
    clock = [0.0]
    silence, (near, _) = Silence(lambda: clock[0]), shards
    for pause, expected in ((0.0, False), (SILENT_SECONDS, False), (SILENT_SECONDS, True), (GAP_SECONDS, False)):
        clock[0] += pause
        mark_silent(silence, shards, near, CONSUMERS, clock)
        assert silence.lasts("near", CONSUMERS) is expected
    clock[0] += LASTING_SECONDS
    assert silence.lasts("near", CONSUMERS)
    silence.ask(shards, [near], CONSUMERS, lambda *_: "here")
    assert not silence.lasts("near", CONSUMERS)


def test_a_shard_that_is_silent_for_another_group_begins_with_the_others(shards, near, far):
    """Between the look at its positions and the beginning: it would be read from its first message later."""
    clock = [0.0]
    silence, ask = Silence(lambda: clock[0]), far.positions

    def silence_the_other(*arguments):
        mark_silent(silence, shards, shards.named("near"), CONSUMERS, clock)
        return ask(*arguments)

    far.positions = silence_the_other
    assert join(shards, of("far"), silence)
    assert (positions(near), positions(far)) == ({("T", 0): 5, ("T", 1): 7}, {("T", 0): 3})


def test_nothing_begins_while_the_ends_of_a_shard_are_not_known(shards, near, far):
    def fail(*_):
        raise AWAY

    near.memory.list_queues = fail
    with pytest.raises(ServiceUnavailableError, match="because shard near does not answer"):
        join(shards, of("far"))
    assert (positions(near), positions(far)) == ({}, {})


def test_a_shard_without_consumer_service_keeps_no_group_from_beginning(near, far):
    shards = Shards([near.shard("near"), far.memory.shard("bare")], InOrder())
    assert join(shards, of("near"))
    assert positions(near) == {("T", 0): 5, ("T", 1): 7}


def test_a_shard_that_is_away_changes_nothing_where_another_one_says_that_the_group_has_begun(near, far):
    third = groups_with(q0=9)
    shards = Shards([near.shard("near"), far.shard("far"), third.shard("third")], InOrder())
    near.groups["g"] = group_settings("g")
    near.held["g", "T", 0] = 1
    third.failure = AWAY
    assert not join(shards, of("far"))


def test_what_comes_while_the_shards_are_asked_is_not_skipped(shards, near, far):
    ask = far.positions

    def slow(*arguments):
        near.memory.ranges["T", 0] = (0, 50)
        far.memory.ranges["T", 0] = (0, 30)
        return ask(*arguments)

    far.positions = slow
    assert join(shards, of("near"))
    assert (near.held["g", "T", 0], far.held["g", "T", 0]) == (5, 3)


def test_two_gateways_that_begin_a_group_in_two_shards_at_once_set_its_ends(shards, near, far):
    """The second one looks when the first one has set half of the ends."""
    seen = []
    commit = near.commit

    def commit_and_let_the_other_look(*arguments):
        near.commit = commit
        answer = commit(*arguments)
        seen.append(join(shards, of("far")))
        return answer

    near.commit = commit_and_let_the_other_look
    assert join(shards, of("near"))
    assert seen == [False]
    begin_later(shards, of("far"))
    assert positions(far) == {("T", 0): 3}, "its pause has let the first one end"


def test_two_gateways_that_both_saw_no_beginning_keep_the_first_ends(shards, near, far):
    make, seen = near.make, []

    def make_and_let_the_other_begin(*arguments):
        answer = make(*arguments)
        if not seen:
            seen.append(None)
            seen.append(join(shards, of("far")))
            near.memory.ranges["T", 0] = (0, 99)
        return answer

    near.make = make_and_let_the_other_begin
    assert join(shards, of("near"))
    assert (positions(near), positions(far)) == ({("T", 0): 5, ("T", 1): 7}, {("T", 0): 3})


def test_a_group_that_begins_at_first_messages_is_only_made(shards, near, far):
    assert join(shards, of("far", begins_at_end=False))
    assert (far.held, list(far.groups), list(near.groups)) == ({}, ["g"], [])


def test_a_topic_without_messages_is_begun_where_it_is_asked_for(near, far):
    shards = Shards([near.shard("near"), far.shard("far")], InOrder())
    assert join(shards, Join("far", "g", "new", True))
    assert (positions(near), positions(far)) == ({}, {("new", 0): 0})


SET = group_settings("g", delivery_attempts_max=3, consume_enabled=False, is_set=True)


@pytest.mark.parametrize("begins_at_end", [False, True])
def test_a_shard_gets_the_settings_that_somebody_has_set_in_another(shards, near, far, begins_at_end):
    near.groups["g"] = group_settings("g")  # the first shard has only the defaults
    far.groups["g"] = SET
    join(shards, of("near", begins_at_end=begins_at_end))
    assert near.groups["g"] == SET


def test_a_shard_keeps_the_settings_that_somebody_has_set_in_it(shards, near, far):
    near.groups["g"] = group_settings("g", delivery_attempts_max=9, is_set=True)
    far.groups["g"] = SET
    join(shards, of("near", begins_at_end=False))
    assert near.groups["g"].delivery_attempts_max == 9


def commit_there(shards, deadline):
    commit_positions(shards, "g", [("far", position("T", 0, 2))], deadline)


def reset_there(shards, deadline):
    reset_positions(shards, resetting("g", "T", queue_offset=2), "far", deadline)


def send_back_there(shards, deadline):
    send_back(shards, back("g", "T", 0, (1,)), "far", deadline)


@pytest.mark.parametrize("call", [commit_there, reset_there, send_back_there])
def test_every_call_that_makes_a_group_in_a_shard_brings_its_settings(shards, near, far, deadline, call):
    near.groups["g"] = SET
    far.held["other", "T", 0] = 0
    call(shards, deadline)
    assert far.groups["g"] == SET


def test_a_poll_waits_for_the_settings_of_a_shard_that_is_away_unless_others_have_set_some(near, far):
    third = groups_with(q0=9)
    shards = Shards([near.shard("near"), far.shard("far"), third.shard("third")], InOrder())
    near.groups["g"] = group_settings("g")
    third.failure = AWAY
    poll = of("far", begins_at_end=False)
    with pytest.raises(
        ServiceUnavailableError, match="which settings group g has, because shard third does not answer"
    ):
        join(shards, poll, Silence())
    assert far.groups == {}
    near.groups["g"] = SET
    assert join(shards, poll, Silence())
    assert far.groups == {"g": SET}


@pytest.fixture
def at_ends(near, far):
    """Shards where groups begin at the end; a message of queue 0 of the second one is sent back."""
    near.begins_at_end = far.begins_at_end = True
    far.memory.ranges["T", 0] = (1, 3)
    far.memory.ranges["T", 1] = (2, 9)


@pytest.mark.usefixtures("at_ends")
def test_a_send_back_in_a_shard_that_came_later_skips_no_message_there(shards, near, far, deadline):
    near.groups["g"], near.held["g", "T", 0] = SET, 4
    send_back_there(shards, deadline)
    assert positions(far) == {("T", 0): 1}, "the other queues begin at their first messages"
    assert (positions(near), far.groups["g"], len(far.sent_back)) == ({("T", 0): 4}, SET, 1)


@pytest.mark.usefixtures("at_ends")
def test_a_group_that_begins_with_a_send_back_begins_in_every_shard(shards, near, far, deadline):
    send_back_there(shards, deadline)
    assert positions(far) == {("T", 0): 1, ("T", 1): 9}, "nothing says what it had of the message's queue"
    assert (positions(near), len(far.sent_back)) == ({("T", 0): 5, ("T", 1): 7}, 1)
    send_back_there(shards, deadline)
    assert len(far.sent_back) == 2


@pytest.mark.usefixtures("at_ends")
def test_nothing_is_sent_back_while_it_is_not_known_whether_the_group_has_begun(shards, near, far, deadline):
    near.failure = AWAY
    with pytest.raises(ServiceUnavailableError, match="shard near does not answer"):
        send_back_there(shards, deadline)
    assert (positions(far), far.sent_back) == ({}, [])


def test_a_call_for_several_shards_makes_the_group_where_it_is_unknown(shards, near, far, deadline):
    near.groups["g"] = SET
    both = list(shards)

    def call(shard):
        request = pb.CommitOffsetsRequest(consumer_group="g", offsets=[position("T", 0, 1)], known_only=True)
        shard.call(COMMIT_OFFSETS, request, deadline)
        return shard.broker_name

    assert ask_joined(shards, both, "g", deadline, call) == ["near", "far"]
    assert far.groups["g"] == SET


def test_an_error_behind_the_join_is_the_answer(shards, near, deadline):
    def call(shard):
        shard.call(GET_OFFSETS, pb.GetOffsetsRequest(consumer_group="g", topic="T"), deadline)
        raise GroupDisabledError("no")

    (answer,) = ask_joined(shards, [shards.named("near")], "g", deadline, call)
    assert isinstance(answer, GroupDisabledError)


def test_a_group_begins_in_thousands_of_queues_by_one_request(shards, near):
    asked = []
    shard = near.shard("near").serving(COMMIT_OFFSETS, lambda request, deadline: asked.append(request))
    begin_in(shard, "g", "T", {queue_id: queue_id for queue_id in range(1, 2_000)}, Deadline.after(5.0))
    (request,) = asked
    assert (request.known_only, list(request.offsets), request.beginning.topic) == (True, [], "T")
    assert list(request.beginning.queue_offsets) == [-1, *range(1, 2_000)]
