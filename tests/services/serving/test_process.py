"""What belongs to a process of a service."""

import pytest
from structlog.testing import capture_logs

from services.serving.process import tell_meaningless
from services.settings.service_settings import ServiceSettings, load_settings


@pytest.mark.parametrize(
    ("environ", "is_told"),
    [
        ({}, False),
        ({"REPUT_KERNELS": "off"}, False),
        ({"REPUT_KERNELS": "auto"}, True),
        ({"REPUT_KERNELS": "eager"}, True),
    ],
)
def test_a_mode_of_kernels_that_changes_nothing_is_told(environ: dict[str, str], is_told: bool) -> None:
    settings, _ = load_settings("commitlog", ServiceSettings, environ=environ)
    with capture_logs() as logs:
        tell_meaningless("commitlog", settings)
    assert [line["event"] for line in logs] == ["settings.no_meaning"] * is_told
    assert all(environ["REPUT_KERNELS"] in line["hint"] for line in logs)
