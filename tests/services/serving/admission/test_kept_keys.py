"""A client that brings ever new keys loses its own; random use is compared with plain lists."""

import random

from services.serving.admission.kept_keys import KeptKeys
from services.serving.admission.shares import client_of_name

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
