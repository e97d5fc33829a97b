"""Settings of the name server."""

from pathlib import Path

import pydantic

from services.rocketmq.address import parse_address
from services.settings.service_settings import ServiceSettings, as_value_error, listens_at, setting


class NameServerSettings(ServiceSettings):
    """See the top of services/settings/setting_names.py."""

    address: str = listens_at("127.0.0.1:8087")
    remoting_address: str = setting(
        "127.0.0.1:9876",
        "Where brokers and clients of RocketMQ find the name server; port 0: a free one.",
        unit="host:port",
    )
    remoting_address_file: Path | None = setting(
        None, "File for the bound remoting address, written when the service listens."
    )
    # RocketMQ's file of that name has the same content.
    kv_config_path: Path | None = setting(
        None, "File that keeps the key-value configuration, kvConfig.json; empty: it ends with the process."
    )
    # RocketMQ's orderMessageEnable.
    order_message_enable: bool = setting(False, "Whether routes tell the order configuration of their topic.")

    @pydantic.field_validator("remoting_address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        with as_value_error():
            parse_address(value, port_min=0)
        return value
