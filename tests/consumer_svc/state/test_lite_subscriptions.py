"""LiteSubscriptions against sets that are computed anew after each change."""

import random

import pytest

from consumer_svc.state.lite_subscriptions import LiteSubscribed, LiteSubscriptions

CLIENTS = ("a", "b", "c")
QUEUES = tuple(f"%LMQ%$parent${number}" for number in range(5))


@pytest.mark.parametrize("seed", range(20))
def test_counts_and_subscribers_are_those_of_all_clients_after_each_change(seed: int) -> None:
    chance = random.Random(seed)
    known: dict[str, set[str]] = {}
    subscriptions = LiteSubscriptions()
    for _ in range(100):
        client_id, queue = chance.choice(CLIENTS), chance.choice(QUEUES)
        added, removed = (chance.sample(QUEUES, chance.randrange(3)) for _ in range(2))
        match chance.choice(("partial", "complete", "end", "drop")):
            case "partial":
                subscriptions.apply(LiteSubscribed("group", "parent", client_id, added, removed))
                known[client_id] = known.get(client_id, set()) - set(removed) | set(added)
            case "complete":
                subscriptions.apply(LiteSubscribed("group", "parent", client_id, added, is_complete=True))
                known[client_id] = set(added)
            case "end":
                subscriptions.apply(LiteSubscribed("group", "parent", client_id, is_ended=True))
                known.pop(client_id, None)
            case _:
                subscriptions.drop(queue)
                for queues in known.values():
                    queues.discard(queue)
        assert {each: client.queues for each, client in subscriptions.clients.items()} == known
        assert subscriptions.count == sum(len(queues) or 1 for queues in known.values())
        for each in QUEUES:
            assert sorted(subscriptions.subscribers(each)) == sorted(one for one in known if each in known[one])
        assert set(subscriptions.queues()) == set().union(*known.values())
