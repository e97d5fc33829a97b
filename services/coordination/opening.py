"""The record of a shard at the coordinator that an address names."""

from services.coordination.access import CoordinatorAccess, EtcdAddress, parse_address
from services.coordination.etcd import EtcdRecordStore
from services.coordination.kubernetes_lease import KubernetesLeaseStore
from services.coordination.port import RecordStore


def open_record_store(address: str, shard: str, access: CoordinatorAccess | None = None) -> RecordStore:
    """The store of one shard's record; nothing is asked yet.

    Args:
        address: `etcd://HOST:PORT[,HOST:PORT]/PREFIX`, `etcds://` with TLS, or `kubernetes://NAMESPACE/LEASE_PREFIX`.
        shard: its broker name.
        access: credentials.

    Raises:
        InvalidSettingError: the address cannot be used.
    """
    parsed = parse_address(address)
    access = access or CoordinatorAccess()
    if isinstance(parsed, EtcdAddress):
        return EtcdRecordStore(parsed, shard, access)
    return KubernetesLeaseStore(parsed, shard, access)
