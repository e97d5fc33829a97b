"""Where the files of TLS are: for settings, which know no gRPC."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the files are.

    Attributes:
        certificate: PEM chain, the own certificate first.
        key: PEM, its private key.
        ca: PEM, the authorities whose certificates are taken from the other side; None: no certificate is asked for.
    """

    certificate: Path
    key: Path
    ca: Path | None = None
