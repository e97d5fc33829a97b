"""The settings of each component, as its own code reads them from a container's environment."""

from typing import Any

import pydantic

from commitlog_svc.settings import CommitLogSettings
from consumequeue_svc.settings import ConsumeQueueSettings
from consumer_svc.settings import ConsumerSettings
from gateway.settings import GatewaySettings
from index_svc.settings import IndexSettings
from nameserver_svc.settings import NameServerSettings
from schedule_svc.settings import ScheduleSettings
from services.settings.service_settings import load_settings
from tests.deploy.manifests import ORDINAL, Document, environment

MODELS: dict[str, type[pydantic.BaseModel]] = {
    "gateway": GatewaySettings,
    "commitlog": CommitLogSettings,
    "consumequeue": ConsumeQueueSettings,
    "index": IndexSettings,
    "consumer": ConsumerSettings,
    "schedule": ScheduleSettings,
    "nameserver": NameServerSettings,
}


def load_environment(component: str, container: Document, ordinal: int = ORDINAL) -> Any:
    """The settings that the service of a component makes of it; InvalidSettingError."""
    return load_settings(component, MODELS[component], environ=environment(container, ordinal))[0]
