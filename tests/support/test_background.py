"""Work beside a test ends with its block, and its error is not lost."""

import threading

import pytest

from tests.support.background import Background


def test_all_work_goes_on_until_the_end_of_the_block() -> None:
    began = threading.Barrier(3)
    ended: list[bool] = []

    def work() -> None:
        began.wait()
        ended.append(background.stopping.wait())

    background = Background([work, work])
    with background:
        began.wait()  # both are under way
        assert ended == []
    assert ended == [True, True]


def test_an_error_of_work_beside_a_test_was_lost_and_is_raised_at_the_end_of_the_block() -> None:
    with pytest.raises(ZeroDivisionError), Background([lambda: 1 // 0]):
        pass
