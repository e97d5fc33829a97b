"""The permissions of new files and directories: what the umask of the process leaves.

    setting `umask`     new files   new directories
    empty               0640        0750              or tighter: bits of the inherited umask stay set
    077                 0600        0700
    007                 0660        0770

All that a process makes follows this one rule: store files, locks, state, reports. Existing files keep their permissions.
Messages are private, so by default only the user has access, and its group for reading.
"""

import os
import re

from store.errors import InvalidSettingError

# The group does not write, others do nothing.
UMASK_LEAST = 0o027
UMASK_PATTERN = r"^(0?[0-7]{3})?$"


def set_umask(text: str) -> int:
    """Sets the umask of this process and returns the previous one; to be called before other threads make files.

    Args:
        text: three octal digits, with or without a 0 before them; empty: the inherited umask and UMASK_LEAST.

    Raises:
        InvalidSettingError: the text is not a umask.
    """
    if not re.fullmatch(UMASK_PATTERN, text):
        raise InvalidSettingError(
            f"umask = {text!r} is not a umask: give three octal digits such as 027, or nothing", name="umask"
        )
    previous = os.umask(UMASK_LEAST)
    os.umask(int(text, 8) if text else previous | UMASK_LEAST)
    return previous
