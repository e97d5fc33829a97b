"""Records flame graphs of the hot paths.

    python -m benchmarks.profile [--paths append_stream,ack] [--seconds 20] [--directory docs/profiles]

Exit codes: 0; 1 when a path failed (the others are written); 2 for wrong arguments.
"""

import argparse
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence

from benchmarks.profile.flame_graph import cleaned, frames, record
from benchmarks.profile.hot_paths import HOT_PATHS, HotPath, ToolMissingError
from benchmarks.profile.page import page

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 20.0
WARM_PART = 0.4  # of the recorded time; by then kernels are loaded and caches are full
FILL_PART = 0.25  # messages to read, appended before


def main(arguments: Sequence[str] | None = None) -> int:
    """Records the chosen paths; returns the exit code."""
    options = _options(arguments)
    options.directory.mkdir(parents=True, exist_ok=True)
    failed = False
    for path in options.paths:
        print(f"{path.name}: {path.load}", flush=True)
        try:
            svg = _recorded(path, options.seconds)
        except ToolMissingError as error:
            print(f"{path.name} is left out: {error}", file=sys.stderr)
        except Exception as error:  # the other paths are still recorded
            failed = True
            print(f"{path.name}: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            (options.directory / f"{path.name}.svg").write_text(svg, encoding="utf-8")
            (options.directory / "README.md").write_text(page(options.directory), encoding="utf-8")
    return int(failed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", type=_paths, default=tuple(HOT_PATHS.values()), help=", ".join(HOT_PATHS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="recorded time of each path")
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "docs" / "profiles")
    options = parser.parse_args(arguments)
    if options.seconds < 1:
        parser.error("--seconds: at least 1")
    return options


def _paths(text: str) -> tuple[HotPath, ...]:
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in HOT_PATHS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no path {unknown[0]}; paths are {', '.join(HOT_PATHS)}")
    return tuple(HOT_PATHS[name] for name in names)


def _recorded(path: HotPath, seconds: float) -> str:
    """The graph of a path."""
    with tempfile.TemporaryDirectory(prefix="reput-profile-") as scratch:
        directory = pathlib.Path(scratch)
        raw = directory / "raw.svg"
        with path.under_load(directory, max(1.0, seconds * FILL_PART)) as scene:
            time.sleep(seconds * WARM_PART)  # the warm-up
            scene.check()
            record(scene.pid, seconds, raw)
            scene.check()
        svg = cleaned(raw.read_text(encoding="utf-8"), path.title)
    names = {frame.name.split(" ")[0].rpartition(".")[2] for frame in frames(svg)}
    missing = [handler for handler in path.handlers if handler not in names]
    if missing:
        raise RuntimeError(f"{missing[0]} is not in the graph: was there any load?")
    return svg


if __name__ == "__main__":
    sys.exit(main())
