"""Places are divided so that a client that comes later always finds one.

A client that brings ever new keys loses its own; random use is compared with plain lists.
"""

import random

import pytest

from services.serving.admission.shares import (
    Client,
    FairQueue,
    KeptKeys,
    Shares,
    client_of_identity,
    client_of_name,
    client_of_peer,
)


def fill(shares, *clients):
    """Each client takes as much as it gets, in turn; what each has."""
    is_moving = True
    while is_moving:
        is_moving = False
        for client in clients:
            if shares.has_room(client):
                shares.take(client)
                is_moving = True
    return [shares.held(client) for client in clients]


def host(number, connection=1):
    return client_of_peer(f"ipv4:10.0.0.{number}:{connection}")


def test_a_client_that_is_alone_gets_half_and_the_next_one_finds_room():
    shares = Shares(128)
    assert fill(shares, host(1)) == [64]
    assert shares.has_room(host(2))


@pytest.mark.parametrize("count", [2, 5, 16, 40])
def test_clients_get_equal_shares_and_the_last_place_is_never_held(count):
    shares = Shares(128)
    held = fill(shares, *map(host, range(count)))
    assert max(held) - min(held) <= 1
    assert max(held) <= 128 - shares.count + 1
    assert shares.has_room(host(200))


def test_many_connections_of_one_address_leave_a_quarter_to_other_addresses():
    shares = Shares(128)
    fill(shares, *(host(1, connection) for connection in range(1_000)))
    assert shares.count == 96
    assert not shares.has_room(host(1, 5_000))
    assert fill(shares, host(2))[0] >= 8


def test_a_connection_does_not_take_all_that_its_address_may_have():
    shares = Shares(128)
    fill(shares, host(1, 1))
    assert shares.has_room(host(1, 2))


def test_an_identity_is_one_client_on_all_its_connections():
    shares = Shares(8)
    fill(shares, client_of_identity("orders"))
    assert not shares.has_room(client_of_identity("orders"))
    assert shares.has_room(client_of_identity("billing"))


def test_nothing_is_kept_of_a_client_that_gave_everything_back():
    shares = Shares(8)
    client = host(1)
    shares.take(client, 3)
    shares.give_back(client, 2)
    shares.give_back(client)
    assert (shares.count, shares._by_name, shares._by_address) == (0, {}, {})


def test_an_ipv6_peer_has_its_address_without_the_port():
    assert client_of_peer("ipv6:%5B::1%5D:4711") == Client("ipv6:%5B::1%5D:4711", "ipv6:%5B::1%5D")


def always(_client, _item):
    return True


def taken_from(queue, may=always):
    taken = []
    while (found := queue.pop(may)) is not None:
        taken.append(found[1])
    return taken


def test_addresses_take_turns_and_so_do_the_connections_of_each():
    queue = FairQueue()
    for number in range(3):
        queue.append(host(1, 1), f"a{number}")
    for number in range(2):
        queue.append(host(1, 2), f"b{number}")
    queue.append(host(2), "good")

    assert taken_from(queue) == ["a0", "good", "b0", "a1", "b1", "a2"]
    assert queue.count == 0


def test_a_client_that_may_not_is_passed_over_and_keeps_its_turn():
    queue = FairQueue()
    queue.append(host(1), "first")
    queue.append(host(2), "second")
    assert queue.pop(lambda client, _item: client != host(1)) == (host(2), "second")
    assert queue.pop(lambda client, _item: client != host(1)) is None
    assert taken_from(queue) == ["first"]


def test_an_item_that_may_not_is_passed_over_by_its_client_s_later_ones_where_these_may_pass():
    queue = FairQueue()
    for item in ("blocked", "blocked", "a", "blocked", "b"):
        queue.append(host(1), item)
    may = {"a", "b"}
    assert queue.pop(lambda _client, item: item in may) is None
    assert [queue.pop(lambda _client, item: item in may, may_pass=True) for _ in range(3)] == [
        (host(1), "a"),
        (host(1), "b"),
        None,
    ]
    assert taken_from(queue) == ["blocked"] * 3
    assert queue.count == 0


def test_the_newest_item_of_a_client_can_be_taken_back():
    queue = FairQueue()
    for item in ("a", "b"):
        queue.append(host(1), item)
    assert [queue.pop_newest(host(1)), queue.pop_newest(host(1))] == ["b", "a"]
    assert (queue.count, queue.clients(), queue.pop(always)) == (0, [], None)


def test_what_needs_nothing_more_leaves_the_queue_and_the_others_keep_their_order():
    queue = FairQueue()
    for item in range(6):
        queue.append(host(item % 2), item)
    queue.append(host(3), 6)
    assert queue.drop(lambda item: item in {0, 3, 6}) == [(host(0), 0), (host(1), 3), (host(3), 6)]
    assert (queue.count, queue.heads()) == (4, [(host(0), 2), (host(1), 1)])
    assert [queue.pop(always)[1] for _ in range(4)] == [2, 1, 4, 5]
    assert queue.clients() == []


def test_a_client_takes_as_much_at_once_as_leaves_the_same_for_others():
    shares = Shares(96)
    sizes = 0
    while shares.has_room(host(1), 4):
        shares.take(host(1), 4)
        sizes += 4
    assert sizes == 48


KEPT = 40  # 4 of a client, 10 of an address


def use(keys: KeptKeys[str], key: str, caller: str) -> None:
    dropped = keys.use(key, client_of_name(caller))
    if dropped is not None:
        keys.drop(dropped)


def test_a_client_that_brings_ever_new_keys_loses_its_own_oldest() -> None:
    keys: KeptKeys[str] = KeptKeys(KEPT)
    use(keys, "victim", "identity:victim")
    for number in range(100):
        use(keys, f"a{number}", "identity:attacker")
    assert len(keys) == 1 + KEPT // 10
    assert keys.oldest() == "victim"


def test_many_connections_of_an_address_lose_their_own_keys_first() -> None:
    keys: KeptKeys[str] = KeptKeys(KEPT)
    use(keys, "victim", "ipv4:10.0.0.2:1")
    for number in range(100):
        use(keys, f"a{number}", f"ipv4:10.0.0.1:{number}")
    assert len(keys) == 1 + KEPT // 4
    assert keys.oldest() == "victim"


def test_random_keys_of_random_callers_are_kept_as_plain_lists_say() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    keys: KeptKeys[str] = KeptKeys(KEPT)
    plain: list[tuple[str, str]] = []  # key and caller, the one used least recently first
    callers = [
        "",
        *(f"ipv4:10.0.0.{host}:{port}" for host in range(4) for port in range(4)),
        "identity:a",
        "identity:b",
    ]
    for step in range(5_000):
        key, caller = f"k{chance.randrange(100)}", chance.choice(callers)
        plain = [each for each in plain if each[0] != key]
        if chance.random() < 0.1:
            keys.drop(key)
        else:
            plain.append((key, caller))
            of_client = [each for each in plain if each[1] == caller]
            of_address = [each for each in plain if client_of_name(each[1]).address == client_of_name(caller).address]
            if caller and len(of_client) > KEPT // 10:
                plain.remove(of_client[0])
            elif caller and len(of_address) > KEPT // 4:
                plain.remove(of_address[0])
            elif len(plain) > KEPT:
                del plain[0]
            use(keys, key, caller)
        assert len(keys) == len(plain), f"seed {seed}, step {step}"
        assert keys.oldest() == (plain[0][0] if plain else None), f"seed {seed}, step {step}"
