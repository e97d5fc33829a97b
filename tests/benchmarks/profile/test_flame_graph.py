"""Graphs lose what names a machine; the costs of functions are read from them."""

import pathlib

import pytest

from benchmarks.profile.flame_graph import SVG_BYTES_MAX, Cost, cleaned, costs, frames
from benchmarks.profile.hot_paths import HOT_PATHS
from benchmarks.profile.page import page

PROFILES = pathlib.Path(__file__).parents[3] / "docs" / "profiles"
HEAD = '<svg><text id="title" x="50%">/home/me/py-spy record --pid 7 --output /tmp/x.svg</text>'


def _frame(name: str, first: int, count: int, depth: int, total: int = 1000) -> str:
    part = 100 * count / total
    return (
        f"<g><title>{name} ({count:,} samples, {part:.2f}%)</title>"
        f'<rect x="{100 * first / total:.4f}%" y="{52 + 16 * depth}" width="{part:.4f}%" height="15" '
        f'fill="rgb(1,2,3)" fg:x="{first}" fg:w="{count}"/><text x="1%" y="9">{name[:9]}..</text></g>'
    )


# all 1000 = gateway 600 (f 400 = g 300 + 100 own; g 200) + index_svc 400 (g 400)
GRAPH = HEAD + "".join(
    (
        _frame("all", 0, 1000, 0),
        _frame("process 7:&quot;/home/me/bin/python -m cli.main serve --store /tmp/s&quot;", 0, 1000, 1),
        _frame("process 8:&quot;/home/me/bin/python -P -m gateway&quot;", 0, 600, 2),
        _frame("f (gateway/reput/wire.py:3)", 0, 400, 3),
        _frame("g (/home/me/lib/json/encoder.py:4)", 0, 300, 4),
        _frame("g (/home/me/lib/json/encoder.py:4)", 400, 200, 3),
        _frame("process 9:&quot;/home/me/bin/python -P -m index_svc&quot;", 600, 400, 2),
        _frame("g (/home/me/lib/json/encoder.py:4)", 600, 400, 3),
    )
) + "</svg>"  # fmt: skip
SERVICES = ("cli.main", "gateway", "index_svc")


def test_a_cleaned_graph_names_services_and_no_directory() -> None:
    svg = cleaned(GRAPH, "Pop & ack")
    assert [frame.name for frame in frames(svg)] == [
        "all", "cli.main", "gateway", "f (gateway/reput/wire.py:3)", "g (encoder.py:4)", "g (encoder.py:4)", "index_svc",
        "g (encoder.py:4)",
    ]  # fmt: skip
    assert "Pop &amp; ack" in svg
    for secret in ("/home", "/tmp", "py-spy record", "process 8"):
        assert secret not in svg


def test_the_process_of_all_followers_has_their_name() -> None:
    beside = GRAPH.replace("-m index_svc", "-m deploy.beside consumer consumequeue index schedule")
    assert [frame.name for frame in frames(cleaned(beside, "x"))][-2:] == ["followers", "g (encoder.py:4)"]
    door = GRAPH.replace("-m index_svc", "-m deploy.beside gateway nameserver")
    assert [frame.name for frame in frames(cleaned(door, "x"))][-2:] == ["gateway", "g (encoder.py:4)"]


def test_the_costs_are_the_samples_of_the_functions_themselves() -> None:
    assert costs(frames(cleaned(GRAPH, "x")), SERVICES) == [
        Cost("gateway", "g (encoder.py:4)", 0.5),
        Cost("index_svc", "g (encoder.py:4)", 0.4),
        Cost("gateway", "f (gateway/reput/wire.py:3)", 0.1),
    ]


def test_frames_that_nobody_could_see_are_left_out() -> None:
    svg = GRAPH.replace("</svg>", _frame("tiny (a.py:1)", 0, 1, 5, total=10_000) + "</svg>")
    assert "tiny" in svg
    assert "tiny" not in cleaned(svg, "x")


def test_a_graph_that_is_too_large_loses_its_narrow_frames() -> None:
    many = "".join(_frame(f"narrow{i} (a.py:1)", i, 1, 5) for i in range(2_000))
    wide = cleaned(GRAPH.replace("</svg>", many + "</svg>"), "x")
    assert len(wide.encode()) <= SVG_BYTES_MAX
    assert "narrow" not in wide
    assert "index_svc" in wide


def test_a_picture_without_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="no frames"):
        cleaned("<svg></svg>", "x")


@pytest.mark.parametrize("name", HOT_PATHS)
def test_each_hot_path_has_a_kept_graph_without_paths_of_a_machine(name: str) -> None:
    svg = (PROFILES / f"{name}.svg").read_text(encoding="utf-8")
    assert len(svg.encode()) <= SVG_BYTES_MAX
    for directory in ("/home/", "/root/", "/tmp/", "/work/", "/usr/", "site-packages", ".venv"):
        assert directory not in svg
    found = {frame.name.split(" ")[0].rpartition(".")[2] for frame in frames(svg)}
    assert found >= set(HOT_PATHS[name].handlers)


def test_the_page_of_the_profiles_is_that_of_the_kept_graphs() -> None:
    assert (PROFILES / "README.md").read_text(encoding="utf-8") == page(PROFILES)
