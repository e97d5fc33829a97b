"""QueueOrder writes what the online ConsumeQueue writes, for messages that come in any order."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from pipeline.jobs.rebuild_files import QueueFiles
from store.builders.queue_order import QueueOrder
from store.builders.queue_runs import place_runs
from store.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from tests.support.dispatches import file_bytes, make_request

NEAR_FILE_SIZE, FAR_FILE_SIZE = 100, 2000  # 5 and 100 units: a step over 4,000 positions is to fill tens of files
NEAR_MAX = 40
# Mostly the next position; sometimes any near one, sometimes 0 again, sometimes one that cannot be.
STEPS = st.lists(
    st.one_of(
        st.none(),
        st.none(),
        st.integers(0, 30),
        st.just(0),
        st.sampled_from([-1, 4_000, 4_200, 10**6, 2**62]),
    ),
    min_size=1,
    max_size=30,
)


def _positions(first: int, steps: list[int | None]) -> list[int]:
    positions, expected = [], first
    for step in steps:
        position = expected if step is None else step
        positions.append(position)
        expected = position + 1
    return positions


@settings(max_examples=150, deadline=None)
@given(first=st.integers(0, NEAR_MAX), steps=STEPS, batch=st.integers(1, 30))
def test_any_sequence_of_positions_gives_the_online_builders_files(first, steps, batch):
    is_near = all(step is None or step <= NEAR_MAX for step in steps)
    file_size = NEAR_FILE_SIZE if is_near else FAR_FILE_SIZE
    requests = [
        make_request(number + 3, queue_offset=position) for number, position in enumerate(_positions(first, steps))
    ]
    with tempfile.TemporaryDirectory() as directory:
        online, ours = Path(directory) / "online", Path(directory) / "ours"
        fs = RealFileSystem()
        table = ConsumeQueueTable(online, fs, file_size)
        for at in range(0, len(requests), batch):
            table.apply(DispatchColumns.of(requests[at : at + batch]))
        files, order = QueueFiles(fs, ours, file_size), QueueOrder(file_size // 20)
        for topic, queue_id, runs in place_runs(DispatchColumns.of(requests)):
            for position, units, begins_anew in order.place(runs):
                if begins_anew:
                    files.remove_queue(topic, queue_id)
                files.write(topic, queue_id, position, units)
        files.close()
        table.close()

        assert file_bytes(ours) == file_bytes(online)
