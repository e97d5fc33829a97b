"""The next offsets of queues, and copies of them that are made while appends go on."""

from commitlog_svc.append.topics.queue_offsets import QueueOffsets


def test_a_copy_is_as_of_its_call_whatever_changes_before_it_is_made_a_dict():
    offsets = QueueOffsets({("a", 0): 3, ("b", 0): 5})
    slots = offsets.give_slots([("a", 0), ("a", 1)])
    copy = offsets.copy()

    offsets.column[slots[0]] += 1
    offsets.update({("a", 1): 7, ("b", 0): 6})
    offsets.give_slots([("b", 0), ("c", 0)])
    offsets.update({("c", 0): 9})

    assert copy() == {("a", 0): 3, ("b", 0): 5}
    assert offsets.copy()() == {("a", 0): 4, ("a", 1): 7, ("b", 0): 6, ("c", 0): 9}


def test_a_copy_without_a_column_has_the_queues_that_were_recovered():
    assert QueueOffsets({("a", 0): 3}).copy()() == {("a", 0): 3}
