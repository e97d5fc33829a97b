"""The paths of TLS files, for settings, which do not import gRPC."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths.

    Attributes:
        certificate: PEM chain, the own certificate first.
        key: PEM, its private key.
        ca: PEM, the authorities whose certificates are accepted from the other side; None: none is asked for.
    """

    certificate: Path
    key: Path
    ca: Path | None = None
