"""What only a real Kubernetes shows: who may what, the Lease as kubectl shows it, and leadership over it."""

from pathlib import Path

import pytest

from commitlog_svc.replication.leading.leadership import ElectedLeadership
from commitlog_svc.replication.leading.leadership_rules import LeaseTimes
from services.coordination.access import CoordinatorAccess
from services.coordination.kubernetes_lease import ANNOTATION
from services.coordination.opening import open_record_store
from services.coordination.port import RecordStore
from store.errors import CoordinatorUnavailableError, RecordConflictError
from tests.contracts.test_record_store import service_account_access
from tests.support.control_plane import ControlPlane
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tools.control_plane_build import missing_programs

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(missing_programs()), reason="needs tools/control_plane_build.py to have run"),
]

NAMESPACE = "leases"
TIMES = LeaseTimes(lease_seconds=3.0, margin_seconds=0.5, renew_seconds=0.5, jitter_seconds=0.1)


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    return control_plane


@pytest.fixture(scope="module")
def access(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> CoordinatorAccess:
    return service_account_access(cluster, NAMESPACE, tmp_path_factory.mktemp("access"))


def store_of(cluster: ControlPlane, access: CoordinatorAccess, shard: str, namespace: str = NAMESPACE) -> RecordStore:
    return open_record_store(f"kubernetes://{namespace}/reput?server={cluster.server}", shard, access)


def test_kubectl_shows_who_leads(cluster: ControlPlane, access: CoordinatorAccess) -> None:
    store = store_of(cluster, access, "broker-a")
    with ElectedLeadership(
        "r1", {"commitlog": "10.0.0.1:8082"}, store, lambda: 0, may_create=True, times=TIMES
    ) as leader:
        wait_until(leader.may_acknowledge)
        wait_until(lambda: leader.change_in_sync(frozenset({"r1", "r2"})))
        lease = cluster.get("lease", "reput-broker-a", namespace=NAMESPACE)
        assert lease["spec"]["holderIdentity"] == "r1"
        assert lease["spec"]["leaseTransitions"] == 1
        assert lease["spec"]["leaseDurationSeconds"] == 3
        assert '"in_sync":["r1","r2"]' in lease["metadata"]["annotations"][ANNOTATION]

        leader.hand_over("r2")
        given_up = cluster.get("lease", "reput-broker-a", namespace=NAMESPACE)
        assert not given_up["spec"].get("holderIdentity")

    with ElectedLeadership("r2", {}, store, lambda: 1, times=TIMES) as successor:
        wait_until(successor.may_acknowledge)
        assert cluster.get("lease", "reput-broker-a", namespace=NAMESPACE)["spec"]["holderIdentity"] == "r2"


def test_a_lease_that_was_removed_and_made_again_has_another_version(
    cluster: ControlPlane, access: CoordinatorAccess
) -> None:
    store = store_of(cluster, access, "broker-b")
    before = store.write(b"{}", None, WAIT_SECONDS_MAX)
    cluster.kubectl("delete", "lease", "reput-broker-b", "-n", NAMESPACE)
    with pytest.raises(RecordConflictError):
        store.write(b"{}", before, WAIT_SECONDS_MAX)
    assert store.read(WAIT_SECONDS_MAX) is None
    after = store.write(b"{}", None, WAIT_SECONDS_MAX)
    for version in (before, f"{before.split('/')[0]}/{after.split('/')[1]}"):
        with pytest.raises(RecordConflictError):
            store.write(b"{}", version, WAIT_SECONDS_MAX)


def test_what_kubernetes_refuses_is_an_error_that_says_why(
    cluster: ControlPlane, access: CoordinatorAccess, tmp_path: Path
) -> None:
    elsewhere = store_of(cluster, access, "broker-c", "default")
    for call in (lambda: elsewhere.read(WAIT_SECONDS_MAX), lambda: elsewhere.write(b"{}", None, WAIT_SECONDS_MAX)):
        with pytest.raises(CoordinatorUnavailableError, match="forbidden"):
            call()
    wrong = tmp_path / "token"
    wrong.write_text("nobody")
    for refused in (
        CoordinatorAccess(ca=cluster.ca, token_file=wrong),
        CoordinatorAccess(ca=cluster.ca, token_file=tmp_path / "missing"),
        CoordinatorAccess(token_file=access.token_file),
    ):
        with pytest.raises(CoordinatorUnavailableError):
            store_of(cluster, refused, "broker-c").read(WAIT_SECONDS_MAX)
