"""Services of two releases in one shard: each works with the others, whichever is the older one.

A rolling update has every such pair for a while. A change runs the gateway with the services, both ways, and the others of
today at an older commit log with its queues and index; a release, each service by itself.
"""

import pathlib

import pytest

from tests.releases.left_work import SETTINGS, Clients
from tests.support.releases import COMMITS, environ_of, tree_of
from tests.torture.test_random_kills import NAMES, Services

pytestmark = [pytest.mark.life, pytest.mark.timeout(300)]

PARTS = {name: (name,) for name in NAMES} | {"store": ("commitlog", "consumequeue", "index")}
FOR_A_CHANGE = (("gateway", True), ("gateway", False), ("store", True))


def parts(*, are_for_a_change: bool) -> list[object]:
    """Each part of a shard, as the older and as the newer one."""
    return [
        pytest.param(
            part,
            is_older,
            id=f"{'older' if is_older else 'newer'}-{part}",
            marks=() if are_for_a_change and (part, is_older) in FOR_A_CHANGE else pytest.mark.release,
        )
        for part in PARTS
        for is_older in (True, False)
    ]


@pytest.mark.parametrize(("part", "is_older"), parts(are_for_a_change=True))
@pytest.mark.parametrize("version", COMMITS)
def test_a_service_of_another_release_works_with_the_others(
    version: str, part: str, is_older: bool, tmp_path: pathlib.Path
) -> None:
    # On ports as pods are; over local sockets, with other frames, the same at a release.
    check_mixed(version, part, tmp_path, is_older=is_older, on_ports=True)


@pytest.mark.parametrize(("part", "is_older"), parts(are_for_a_change=False))
@pytest.mark.parametrize("version", COMMITS)
def test_a_service_of_another_release_works_with_the_others_over_local_sockets(
    version: str, part: str, is_older: bool, tmp_path: pathlib.Path
) -> None:
    check_mixed(version, part, tmp_path, is_older=is_older, on_ports=False)


def check_mixed(version: str, part: str, tmp_path: pathlib.Path, *, is_older: bool, on_ports: bool) -> None:
    older = [name for name in NAMES if (name in PARTS[part]) is is_older]
    environs = dict.fromkeys(older, environ_of(tree_of(version)))
    services = Services(tmp_path / "store", SETTINGS, environs, on_ports=on_ports)
    try:
        with Clients(services.gateway) as clients:
            left = clients.leave("mixed")
            clients.check(left)
        assert set(services.stop().values()) == {0}
    finally:
        services.close()
