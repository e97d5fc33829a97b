"""Every setting of every component, as plain data: its name, default, unit and meaning.

Each component reads only its own settings, but all of them refuse an unknown name, so that a misspelled name in a shared
environment or file is reported. What there is to say of a setting stands once, in the class of its component's `settings.py`;
tools/settings_table.py makes the table of it.

The same setting has these spellings (component `commitlog`, name `file_size_bytes`; shared settings have no component):

    environment   REPUT_COMMITLOG_FILE_SIZE_BYTES       REPUT_STORE
    TOML          [commitlog] file_size_bytes = ...     store = ...  (above the first section)
    flag          --file-size-bytes                     --store
"""

import dataclasses
import difflib
import re

from services.settings.setting_table import ROWS

COMPONENTS = ("commitlog", "consumequeue", "index", "consumer", "schedule", "nameserver", "gateway")
SHARED = ""
PREFIX = "REPUT_"


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        component: the component that has it; empty for shared settings.
        name: lower case, unit last.
        default: as text; empty for "none".
        unit: of the value; empty where the name or a list of values states it.
        help: one line.
        secret: the value is never printed.
    """

    component: str
    name: str
    default: str
    unit: str
    help: str
    secret: bool = False

    @property
    def environment_name(self) -> str:
        """The name of the environment variable."""
        return PREFIX + "_".join(part.upper() for part in (self.component, self.name) if part)

    @property
    def toml_name(self) -> str:
        """The name in a settings file, with its section."""
        return f"[{self.component}] {self.name}" if self.component else self.name


SETTINGS: tuple[Setting, ...] = tuple(Setting(*row) for row in ROWS)
BY_ENVIRONMENT_NAME = {setting.environment_name: setting for setting in SETTINGS}

# Variables of the `reput` command, which no service reads and none refuses.
COMMAND_ENVIRONMENT_NAMES = frozenset(
    {
        "REPUT_ADDRESS",
        "REPUT_API_KEY",
        "REPUT_TOKEN_FILE",
        "REPUT_CLIENT_CA",
        "REPUT_CLIENT_CERTIFICATE",
        "REPUT_CLIENT_KEY",
        "REPUT_CONTEXT",
        "REPUT_CONTEXTS",
        "REPUT_TZ",
    }
)

# What Kubernetes puts into every container for a Service called reput or reput-something.
_KUBERNETES_NAME = re.compile(r"REPUT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_\w+)")
_KUBERNETES_PORT = re.compile(r"REPUT_(\w+_)?PORT")
_KUBERNETES_PORT_VALUE = re.compile(r"(tcp|udp|sctp)://")


def is_from_kubernetes(name: str, value: str) -> bool:
    """Whether Kubernetes made this environment variable for a Service."""
    if _KUBERNETES_NAME.fullmatch(name):
        return True
    return bool(_KUBERNETES_PORT.fullmatch(name) and _KUBERNETES_PORT_VALUE.match(value))


def suggestion(name: str, possible: list[str]) -> str:
    """` Did you mean ...?` with the nearest of the possible names, or nothing when none is near."""
    near = difflib.get_close_matches(name, possible, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else ""
