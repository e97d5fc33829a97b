"""Groups over several shards, in memory: what is merged, and that a shard that is away is never left out in silence."""

import pytest

from gateway.groups.administration import SettingsChange, delete_group, describe_group, list_groups, update_group
from gateway.groups.positions import commit_positions, get_positions, reset_positions
from gateway.groups.pulling import LOCKED_COUNT_MAX, SENT_BACK_COUNT_MAX, lock_queues, send_back
from gateway.ports.groups import lag_count
from gateway.ports.shards import Shards
from gateway.queries.page import PageTokens
from gateway.reput.pulling import question_of
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import (
    BrokerNotFoundError,
    GroupNotFoundError,
    InvalidArgumentError,
    QueueNotFoundError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from tests.gateway.groups.memory_groups import (
    REMOVED,
    SENT_BACK,
    MemoryGroups,
    back,
    group_settings,
    locking,
    position,
    resetting,
)

TOKENS = PageTokens("secret")
AWAY = ServiceUnavailableError("it is away")


def member(client_id: str) -> consumer_pb.Client:
    return consumer_pb.Client(client_id=client_id, consumer_group="g")


@pytest.fixture
def near() -> MemoryGroups:
    groups = MemoryGroups()
    groups.groups = {"g": group_settings("g"), "only-near": group_settings("only-near")}
    groups.held = {("g", "T", 0): 4}
    groups.members = {"g": [member("c-1"), member("c-2")]}
    return groups


@pytest.fixture
def far() -> MemoryGroups:
    groups = MemoryGroups()
    groups.groups = {"g": group_settings("g"), "a-far-one": group_settings("a-far-one")}
    groups.held = {("g", "T", 0): 7}
    groups.members = {"g": [member("c-2")]}
    return groups


@pytest.fixture
def shards(near, far, fan_out) -> Shards:
    return Shards([near.shard("near"), far.shard("far")], fan_out)


def test_the_groups_of_all_shards_are_listed_once_and_by_name(shards, deadline):
    page = list_groups(shards, TOKENS, consumer_pb.ListGroupsRequest(), "", deadline)
    groups, outcomes = page.groups, page.outcomes

    assert [group.consumer_group for group in groups] == ["a-far-one", "g", "only-near"]
    assert [outcome.error for outcome in outcomes] == [None, None]


def test_a_shard_that_does_not_answer_is_named_with_its_error_beside_what_the_others_say(shards, far, deadline):
    far.failure = AWAY

    page = list_groups(shards, TOKENS, consumer_pb.ListGroupsRequest(), "", deadline)
    groups, outcomes = page.groups, page.outcomes
    group = describe_group(shards, "g", deadline)

    assert [each.consumer_group for each in groups] == ["g", "only-near"]
    assert [(each.broker_name, each.error) for each in outcomes] == [("near", None), ("far", AWAY)]
    assert [(each.broker_name, each.error) for each in group.outcomes] == [("near", None), ("far", AWAY)]


def test_a_shard_without_consumer_service_is_named_like_one_that_is_away(near, fan_out, deadline):
    shards = Shards([near.shard("near"), near.memory.shard("bare")], fan_out)

    outcomes = list_groups(shards, TOKENS, consumer_pb.ListGroupsRequest(), "", deadline).outcomes

    assert isinstance(outcomes[1].error, ServiceUnavailableError)
    assert "bare" in outcomes[1].error.message


def test_when_no_shard_answers_the_error_is_raised_and_no_empty_list_is_shown(shards, near, far, deadline):
    near.failure = far.failure = AWAY

    with pytest.raises(ServiceUnavailableError):
        list_groups(shards, TOKENS, consumer_pb.ListGroupsRequest(), "", deadline)
    with pytest.raises(ServiceUnavailableError):
        describe_group(shards, "g", deadline)


def test_an_unknown_group_may_exist_in_a_shard_that_is_away_so_it_is_not_called_absent(shards, far, deadline):
    with pytest.raises(GroupNotFoundError):
        describe_group(shards, "no-such", deadline)

    far.failure = AWAY

    with pytest.raises(ServiceUnavailableError):
        describe_group(shards, "no-such", deadline)
    with pytest.raises(ServiceUnavailableError):
        get_positions(shards, "no-such", "", deadline)


def test_a_group_has_the_members_and_queues_of_all_shards(shards, deadline):
    group = describe_group(shards, "g", deadline)

    assert [member.client_id for member in group.members] == ["c-1", "c-2"]
    assert [(name, queue.consumer_offset, lag_count(queue)) for name, queue in group.queues] == [
        ("far", 7, 3),
        ("near", 4, 6),
    ]


def test_a_position_behind_the_end_of_its_queue_had_no_lag(shards, far, deadline):
    far.held = {("g", "T", 0): 999_999}  # of 10 messages; consumerProgress: brokerOffset - consumerOffset

    group = describe_group(shards, "g", deadline)

    assert [(name, lag_count(queue)) for name, queue in group.queues] == [("far", 10 - 999_999), ("near", 6)]
    (problem,) = group.problems
    assert "999999 in queue 0 of topic T in far" in problem
    assert "reput reset-offset -g g -t T --latest" in problem


def test_settings_that_differ_between_shards_are_a_problem_and_an_update_ends_it(shards, far, deadline):
    far.groups["g"] = group_settings("g", delivery_attempts_max=3)
    (problem,) = describe_group(shards, "g", deadline).problems
    assert "far" in problem
    assert "near" in problem

    changed = update_group(shards, "g", SettingsChange(ordered=True), deadline)

    assert changed == group_settings("g", ordered=True)
    assert describe_group(shards, "g", deadline).problems == []


def test_a_priority_factor_stays_until_another_is_said(shards, near, deadline):
    update_group(shards, "g", SettingsChange(priority_factor=0), deadline)
    assert update_group(shards, "g", SettingsChange(ordered=False), deadline).priority_factor == 0
    assert near.groups["g"].HasField("priority_factor")
    assert not update_group(shards, "g", SettingsChange(priority_factor=100), deadline).HasField("priority_factor")
    with pytest.raises(InvalidArgumentError, match="priority_factor is 101: 0 to 100"):
        update_group(shards, "g", SettingsChange(priority_factor=101), deadline)


def test_attributes_of_a_group_of_lite_topics_stay_until_others_are_said(shards, near, deadline):
    def lite_of(**attributes):
        named = {f"lite.{name.replace('_', '.')}": value for name, value in attributes.items()}
        return update_group(shards, "g", SettingsChange(lite_attributes=named), deadline)

    with pytest.raises(InvalidArgumentError, match="bound to no topic"):
        lite_of(sub_model="Exclusive")
    bound = lite_of(bind_topic="Chats", sub_model="Exclusive", sub_client_quota="5")
    expected = pb.LiteSettings(bind_topic="Chats", is_exclusive=True, client_quota=5)
    assert bound.lite == near.groups["g"].lite == expected
    assert update_group(shards, "g", SettingsChange(ordered=True), deadline).lite == expected
    shared = lite_of(sub_model="Shared", sub_client_quota="", sub_wildcard="true", sub_reset_offset_exclusive="true")
    assert shared.lite == pb.LiteSettings(bind_topic="Chats", is_wildcard=True, reset_offset_exclusive=True)
    for other in ("", "Others"):
        with pytest.raises(InvalidArgumentError, match="the group is bound to Chats"):
            lite_of(bind_topic=other)
    assert near.groups["g"].lite == shared.lite


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lite.bind.topic", "x" * 256),
        ("lite.sub.model", "shared"),
        ("lite.sub.client.quota", "0"),
        ("lite.sub.client.quota", "-2"),
        ("lite.sub.client.quota", str(1 << 31)),
        ("lite.sub.client.max.event.cnt", "9"),
        ("lite.sub.reset.offset.exclusive", "yes"),
        ("lite.sub.reset.offset.unsubscribe", "1"),
        ("priority.factor", "7"),
        ("lite.other", ""),
    ],
)
def test_an_attribute_that_a_broker_would_not_take_changes_nothing(shards, near, deadline, name, value):
    change = SettingsChange(lite_attributes={"lite.bind.topic": "Chats", name: value})
    with pytest.raises(InvalidArgumentError) as refused:
        update_group(shards, "g", change, deadline)
    assert refused.value.metadata["field"] == "lite_attributes"
    assert not near.groups["g"].HasField("lite")


def test_an_update_that_one_shard_refuses_names_it_and_may_be_repeated(shards, near, far, deadline):
    far.failure = AWAY

    with pytest.raises(ServiceUnavailableError, match="Shards that failed: far") as caught:
        update_group(shards, "g", SettingsChange(delivery_attempts_max=5), deadline)
    assert caught.value.metadata["brokerNames"] == "far"
    assert near.groups["g"].delivery_attempts_max == 5

    far.failure = None
    update_group(shards, "g", SettingsChange(delivery_attempts_max=5), deadline)
    assert far.groups["g"].delivery_attempts_max == 5


def test_a_new_group_is_not_made_while_a_shard_that_may_know_it_is_away(shards, near, far, deadline):
    far.failure = AWAY

    with pytest.raises(ServiceUnavailableError):
        update_group(shards, "new", SettingsChange(ordered=True), deadline)

    assert "new" not in near.groups


def test_a_deleted_group_is_gone_everywhere_and_deleting_it_again_is_no_error(shards, near, far, deadline):
    delete_group(shards, "g", deadline)
    delete_group(shards, "g", deadline)

    assert "g" not in near.groups
    assert "g" not in far.groups


def test_positions_are_set_in_the_shards_they_name_and_nothing_is_set_when_one_is_unknown(shards, near, far, deadline):
    for groups in (near, far):
        groups.memory.topics["T"] = 8
    with pytest.raises(BrokerNotFoundError):
        commit_positions(shards, "g", [("near", position("T", 0, 9)), ("no-such", position("T", 0, 9))], deadline)
    with pytest.raises(BrokerNotFoundError):  # several shards: one must be named
        commit_positions(shards, "g", [("", position("T", 0, 9))], deadline)
    with pytest.raises(TopicNotFoundError):
        commit_positions(shards, "g", [("near", position("T", 0, 9)), ("far", position("Typo", 0, 9))], deadline)
    with pytest.raises(QueueNotFoundError):
        commit_positions(shards, "g", [("near", position("T", 0, 9)), ("near", position("T", 99, 9))], deadline)
    assert near.held["g", "T", 0] == 4

    commit_positions(shards, "g", [("near", position("T", 0, 9)), ("far", position("T", 1, 2))], deadline)

    assert get_positions(shards, "g", "T", deadline) == [
        ("far", position("T", 0, 7)),
        ("far", position("T", 1, 2)),
        ("near", position("T", 0, 9)),
    ]


def test_positions_listed_the_queues_of_their_topic_once_for_each_position(shards, near, deadline, monkeypatch):
    near.memory.topics["T"] = 200
    listed = []
    list_queues = near.memory.list_queues
    monkeypatch.setattr(
        near.memory, "list_queues", lambda topic, within: listed.append(topic) or list_queues(topic, within)
    )

    commit_positions(shards, "g", [("near", position("T", number, 0)) for number in range(200)], deadline)

    assert listed == ["T"]
    assert len([key for key in near.held if key[1] == "T"]) == 200


def test_a_reset_goes_to_every_shard_that_has_the_topic(shards, near, far, deadline):
    del far.held["g", "T", 0]

    resets = reset_positions(shards, resetting("g", "T", queue_offset=2), "", deadline)

    assert [(name, reset.before, reset.after) for name, reset in resets] == [("near", 4, 2)]
    with pytest.raises(TopicNotFoundError):
        reset_positions(shards, resetting("g", "Other", latest=True), "", deadline)
    with pytest.raises(InvalidArgumentError):
        reset_positions(shards, resetting("g", "T", queue_offset=-1), "", deadline)
    assert len(near.resets) == 1


def test_a_reset_left_out_the_shards_where_the_group_had_not_consumed(shards, near, far, deadline):
    del far.groups["g"], far.held["g", "T", 0]
    far.held["a-far-one", "T", 0] = 1

    resets = reset_positions(shards, resetting("g", "T", queue_offset=2), "", deadline)
    new = reset_positions(shards, resetting("new", "T", queue_offset=3), "", deadline)

    assert [(name, reset.before, reset.after) for name, reset in resets] == [("near", 4, 2), ("far", 0, 2)]
    assert [(name, reset.HasField("before")) for name, reset in resets] == [("near", True), ("far", False)]
    assert [(name, reset.HasField("before"), reset.after) for name, reset in new] == [
        ("near", False, 3),
        ("far", False, 3),
    ]
    assert "g" in far.groups


def test_a_dry_run_moves_nothing_in_any_shard(shards, near, far, deadline):
    resets = reset_positions(shards, resetting("g", "T", queue_offset=2, dry_run=True), "", deadline)

    assert [(name, reset.before, reset.after) for name, reset in resets] == [("near", 4, 2), ("far", 7, 2)]
    assert near.resets == far.resets == []


def test_messages_are_sent_back_in_the_shard_that_is_named(shards, near, far, deadline):
    question = back("g", "T", 1, (3, 10), 5)

    outcomes = send_back(shards, question, "far", deadline)

    assert list(outcomes.outcomes) == [SENT_BACK, REMOVED]
    question.known_only = True
    assert (near.sent_back, far.sent_back) == ([], [question])


@pytest.mark.parametrize(
    ("question", "broker_name", "error"),
    [
        (back("", "T", 0, (1,)), "far", InvalidArgumentError),
        (back("g", "", 0, (1,)), "far", InvalidArgumentError),
        (back("g", "T", -1, (1,)), "far", InvalidArgumentError),
        (back("g", "T", 0, (1, -1)), "far", InvalidArgumentError),
        (back("g", "T", 0, ()), "far", InvalidArgumentError),
        (back("g", "T", 0, (1,) * (SENT_BACK_COUNT_MAX + 1)), "far", InvalidArgumentError),
        (back("g", "T", 0, (1,)), "nowhere", BrokerNotFoundError),
        (back("g", "T", 0, (1,)), "", BrokerNotFoundError),
    ],
)
def test_a_bad_send_back_reaches_no_shard(shards, near, far, deadline, question, broker_name, error):
    with pytest.raises(error):
        send_back(shards, question, broker_name, deadline)

    assert near.sent_back == far.sent_back == []


def places(queues) -> list[tuple[str, str, int]]:
    return [(queue.broker_name, queue.topic, queue.queue_id) for queue in queues]


def test_queues_of_several_shards_are_locked_and_those_of_others_are_left_out(shards, near, far, deadline):
    far.locks["g", "T", 0] = "c-2"
    question = locking("g", "c-1", [("far", "T", 0), ("near", "T", 0), ("far", "T", 1)])

    locked = lock_queues(shards, question, deadline)

    assert places(locked.queues) == [("far", "T", 1), ("near", "T", 0)]
    assert places(locked.unknown_queues) == []
    assert near.locks == {("g", "T", 0): "c-1"}
    unlocked = lock_queues(shards, locking("g", "c-1", [("far", "T", 1)], unlock=True), deadline)
    assert unlocked == pb.LockQueuesResponse()
    assert far.locks == {("g", "T", 0): "c-2"}


def test_queues_that_nobody_has_were_locked(shards, near, far, deadline):
    question = locking("g", "c-1", [("far", "T", 0), ("far", "T", 99), ("near", "T", 99)])

    locked = lock_queues(shards, question, deadline)

    assert places(locked.queues) == [("far", "T", 0)]
    assert places(locked.unknown_queues) == [("far", "T", 99), ("near", "T", 99)]
    with pytest.raises(QueueNotFoundError, match="nothing is locked"):
        lock_queues(shards, locking("g", "c-1", [("far", "T", 99), ("near", "T", 99)]), deadline)
    unlocked = lock_queues(shards, locking("g", "c-1", [("far", "T", 99)], unlock=True), deadline)
    assert unlocked == pb.LockQueuesResponse()


def test_locks_of_a_shard_that_does_not_answer_are_an_error_and_not_refused(shards, far, deadline):
    far.failure = AWAY

    with pytest.raises(ServiceUnavailableError, match="far"):
        lock_queues(shards, locking("g", "c-1", [("far", "T", 0), ("near", "T", 0)]), deadline)


@pytest.mark.parametrize(
    "question",
    [
        locking("", "c-1", [("near", "T", 0)]),
        locking("g", "", [("near", "T", 0)]),
        locking("g", "c-1", []),
        locking("g", "c-1", [("near", "", 0)]),
        locking("g", "c-1", [("near", "T", -1)]),
        locking("g", "c-1", [("near", "T", 0)] * (LOCKED_COUNT_MAX + 1)),
    ],
)
def test_a_bad_lock_reaches_no_shard(shards, near, deadline, question):
    with pytest.raises(InvalidArgumentError):
        lock_queues(shards, question, deadline)

    assert near.locks == {}


@pytest.mark.parametrize(
    "call",
    [
        lambda shards, topic, deadline: commit_positions(shards, "g", [("near", position(topic, 0, 1))], deadline),
        lambda shards, topic, deadline: lock_queues(shards, locking("g", "c-1", [("near", topic, 0)]), deadline),
        lambda shards, topic, deadline: send_back(shards, back("g", topic, 0, (1,)), "near", deadline),
        lambda shards, topic, deadline: question_of(pb.PullMessagesRequest(topic=topic, consumer_group="g")),
    ],
)
def test_groups_consumed_what_services_keep_in_topics_of_their_own(shards, near, deadline, call):
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_REPUT_CONSUMER_STATE"):
        with pytest.raises(InvalidArgumentError, match="no group consumes it") as refused:
            call(shards, topic, deadline)
        assert refused.value.metadata["field"] == "topic"

    assert (near.held, near.locks, near.sent_back) == ({("g", "T", 0): 4}, {}, [])
    assert question_of(pb.PullMessagesRequest(topic="RMQ_SYS_TRANS_HALF_TOPIC")), "finding shows it"


@pytest.mark.parametrize(
    "call",
    [
        lambda shards, group, deadline: update_group(shards, group, SettingsChange(), deadline),
        delete_group,
        lambda shards, group, deadline: commit_positions(shards, group, [("near", position("T", 0, 1))], deadline),
        lambda shards, group, deadline: reset_positions(shards, resetting(group, "T", latest=True), "near", deadline),
        lambda shards, group, deadline: lock_queues(shards, locking(group, "c-1", [("near", "T", 0)]), deadline),
        lambda shards, group, deadline: send_back(shards, back(group, "T", 0, (1,)), "near", deadline),
        lambda shards, group, deadline: question_of(pb.PullMessagesRequest(topic="T", consumer_group=group)),
    ],
)
def test_clients_consumed_for_a_group_of_the_brokers_own_and_changed_it(shards, near, deadline, call):
    """RocketMQ's proxy: "cannot use system consumer group"."""
    group = "CID_RMQ_SYS_TRANS"
    near.groups[group] = group_settings(group)
    near.held[group, "T", 0] = 4

    with pytest.raises(InvalidArgumentError, match="belongs to the system") as refused:
        call(shards, group, deadline)

    assert refused.value.metadata["field"] == "consumer_group"
    assert (near.groups[group], near.held[group, "T", 0], near.locks, near.sent_back) == (
        group_settings(group),
        4,
        {},
        [],
    )
    assert get_positions(shards, group, "", deadline), "what a broker left there can still be seen"


def test_settings_that_somebody_has_set_count_before_the_defaults_of_the_first_shard(shards, near, far, deadline):
    far.groups["g"] = group_settings("g", delivery_attempts_max=3, consume_enabled=False, is_set=True)

    before = far.groups["g"]
    listed = {
        each.consumer_group: each
        for each in list_groups(shards, TOKENS, consumer_pb.ListGroupsRequest(), "", deadline).groups
    }
    group = describe_group(shards, "g", deadline)
    changed = update_group(shards, "g", SettingsChange(ordered=True), deadline)

    assert listed["g"] == group.settings == before
    assert group.problems == ["its settings in near differ from those in far: set them with UpdateConsumerGroup"]
    assert changed == group_settings("g", ordered=True, delivery_attempts_max=3, consume_enabled=False)
