"""A rate with its debt, against what a second holds."""

import random

import pytest

from gateway.tenants.rate import Rate


def test_a_second_of_the_rate_passes_at_once_and_then_as_much_each_second() -> None:
    rate = Rate(10, 100.0)
    for _ in range(9):
        rate.take(1, 100.0)
        assert rate.wait_seconds(100.0) == 0
    rate.take(1, 100.0)
    assert rate.wait_seconds(100.0) == pytest.approx(0.1)
    assert rate.wait_seconds(100.0625) == pytest.approx(0.0375)
    assert rate.wait_seconds(100.125) == 0


def test_a_request_larger_than_a_second_passes_and_its_debt_is_paid_first() -> None:
    rate = Rate(10, 0.0)
    assert rate.wait_seconds(0.0) == 0
    rate.take(60, 0.0)
    assert rate.wait_seconds(0.0) == pytest.approx(5.1)
    assert rate.wait_seconds(4.0) == pytest.approx(1.1)
    assert rate.wait_seconds(5.2) == 0


def test_less_than_one_a_second_passes_one_by_one() -> None:
    """The part of one of many gateways."""
    rate = Rate(0.25, 0.0)
    assert rate.wait_seconds(0.0) == 0
    rate.take(1, 0.0)
    assert rate.wait_seconds(0.0) == 4
    assert rate.wait_seconds(4.0) == 0


def test_a_rest_saves_one_second_of_the_rate_at_most() -> None:
    rate = Rate(10, 0.0)
    assert rate.wait_seconds(1_000.0) == 0
    rate.take(20, 1_000.0)
    assert rate.wait_seconds(1_000.0) == pytest.approx(1.1)


def test_what_is_taken_after_a_rest_is_no_debt_of_the_time_before() -> None:
    """The rest paid a debt that was made at its end: what a pop brings is taken without a look before it."""
    rate = Rate(10, 0.0)
    rate.take(31, 1_000.0)
    assert rate.wait_seconds(1_000.0) == pytest.approx(2.2)


def test_a_rate_of_nothing_lets_nothing_pass_and_never_will() -> None:
    assert Rate(0, 0.0).wait_seconds(1e9) == float("inf")


def test_another_rate_holds_at_once_and_the_debt_stays() -> None:
    rate = Rate(10, 0.0)
    rate.take(30, 0.0)
    rate.change(100)
    assert rate.wait_seconds(0.0) == pytest.approx(0.21)
    rate.change(0)
    assert rate.wait_seconds(50.0) == float("inf")


def test_no_time_lets_more_pass_than_its_rate_a_second_more_and_one_request() -> None:
    """Random requests, as many as can be."""
    drawn = random.Random(39)
    for _ in range(50):
        per_second, largest = drawn.randint(1, 1_000), drawn.randint(1, 3_000)
        rate, now, passed = Rate(per_second, 0.0), 0.0, 0
        for _ in range(200):
            now += drawn.random() / 10
            while rate.wait_seconds(now) == 0:
                size = drawn.randint(1, largest)
                rate.take(size, now)
                passed += size
        assert passed <= per_second * (now + 1) + largest
        assert passed >= per_second * (now - 0.2)  # of the time between two requests some may be lost
