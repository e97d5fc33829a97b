"""Services of two releases in one shard: each works with the others, whichever is the older one.

A rolling update has every such pair for a while. A change runs the gateway with the services; a release, each service.
"""

import pathlib

import pytest

from tests.releases.left_work import SETTINGS, Clients
from tests.support.releases import COMMITS, environ_of, tree_of
from tests.torture.test_random_kills import NAMES, Services

pytestmark = [pytest.mark.life, pytest.mark.timeout(300)]


def of_release(name: str) -> object:
    return name if name == "gateway" else pytest.param(name, marks=pytest.mark.release)


@pytest.mark.parametrize("name", [of_release(name) for name in NAMES])
@pytest.mark.parametrize("is_older", [True, False], ids=["older", "newer"])
@pytest.mark.parametrize("version", COMMITS)
def test_a_service_of_another_release_works_with_the_others(
    version: str, is_older: bool, name: str, tmp_path: pathlib.Path
) -> None:
    older = [name] if is_older else [each for each in NAMES if each != name]
    # On ports as pods are; over local sockets, with other frames, the same at a release.
    check_mixed(version, older, tmp_path, on_ports=True)


@pytest.mark.release
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_older", [True, False], ids=["older", "newer"])
@pytest.mark.parametrize("version", COMMITS)
def test_a_service_of_another_release_works_with_the_others_over_local_sockets(
    version: str, is_older: bool, name: str, tmp_path: pathlib.Path
) -> None:
    older = [name] if is_older else [each for each in NAMES if each != name]
    check_mixed(version, older, tmp_path, on_ports=False)


def check_mixed(version: str, older: list[str], tmp_path: pathlib.Path, *, on_ports: bool) -> None:
    environs = dict.fromkeys(older, environ_of(tree_of(version)))
    services = Services(tmp_path / "store", SETTINGS, environs, on_ports=on_ports)
    try:
        with Clients(services.gateway) as clients:
            left = clients.leave("mixed")
            clients.check(left)
        assert set(services.stop().values()) == {0}
    finally:
        services.close()
