"""How gateways are reached: TLS and credentials, by the paths of files or by the environment.

Spark prints options in plans and keeps them in its event log. So no option takes a key or a token: `tokenFile` names a file
with an API key or a JWT, and `REPUT_API_KEY` may stand in the environment. Files and environment are read where a connection
is opened, on the driver and on each executor; nothing secret is pickled.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pipeline.scan.options import OptionError
from reput_client.security import ClientSecurity

SECURITY_OPTIONS = ("tls", "tlsCaFile", "tlsCertificateFile", "tlsKeyFile", "tokenFile")
_BY_VALUE = ("apikey", "token", "password", "secret")

Calls = TypeVar("Calls")


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """The options; empty: what the environment says.

    Attributes:
        tls: TLS also without the options below, with a certificate of a public authority.
        ca_file: PEM file, the authority of the gateway's certificate (`REPUT_CLIENT_CA`).
        certificate_file: PEM file, the client's certificate chain (`REPUT_CLIENT_CERTIFICATE`).
        key_file: PEM file, its private key (`REPUT_CLIENT_KEY`).
        token_file: file with an API key or a JWT (`REPUT_TOKEN_FILE`, or `REPUT_API_KEY` with the key itself).
    """

    tls: bool = False
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    token_file: str = ""

    def security(self, environ: Mapping[str, str] = os.environ) -> ClientSecurity | None:
        """What a client of this process uses; None when neither the options nor the environment ask for anything.

        Raises:
            OptionError: they do not fit together.
        """
        given = dict(environ)
        if self.ca_file:
            given["REPUT_CLIENT_CA"] = self.ca_file
        if self.certificate_file or self.key_file:
            given |= {"REPUT_CLIENT_CERTIFICATE": self.certificate_file, "REPUT_CLIENT_KEY": self.key_file}
        if self.token_file:
            given |= {"REPUT_TOKEN_FILE": self.token_file, "REPUT_API_KEY": ""}
        try:
            found = ClientSecurity.from_environment(given)
        except ValueError as error:
            raise OptionError(f"TLS and credentials: {error}.") from error
        if self.tls and not found.uses_tls:
            found = dataclasses.replace(found, tls=True)
        return None if found == ClientSecurity() else found


NO_SECURITY = SecurityOptions()


def security_options(given: Mapping[str, str]) -> SecurityOptions:
    """The options under their canonical spelling, checked; OptionError names the wrong one."""
    files = {name: given.get(name, "").strip() for name in SECURITY_OPTIONS if name != "tls"}
    if bool(files["tlsCertificateFile"]) != bool(files["tlsKeyFile"]):
        raise OptionError("Only one of the options tlsCertificateFile and tlsKeyFile is given: give both or none.")
    tls = given.get("tls", "false").strip().lower()
    if tls not in ("true", "false"):
        raise OptionError(f"Option tls is {given['tls']!r}: give true or false.")
    if tls == "false" and "tls" in given and (files["tlsCaFile"] or files["tlsCertificateFile"]):
        raise OptionError("Option tls is false, but certificates are given: leave out one of them.")
    return SecurityOptions(
        tls == "true", files["tlsCaFile"], files["tlsCertificateFile"], files["tlsKeyFile"], files["tokenFile"]
    )


def refuse_secrets(names: Iterable[str]) -> None:
    """OptionError for an option that would hold a secret; its value is not repeated."""
    for name in names:
        if name.lower().replace("_", "").replace("-", "") in _BY_VALUE:
            raise OptionError(
                f"Option {name} would show its value in plans and logs: write it into a file and give option tokenFile, or "
                "set REPUT_API_KEY on the driver and the executors."
            )


def opened(endpoint: str, open_client: Callable[[ClientSecurity | None], Calls], options: SecurityOptions) -> Calls:
    """A client of the gateway, opened with what the options and the environment of this machine say.

    Raises:
        OptionError: a file cannot be read here, or a token would be sent to another machine without TLS.
    """
    try:
        return open_client(options.security())
    except OSError as error:
        raise OptionError(f"TLS and credentials for {endpoint}: {error} on this machine.") from error
    except ValueError as error:
        raise OptionError(f"TLS and credentials for {endpoint}: {error}.") from error
