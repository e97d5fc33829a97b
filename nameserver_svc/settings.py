"""Settings of the name server."""

from pathlib import Path
from typing import Self

import pydantic

from services.rocketmq.address import parse_address
from services.settings.service_settings import ServiceSettings, TlsFiles, as_value_error, listens_at, setting


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
    # The gateway's door has the same; `reput serve` takes those of the gateway.
    public_tls_certificate: Path | None = setting(
        None, "PEM chain shown to clients of RocketMQ, which may use TLS then; empty: tls_certificate."
    )
    public_tls_key: Path | None = setting(None, "PEM file of its private key.")
    # RocketMQ's file of that name has the same content.
    kv_config_path: Path | None = setting(
        None, "File that keeps the key-value configuration, kvConfig.json; empty: it ends with the process."
    )
    # RocketMQ's orderMessageEnable.
    order_message_enable: bool = setting(False, "Whether routes tell the order configuration of their topic.")

    @pydantic.model_validator(mode="after")
    def _has_whole_certificates(self) -> Self:
        if (self.public_tls_certificate is None) != (self.public_tls_key is None):
            raise ValueError("public_tls_certificate and public_tls_key are set together or not at all")
        return self

    @property
    def remoting_tls_files(self) -> TlsFiles | None:
        """The certificate for RocketMQ's clients, which show none."""
        certificate = self.public_tls_certificate or self.tls_certificate
        key = self.public_tls_key or self.tls_key
        return None if certificate is None or key is None else TlsFiles(certificate, key)

    @pydantic.field_validator("remoting_address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        with as_value_error():
            parse_address(value, port_min=0)
        return value
