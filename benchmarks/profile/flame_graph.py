"""Flame graphs as py-spy draws them: recorded, rid of what names a machine, and read again for their costs.

A frame of such an SVG, whose root is at the top:

    <g><title>NAME (N samples, P%)</title><rect x=".." y=".." .. fg:x="X" fg:w="W"/><text ..>..</text></g>

X is where its samples begin, W their number, y its depth. Frames of processes are named `process PID:"COMMAND"`.
"""

import functools
import pathlib
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape

from benchmarks import processes
from benchmarks.profile.hot_paths import ToolMissingError
from deploy.modules import FOLLOWERS

RATE = 100  # samples a second; each stops a process for a moment
SPY_SECONDS_EXTRA = 120.0
SVG_BYTES_MAX = 300 << 10  # a page shows it at once, and a repository keeps one for each path
PARTS_MIN = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
)  # a frame with fewer of the samples is left out; the next, if it is too large
CHARACTER_PERCENT = 0.62  # of the graph's width; text of 12 px in 1200 px

_FRAME = re.compile(
    r"<g[^>]*>\s*<title>(?P<title>.*?)</title>\s*(?P<rect><rect [^>]*/>)\s*(?P<text><text.*?</text>)\s*</g>", re.S
)
_COUNTS = re.compile(r"^(?P<name>.*) \((?P<counts>[\d,]+ samples?, [\d.]+%)\)$", re.S)
_PROCESS = re.compile(r"^process \d+:\"(?P<command>.*)\"$", re.S)
_MODULE = re.compile(r"(?:^|\s)-m\s+([\w.]+)")
_BESIDE = re.compile(r"(?:^|\s)-m\s+deploy\.beside\s+(\w+)")  # the service that has others beside it
_DIRECTORY = re.compile(r"(?<![\w.<>-])/(?:[^\s/()\"]+/)+")


@dataclass(frozen=True)
class Frame:
    """One frame.

    Args:
        name: function and place in its file, or the name of a process.
        first: its first sample.
        count: its samples.
        depth: its y in the picture; a caller's is smaller by one line.
        percent: its width.
    """

    name: str
    first: int
    count: int
    depth: float
    percent: float


@dataclass(frozen=True)
class Cost:
    """What a function costs by itself, without what it calls.

    Args:
        service: its process.
        function: with the place in its file.
        part: of all samples.
    """

    service: str
    function: str
    part: float


def record(pid: int, seconds: float, target: pathlib.Path) -> None:
    """Samples a process and all its descendants, and writes the SVG as py-spy draws it.

    Raises:
        ToolMissingError: py-spy is missing.
        RuntimeError: py-spy failed, as where it may not trace processes.
    """
    found = shutil.which("py-spy", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise ToolMissingError("py-spy is not installed: make setup")
    command = [found, "record", "--pid", str(pid), "--subprocesses", "--function", "--rate", str(RATE)]
    command += ["--duration", str(max(1, round(seconds))), "--format", "flamegraph", "--output", str(target)]
    processes.run(command, seconds + SPY_SECONDS_EXTRA)


def cleaned(svg: str, title: str) -> str:
    """The SVG with another title, with services instead of commands and pids, without directories, and not too large.

    Raises:
        ValueError: it has no frames, or stays too large.
    """
    svg = re.sub(
        r'(<text id="title"[^>]*>).*?(</text>)', lambda m: m[1] + escape(title) + m[2], svg, count=1, flags=re.S
    )
    for part_min in PARTS_MIN:
        result = _FRAME.sub(functools.partial(_cleaned_frame, part_min), svg)
        if len(result.encode()) <= SVG_BYTES_MAX:
            if not frames(result):
                raise ValueError("the SVG has no frames: has py-spy another form?")
            return re.sub(r"\n\s*\n+", "\n", result)
    raise ValueError(f"the SVG has more than {SVG_BYTES_MAX} bytes: record for a shorter time")


def _cleaned_frame(part_min: float, found: re.Match[str]) -> str:
    title = unescape(found["title"])
    counts = _COUNTS.match(title)
    frame = _frame(found)
    if counts is None or frame is None or frame.percent < part_min * 100:
        return ""
    name = frame.name
    length = int(frame.percent / CHARACTER_PERCENT)
    shown = "" if length < 3 else name if len(name) <= length else f"{name[: length - 2]}.."
    text = re.sub(r">.*<", lambda _: f">{escape(shown)}<", found["text"], count=1, flags=re.S)
    return f"<g><title>{escape(name)} ({counts['counts']})</title>{found['rect']}{text}</g>"


def _frame(found: re.Match[str]) -> Frame | None:
    counts = _COUNTS.match(unescape(found["title"]))
    values = dict(re.findall(r'([\w:]+)="([^"]*)"', found["rect"]))
    if counts is None:
        return None
    return Frame(
        _name(counts["name"]), int(values["fg:x"]), int(values["fg:w"]), float(values["y"]),
        float(values["width"].rstrip("%")),
    )  # fmt: skip


def _name(name: str) -> str:
    process = _PROCESS.match(name)
    if process is None:
        return _DIRECTORY.sub("", name)
    if beside := _BESIDE.search(process["command"]):
        return "followers" if beside[1] in FOLLOWERS else beside[1]
    module = _MODULE.search(process["command"])
    return module[1] if module else pathlib.PurePath(process["command"].split()[0]).name


def frames(svg: str) -> list[Frame]:
    """The frames of an SVG, in its order."""
    found = (_frame(one) for one in _FRAME.finditer(svg))
    return [frame for frame in found if frame is not None]


def costs(all_frames: Sequence[Frame], services: Sequence[str]) -> list[Cost]:
    """What the functions cost by themselves, the dearest first.

    Args:
        all_frames: of one graph.
        services: names of frames that are services; the nearest below a function is its service.
    """
    lines = sorted({frame.depth for frame in all_frames})
    level = {depth: place for place, depth in enumerate(lines)}  # 0: the root, at the top
    by_level: dict[int, list[Frame]] = defaultdict(list)
    for frame in all_frames:
        by_level[level[frame.depth]].append(frame)
    total = sum(frame.count for frame in by_level[0])
    spent: dict[tuple[str, str], int] = defaultdict(int)

    def visit(frame: Frame, place: int, service: str) -> None:
        service = frame.name if frame.name in services else service
        inside = [
            one
            for one in by_level[place + 1]
            if frame.first <= one.first and one.first + one.count <= frame.first + frame.count
        ]
        own = frame.count - sum(one.count for one in inside)
        if frame.name != service and place:
            spent[service, frame.name] += own
        for one in inside:
            visit(one, place + 1, service)

    for root in by_level[0]:
        visit(root, 0, "")
    ordered = sorted(spent.items(), key=lambda item: (-item[1], item[0]))
    return [Cost(service, function, count / total) for (service, function), count in ordered]
