"""`reput hand-back`: what a broker of RocketMQ needs of a stopped store and Reput does not, files of light queues (LMQ)."""

import pathlib
from typing import Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, usage_error
from cli.options import OutputFormat
from cli.printing import progress_bar

Store = Annotated[pathlib.Path, typer.Argument(help="The store root.", show_default=False)]


def hand_back(*, store: Store, output: options.Output = OutputFormat.TABLE) -> int:
    """Write consumequeue/%LMQ%... of a stopped store: a broker of RocketMQ with enableLmq goes on with its light queues.

    Everything else of a store is a broker's at any time. A store without light queues and lite topics does not need it.
    """
    from cli import printing
    from store.errors import StoreError, StoreLockedError, UnsupportedStoreError

    root = pathlib.Path(store)
    if not root.is_dir():
        usage_error(f"{root} is no directory", "Name the root of a store: the directory with commitlog/ in it.")
    try:
        with progress_bar("queues") as (on_progress, _):
            written, kept_in = _write(root, on_progress)
    except (StoreLockedError, UnsupportedStoreError) as error:
        raise CliError(Exit.USAGE, error.reason(), error.message) from error
    except (StoreError, OSError) as error:
        message = error.message if isinstance(error, StoreError) else str(error)
        raise CliError(
            Exit.UNAVAILABLE, "NOT_HANDED_BACK", message, "Run it again: it goes on where it ended."
        ) from error
    if output is not OutputFormat.TABLE:
        printing.print_json(
            {
                "queues_written": written.queue_count,
                "units_written": written.unit_count,
                "queues_aside": written.aside_count,
                "kept_in": kept_in,
            }
        )
        return Exit.FOUND
    print(f"{written.unit_count} units written for {written.queue_count} light queues")
    if kept_in is not None:
        print(f"files of {written.aside_count} queues that said something else are kept in {kept_in}")
    return Exit.FOUND


def _write(root: pathlib.Path, on_progress: Any) -> tuple[Any, str | None]:
    from cli.fsck import refuse_no_store
    from cli.repair import locked_root
    from consumequeue_svc.light_files import LightFiles
    from consumequeue_svc.light_queues import UP_TO_DATE, LightQueues
    from store.errors import UnsupportedStoreError
    from store.files.aside import Aside
    from store.files.file_system import RealFileSystem
    from store.files.json_state import read_json_state
    from store.files.locks import has_abort_marker
    from store.files.open_files import OpenFiles
    from store.format.paths import own_state_dir

    fs = RealFileSystem()
    refuse_no_store(fs, root, writes=True)
    with locked_root(root):
        own = pathlib.Path(own_state_dir(str(root), "consumequeue"))
        log = read_json_state(fs, pathlib.Path(own_state_dir(str(root), "commitlog")) / "snapshot.json") or {}
        queues = read_json_state(fs, own / "checkpoint.json") or {}
        light = LightQueues(OpenFiles(fs), own / "light", count_max=1 << 62)
        is_built = queues.get("clean") is True and queues.get("next_offset") == log.get("commit_log_offset", -1)
        is_built = is_built and light.resume(queues.get("light") or {}) and light.next_offset == UP_TO_DATE
        if has_abort_marker(fs, root) or not is_built:
            raise UnsupportedStoreError(
                f"the light queues of {root} are not built up to the end of the log: start `reput serve` on it, stop it with "
                "SIGTERM, and run this again"
            )
        aside = Aside(fs, root)
        first_offset = min((int(name) for name in fs.listdir(root / "commitlog") if name.isdecimal()), default=0)
        written = LightFiles(fs, root, int(queues["file_size_bytes"]), aside, first_offset).write(light, on_progress)
        return written, str(aside.directory.relative_to(root)) if aside.is_used else None
