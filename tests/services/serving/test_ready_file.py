"""The file by which a service says that it has opened what it serves from."""

import pytest

from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import StoreLockedError


@pytest.mark.parametrize("is_noted_first", [True, False])
def test_the_ready_file_comes_when_the_port_is_open_and_the_files_too(tmp_path, is_noted_first):
    ready_file = tmp_path / "ready"
    server = ServiceServer("commitlog", ServiceSettings(ready_file=ready_file))
    try:
        if is_noted_first:
            server.note_ready()
        assert not ready_file.exists()
        server.start()
        assert ready_file.exists() == is_noted_first
        server.note_ready()
        assert ready_file.exists()
    finally:
        server.stop()
        server.serve_until_stopped()


def test_a_service_that_serves_is_ready(tmp_path):
    server = ServiceServer("commitlog", ServiceSettings(ready_file=tmp_path / "ready"))
    server.start()
    try:
        server.set_serving(False)
        assert not (tmp_path / "ready").exists()
        server.set_serving(True)
        assert (tmp_path / "ready").exists()
    finally:
        server.stop()
        server.serve_until_stopped()


def test_a_service_that_ends_by_itself_leaves_the_cause_in_the_ready_file(tmp_path):
    server = ServiceServer("commitlog", ServiceSettings(ready_file=tmp_path / "ready"))
    server.start()

    def refuse() -> None:
        raise StoreLockedError("the lock is held by another process: stop that process first")

    server.in_background(refuse)
    assert server.serve_until_stopped() == 1
    assert (tmp_path / "ready").read_text() == "the lock is held by another process: stop that process first"
