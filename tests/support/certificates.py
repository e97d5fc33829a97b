"""Certificates for tests, made when they are needed: an authority, and what it signs."""

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

LOOPBACK = ("localhost", "127.0.0.1")
# Tags of GeneralName (RFC 5280).
EMAIL, DNS, URI = 0x81, 0x82, 0x86


@dataclass(frozen=True)
class Pem:
    """Files of one certificate."""

    certificate: Path
    key: Path
    ca: Path

    def settings(self) -> dict[str, str]:
        return {
            "REPUT_TLS_CERTIFICATE": str(self.certificate),
            "REPUT_TLS_KEY": str(self.key),
            "REPUT_TLS_CA": str(self.ca),
        }


class Authority:
    """An authority whose files lie in a directory."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.path = directory / "ca.crt"
        certificate = self._builder(self._name, self._key.public_key(), datetime.timedelta(days=1)).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._write(self.path, certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *names: str,
        lifetime: datetime.timedelta = datetime.timedelta(hours=1),
        under: str | None = None,
        san: bytes | None = None,
    ) -> Pem:
        """A certificate for DNS names, IP addresses and URIs.

        Args:
            name: its common name, and that of its files.
            names: DNS names, IP addresses and URIs.
            lifetime: from now on.
            under: names its files, to replace those of another.
            san: the bytes of the SAN instead of `names`, for what no sound authority writes; see `general_names`.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key.public_key(), lifetime)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(text) for text in names]), False)
        if san is not None:
            builder = builder.add_extension(
                x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, san), False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        paths = Pem(self._directory / f"{under or name}.crt", self._directory / f"{under or name}.key", self.path)
        self._write(
            paths.key,
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )
        self._write(paths.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return paths

    def _builder(self, subject: x509.Name, key: object, lifetime: datetime.timedelta) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + lifetime)
        )

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        scratch = path.with_suffix(".new")
        scratch.write_bytes(data)
        os.replace(scratch, path)


def _general(text: str) -> x509.GeneralName:
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def general_names(*names: tuple[int, bytes]) -> bytes:
    """The bytes of a SAN with names of these tags, below 128 bytes together; nothing is checked."""
    inner = b"".join(bytes([tag, len(name)]) + name for tag, name in names)
    return bytes([0x30, len(inner)]) + inner
