"""Settings of the consumer service; services/settings/setting_names.py has names, defaults and meanings."""

from typing import Literal

import pydantic

from consumer_svc.state.group_states import GROUP_COUNT_MAX
from services.settings.service_settings import StoreSettings

DELIVERY_ATTEMPTS_DEFAULT = 17  # RocketMQ's retryMaxTimes 16, and the first delivery


class ConsumerSettings(StoreSettings):
    """The settings.

    Attributes:
        address: at which the service listens.
        commitlog_target: address of the commitlog service.
        consumequeue_target: address of the consumequeue service.
        receipt_secret: signs receipt handles; empty: a secret of this store root, made at the first start.
        new_groups_from: where a group begins in a topic that it never consumed.
        cluster_name: RocketMQ's brokerClusterName, for a broker that takes the store over.
        group_metrics: the page of metrics shows the lag of each group, and so the names of groups and topics.
        delivery_attempts_max: of a group without a setting of its own; the first delivery counts.
        group_count_max: groups of the shard; a client makes at most a tenth, an address without sign-in a quarter.
    """

    address: str = "127.0.0.1:8085"
    commitlog_target: str = "127.0.0.1:8082"
    consumequeue_target: str = "127.0.0.1:8083"
    receipt_secret: str = ""
    new_groups_from: Literal["first", "last"] = "first"
    cluster_name: str = pydantic.Field("DefaultCluster", min_length=1)
    group_metrics: bool = False
    delivery_attempts_max: int = pydantic.Field(DELIVERY_ATTEMPTS_DEFAULT, ge=1, le=10_000)
    group_count_max: int = pydantic.Field(GROUP_COUNT_MAX, ge=1, le=10_000_000)
