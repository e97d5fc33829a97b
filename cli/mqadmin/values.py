"""Values of mqadmin's flags, which several verbs share."""

from cli.exits import usage_error, warn


def truth_of(text: str, flag: str) -> bool | None:
    """`true` or `false`, in any case; None when nothing is given. Java takes any other text for false: here it is refused.

    Raises:
        CliError: it is neither.
    """
    if not text:
        return None
    if text.lower() not in ("true", "false"):
        usage_error(f"{flag} {text!r} is neither true nor false")
    return text.lower() == "true"


def shard_of(text: str, address: str, timeout: float) -> str:
    """The shard that `-b` names; mqadmin names a broker by its address, which fits where there is only one shard.

    Raises:
        CliError: it is an address, and there are several shards.
    """
    from cli.client import query_client

    if ":" not in text:
        return text
    with query_client(address, timeout) as client:
        names = sorted({each.broker_name for each in client.installation().services if each.broker_name})
    if len(names) > 1:
        usage_error(f"-b {text} is an address, and shards go by their names here", f"Shards: {', '.join(names)}.")
    warn(f"-b {text} is an address: taken for the only shard, {names[0] if names else ''}")
    return names[0] if names else ""
