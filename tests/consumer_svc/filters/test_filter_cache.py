import threading

import pytest

from consumer_svc.filters.filter_cache import FilterCache
from store.errors import IllegalFilterError

SIZE = 10 + 256  # of an entry whose expression has ten characters


def expression(number: int) -> str:
    return f"{number:010}"


class Maker:
    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, expression: str) -> str:
        self.made.append(expression)
        if expression.endswith("9"):
            raise IllegalFilterError("no nines", expression=expression)
        return f"<{expression}>"


def test_a_filter_is_made_once_for_each_kind_and_expression() -> None:
    cache, make = FilterCache[str](), Maker()
    assert [cache.get("TAG", "a", make), cache.get("TAG", "a", make), cache.get("SQL92", "a", make)] == ["<a>"] * 3
    assert make.made == ["a", "a"]


def test_a_refusal_is_kept_and_raised_anew() -> None:
    cache, make = FilterCache[str](), Maker()
    refusals = []
    for _ in range(2):
        with pytest.raises(IllegalFilterError, match="no nines") as refused:
            cache.get("TAG", "9", make)
        assert refused.value.metadata == {"expression": "9"}
        refusals.append(refused.value)
    assert make.made == ["9"]
    assert refusals[0] is not refusals[1]


def test_the_least_recently_used_filters_make_room() -> None:
    cache, make = FilterCache[str](3 * SIZE), Maker()
    for number in (0, 1, 2, 0, 3):
        cache.get("TAG", expression(number), make)
    make.made.clear()
    for number in (0, 2, 3):
        cache.get("TAG", expression(number), make)
    assert make.made == []
    cache.get("TAG", expression(1), make)
    assert make.made == [expression(1)]


def test_what_is_larger_than_the_cache_is_made_each_time_and_pushes_nothing_out() -> None:
    cache, make = FilterCache[str](2 * SIZE), Maker()
    cache.get("TAG", expression(0), make)
    for _ in range(2):
        cache.get("TAG", "a" * 1000, make)
    cache.get("TAG", expression(0), make)
    assert [len(made) for made in make.made] == [10, 1000, 1000]


def test_threads_that_ask_together_all_get_a_filter() -> None:
    cache, make = FilterCache[str](5 * SIZE), Maker()
    found: list[bool] = []

    def ask() -> None:
        for number in range(1000):
            wanted = expression(number % 8)
            found.append(cache.get("TAG", wanted, make) == f"<{wanted}>")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4000
    assert all(found)
