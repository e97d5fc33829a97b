"""The option of jobs that read a log: the store's own list of delay levels."""

from typing import Annotated

import typer

from cli.exits import usage_error
from store.errors import InvalidArgumentError
from store.format.delivery.delay_levels import DELAY_LEVELS_DEFAULT, parse_delay_levels, use_delay_levels

DelayLevels = Annotated[
    str,
    typer.Option(
        "--delay-levels", envvar="REPUT_DELAY_LEVELS", help="The store's list of delay levels, if it has its own."
    ),
]


def use_list(delay_levels: str) -> None:
    """Have this process, and the tasks that it makes, use a list; a usage error when it is none."""
    try:
        use_delay_levels(parse_delay_levels(delay_levels))
    except InvalidArgumentError as error:
        usage_error(f"--delay-levels: {error.message}", f"RocketMQ's own list is {DELAY_LEVELS_DEFAULT!r}.")
