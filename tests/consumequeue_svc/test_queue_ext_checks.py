"""Files of ConsumeQueueExt damaged while they are served, or between two starts: answers say so until a replay has ended."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from consumequeue_svc.servicer import ConsumeQueueServicer
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from tests.consumequeue_svc.test_queue_checks import Service
from tests.support.builder_kinds import QUEUE_REQUESTS as REQUESTS
from tests.support.dispatches import file_bytes

EXT_FILE_SIZE = 512  # 25 units: queue 0 has three files
SEALED, OPEN = 0, 2 * EXT_FILE_SIZE


def ext_service(root: Path) -> Service:
    return Service(root, ext_file_size_bytes=EXT_FILE_SIZE)


def settled(root: Path) -> Service:
    service = ext_service(root)
    service.follow()
    service.settle()
    assert not service.is_partial()
    return service


def ext_path(service: Service, first_byte: int) -> Path:
    return Path(service.root, "consumequeue_ext/orders/0", f"{first_byte:020d}")


def flip_a_tags_code(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)


def zero(path: Path) -> None:
    path.write_bytes(bytes(EXT_FILE_SIZE))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a flipped bit": flip_a_tags_code,
    "zeros": zero,
    "no file": os.unlink,
    "a short file": lambda path: os.truncate(path, 30),
}


def tags_codes(service: Service) -> list[int]:
    servicer = ConsumeQueueServicer(service.builder.progress, lambda units, _: [])
    servicer.open(service.table)
    request = pb.GetQueueUnitsRequest(topic="orders", queue_id=0, queue_offset=0, max_units=100)
    answer = servicer.GetQueueUnits(request, None)  # type: ignore[arg-type]
    assert answer.damaged == service.is_partial()
    return [unit.tags_code for unit in answer.units]


WANTED = [request.tags_code for request in REQUESTS if request.queue_id == 0]


@pytest.mark.parametrize("first_byte", [SEALED, OPEN])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_damaged_under_the_service_is_partial_and_built_again(
    tmp_path: Path, damage: str, first_byte: int
) -> None:
    service = settled(tmp_path)
    before = file_bytes(tmp_path / "consumequeue_ext")
    assert tags_codes(service) == WANTED
    DAMAGES[damage](ext_path(service, first_byte))

    again = service.replay()

    again.settle()
    assert not again.is_partial()
    assert tags_codes(again) == WANTED
    again.builder.stop()
    assert file_bytes(tmp_path / "consumequeue_ext") == before


def test_the_first_look_at_a_changed_file_makes_answers_partial(tmp_path: Path) -> None:
    service = settled(tmp_path)
    flip_a_tags_code(ext_path(service, SEALED))
    service.checker.look(service.checks.files())
    assert service.is_partial()
    tags_codes(service)


def test_a_bit_that_flips_while_stopped_is_found(tmp_path: Path) -> None:
    service = settled(tmp_path)
    service.builder.stop()
    flip_a_tags_code(ext_path(service, SEALED))
    again = ext_service(tmp_path)
    assert again.is_partial()
    repaired = again.replay()
    repaired.settle()
    assert tags_codes(repaired) == WANTED


def test_files_that_go_on_are_right_all_the_time(tmp_path: Path) -> None:
    """The checks read each file between any two writes, and never find one that is not as it was written."""
    service = ext_service(tmp_path)
    for number, request in enumerate(REQUESTS):
        service.builder.apply([request], request.next_offset, 0, REQUESTS[-1].next_offset)
        service.clock.seconds += 11
        while service.checker.step():
            pass
        assert not service.is_partial(), number
    service.settle()
    assert tags_codes(service) == WANTED
