"""Settings of mirrors and of slaves that contradict one another, or name nothing, are refused at the start."""

from pathlib import Path
from typing import Any

import pydantic
import pytest

from commitlog_svc.settings import CommitLogSettings

MIRROR: dict[str, Any] = {"mirror": "rocketmq://broker:10912"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"mirror": "broker:10912"}, "names no broker"),
        ({"mirror": "rocketmq://broker"}, "write HOST:PORT"),
        ({**MIRROR, "read_only": True}, "writes to its store"),
        ({**MIRROR, "coordinator": "etcd://127.0.0.1:2379/reput", "replica_name": "r1"}, "one copy"),
        ({"mirror_broker": "broker:10911"}, "set both"),
        ({**MIRROR, "mirror_broker": "broker"}, "write HOST:PORT"),
        ({"rocketmq_ha_address": "10912"}, "write HOST:PORT"),
        ({"rocketmq_slaves": "broker-1:10911,broker-2"}, "write HOST:PORT"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, values: dict[str, Any], why: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=why):
        CommitLogSettings(store=tmp_path, **values)


def test_a_mirror_appends_no_records_and_says_so_to_all_services(tmp_path: Path) -> None:
    assert CommitLogSettings(store=tmp_path, **MIRROR).writes_no_records
    leader: dict[str, Any] = {"rocketmq_ha_address": "0.0.0.0:0"}
    assert not CommitLogSettings(store=tmp_path, **leader).writes_no_records
