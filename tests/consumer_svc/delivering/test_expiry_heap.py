"""When leases end."""

from hypothesis import given
from hypothesis import strategies as st

from consumer_svc.delivering.expiry_heap import ExpiryHeap, LeaseEnd
from consumer_svc.state.queue_state import QueueRef

REF = QueueRef("g", "t", 0)


@given(st.lists(st.integers(0, 50)), st.integers(0, 60), st.integers(1, 20))
def test_the_earliest_ends_are_taken_first_and_none_before_its_time(
    ends: list[int], now_millis: int, count_max: int
) -> None:
    heap = ExpiryHeap()
    for number, end_millis in enumerate(ends):
        heap.note(end_millis, REF, number, 1)
    taken = [ends[one.queue_offset] for one in heap.due(now_millis, count_max)]
    assert taken == sorted(end for end in ends if end <= now_millis)[:count_max]
    assert len(heap) == len(ends) - len(taken)


def test_what_replaces_the_heap_is_all_that_is_in_it() -> None:
    heap = ExpiryHeap()
    heap.note(1, REF, 1, 1)
    heap.replace([(7, LeaseEnd(REF, 7, 1)), (5, LeaseEnd(REF, 5, 1))])
    assert [one.queue_offset for one in heap.due(10, 10)] == [5, 7]


def test_a_closed_heap_lets_nobody_wait() -> None:
    heap = ExpiryHeap()
    assert not heap.wait(0, 0)
    heap.close()
    assert heap.wait(0, 60)
