"""Settings of the consumer service."""

from typing import Literal

from consumer_svc.state.group_states import GROUP_COUNT_MAX, LITE_SUBSCRIPTION_COUNT_MAX
from services.settings.service_settings import TARGETS, StoreSettings, listens_at, setting, target

DELIVERY_ATTEMPTS_DEFAULT = 17  # RocketMQ's retryMaxTimes 16, and the first delivery


class ConsumerSettings(StoreSettings):
    """See the top of services/settings/setting_names.py."""

    address: str = listens_at(TARGETS["consumer"])
    commitlog_target: str = target("commitlog")
    consumequeue_target: str = target("consumequeue")
    receipt_secret: str = setting(
        "", "Signs receipt handles; empty: a secret of this store root, made at the first start.", secret=True
    )
    new_groups_from: Literal["first", "last"] = setting(
        "first", "Where a group begins in a topic that it never consumed."
    )
    cluster_name: str = setting(
        "DefaultCluster", "RocketMQ's brokerClusterName, for a broker that takes the store over.", min_length=1
    )
    group_metrics: bool = setting(
        False, "Show the lag of each group and topic, with their names, on the page of metrics."
    )
    delivery_attempts_max: int = setting(
        DELIVERY_ATTEMPTS_DEFAULT,
        "Of a group without a setting of its own, the first delivery included.",
        unit="deliveries",
        ge=1,
        le=10_000,
    )
    group_count_max: int = setting(
        GROUP_COUNT_MAX,
        "Consumer groups of the shard. A client makes at most a tenth, all of an address without sign-in a quarter.",
        unit="groups",
        ge=1,
        le=10_000_000,
    )
    lite_subscription_count_max: int = setting(
        LITE_SUBSCRIPTION_COUNT_MAX,
        "Lite topics that the clients of the shard subscribe to, each as often as there are clients that do; some 300 bytes of "
        "memory each. RocketMQ's maxLiteSubscriptionCount.",
        unit="subscriptions",
        ge=1,
        le=100_000_000,
    )
