"""The page: whole, alone, and harmless whatever topics and keys say."""

import ast
import html
import html.parser
import re
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline
from pipeline.analytics import charts
from pipeline.analytics.charts import Axes, Series
from pipeline.analytics.digest import OTHERS, Digest, GroupLag, bucket_seconds_for, timeline_of
from pipeline.analytics.out import spreadsheet_safe
from pipeline.analytics.page import page
from pipeline.analytics.sections import by_chance, chain_bars
from pipeline.analytics.texts import Texts, bytes_text, count_text, millis_text, time_text
from pipeline.analytics.texts_zh import CHINESE

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><svg onload=alert(1)>",
    "&lt;b&gt;",
    "txt\u202egnp.exe",
    "line\nfeed\x00\x1b[31m",
    "日志" * 60,
]
VOID = {"meta", "br", "img", "input", "link", "hr"}


class Checker(html.parser.HTMLParser):
    """Tags in balance, nothing that runs or loads; what texts a person sees."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name != "src"
            if name == "href":
                assert value is not None
                assert re.fullmatch(r"#[a-z]+|[a-z_]+\.csv|report(\.zh)?\.html", value), value
            if name in {"title", "aria-label"}:
                self.texts.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _check(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert not checker.open
    assert checker.tags.isdisjoint({"script", "img", "link", "iframe", "object", "embed", "foreignobject"})
    assert "url(" not in text
    assert "@import" not in text
    assert re.findall(r"https?://", text) == []
    return checker


def _digest(topics: list[str]) -> Digest:
    """Something in every section."""
    digest = Digest("/data/<store>", 1_700_000_000_000, defaultdict(int))
    digest.totals |= {
        "message_count": 100, "store_size_bytes": 5000, "first_store_time": 1_700_000_000_000,
        "last_store_time": 1_700_000_009_000, "missing_count": 3, "born_after_store_count": 1,
    }  # fmt: skip
    rows = []
    for number, topic in enumerate(topics):
        counts = {"message_count": 100 - number, "gap_count": 1, "missing_count": 3, "repeated_count": 0}
        digest.topics.append(
            {
                "topic": topic, "message_count": 100 - number, "store_size_bytes": 50, "messages_per_second": None,
                "size_p50_bytes": 5, "size_max_bytes": 9, "delay_p50_millis": 1, "delay_p99_millis": -5,
                "key_use_count": 10, "distinct_key_count": 2, "used_once_count": 1, "uses_per_key_p99": 9,
                "top_key_use_count": 9, "top_key_share": 0.9,
            }
        )  # fmt: skip
        queue = {"topic": topic, "queue_id": 0, "first_queue_offset": 0, "last_queue_offset": 102, **counts}
        digest.queues[topic] = [queue]
        digest.hot_keys[topic] = [{"topic": topic, "rank": 1, "key": topic, "use_count": 9, "share": 0.9}]
        digest.gaps.append({"topic": topic, "queue_id": 0, "first_missing_queue_offset": 5, "missing_count": 3})
        digest.duplicates.append(
            {
                "topic": topic, "unique_key": topic, "copy_count": 2, "first_commit_log_offset": 1,
                "last_commit_log_offset": 2, "first_store_time": 1, "last_store_time": 2,
            }
        )  # fmt: skip
        rows += [_timeline_row(topic, begin, 5) for begin in (1_700_000_000_000, 1_700_000_009_000)]
    rows += [_timeline_row(None, begin, 50) for begin in (1_700_000_000_000, 1_700_000_009_000)]
    digest.timeline = timeline_of(pa.Table.from_pylist(rows), topics, 1)
    digest.index_files = [
        {
            "file": topics[0], "begin_time": 1, "end_time": 1 << 62, "entry_count": 3, "entry_capacity": 9,
            "slot_count": 5, "load_factor": 0.6, "chain_p50_count": 1, "chain_p99_count": 2, "chain_max_count": 2,
            "walked_per_lookup_count": 1.5,
        }
    ]  # fmt: skip
    for number, topic in enumerate(topics):
        lag = GroupLag(
            topic,
            topic,
            2,
            [None, 7.0 - number],
            [None, 5.0 if number else None],
            [1_700_000_000_000, 1_700_000_009_000],
        )
        digest.lags.append(lag)
        waits = {
            f"{kind}_to_consumed_{name}_millis": 5 for kind in ("born", "stored") for name in ("p50", "p99", "max")
        }
        digest.waits.append({"consumer_group": topic, "topic": topic, "consumed_count": 3, **waits})
        digest.retries.append(
            {
                "consumer_group": topic, "source_topic": topic, "kind": ("retry", "dead letter")[number % 2],
                "cause": ("sent back", "not acknowledged")[number % 2], "copy_count": 2, "message_count": 1,
                "attempts_max": 3, "last_store_time": 1_700_000_000_000,
            }
        )  # fmt: skip
    digest.growth = [
        {
            "window": window, "window_seconds": seconds, "message_count": 5, "log_bytes": 500, "derived_bytes": 50,
            "bytes_per_second": 5.5, "disk_free_bytes": 1000, "disk_size_bytes": 9000,
            "full_after_seconds": None if window == "hour" else 77.0, "fits_seconds": None if window == "hour" else 99.0,
        }
        for window, seconds in (("hour", 3600.0), ("day", 86_400.0), ("week", 604_800.0), ("log", 1e6))
    ]  # fmt: skip
    digest.chains = [{"file": topics[0], "chain_length": 1, "slot_count": 1}]
    digest.row_counts = {"topics": len(topics), "queues": len(topics), "gaps": 1, "duplicates": 1}
    return digest


def _timeline_row(topic: str | None, begin: int, count: int) -> dict[str, object]:
    return {
        "topic": topic, "begin": begin, "message_count": count, "store_size_bytes": 100 * count,
        "delay_p50_millis": 5, "delay_p99_millis": 5000,
    }  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh"])
def test_hostile_names_are_shown_and_never_run(language: str) -> None:
    text = page(_digest(HOSTILE), Texts(language))
    text.encode("utf-8")
    shown = "\n".join(_check(text).texts)
    for name in ("<script>alert(1)</script>", "' onmouseover='alert(1)", "&lt;b&gt;", "txt\\u202egnp.exe", "\\u000a"):
        assert name in shown
    assert "\u202e" not in text
    assert "\x1b" not in text


@settings(max_examples=20, deadline=None)  # each is a whole page
@given(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=12, unique=True))
def test_any_name_leaves_the_page_whole(names: list[str]) -> None:
    _check(page(_digest(names)))


def test_every_text_of_the_page_has_a_translation_with_the_same_values() -> None:
    said = set()
    for path in (Path(pipeline.__file__).parent / "analytics").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say":
                assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}: a text that a program can find"
                said.add(node.args[0].value)
    assert said == CHINESE.keys()
    for english, chinese in CHINESE.items():
        assert sorted(re.findall(r"{\w+}", english)) == sorted(re.findall(r"{\w+}", chinese))
        assert english.startswith("#") == chinese.startswith("#")


def test_the_chinese_page_says_its_language_and_leads_to_the_other() -> None:
    text = page(_digest([f"t{number}" for number in range(9)]), Texts("zh"))
    assert '<html lang="zh-CN">' in text
    assert 'href="report.html" lang="en">English</a>' in text
    assert 'href="report.zh.html" lang="zh-CN">中文</a>' in page(_digest(["a"]))
    shown = re.findall(r">([^<>]+)<", text.split("</style>")[1].split("<footer>")[0])
    words = {word for part in shown for word in re.findall(r"[A-Za-z]{4,}", html.unescape(part))}
    assert words == {
        "English",
        "KEYS",
        "data",
        "store",
    }  # the name of the language, RocketMQ's name, the path of the store


def test_the_page_forbids_its_browser_to_load_or_run_anything() -> None:
    assert "Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline';" in page(_digest(["a"]))


def test_an_empty_log_has_a_page() -> None:
    shown = _check(page(Digest("store", 0))).texts
    assert "The log has no message." in shown
    assert "The store has no index file with entries." in shown


def test_the_timeline_has_every_bucket_and_all_messages() -> None:
    topics = [f"t{number}" for number in range(9)]
    rows = [_timeline_row(topic, begin, 20) for topic in topics for begin in (60_000, 240_000)]
    rows += [_timeline_row(None, begin, 180) for begin in (60_000, 240_000)]
    timeline = timeline_of(pa.Table.from_pylist(rows), topics, 60)
    assert timeline.begins_millis == [60_000, 120_000, 180_000, 240_000]
    assert list(timeline.messages) == [*topics[:7], OTHERS]
    assert timeline.messages["t0"] == pytest.approx([20 / 60, 0, 0, 20 / 60])
    assert timeline.messages[OTHERS] == pytest.approx([40 / 60, 0, 0, 40 / 60])
    assert timeline.delay_p50 == [5, None, None, 5]


@given(st.integers(0, 1 << 62))
def test_a_span_has_a_readable_number_of_buckets(span_millis: int) -> None:
    assert span_millis / 1000 / bucket_seconds_for(span_millis) <= 120


def test_bars_by_chance_are_those_of_random_hashes() -> None:
    assert sum(by_chance(5000, 1000, length) for length in range(60)) == pytest.approx(1000)
    assert sum(length * by_chance(5000, 1000, length) for length in range(60)) == pytest.approx(5000)
    digest = Digest("store", 0, index_files=[{"entry_count": 2000, "slot_count": 100}])
    digest.chains = [{"chain_length": 40, "slot_count": 3}, {"chain_length": 1, "slot_count": 2}]
    names, slots, ideal = chain_bars(digest)
    assert (names[0], names[-1], len(names)) == ("1", "24+", 24)
    assert (slots[0], slots[-1], sum(slots)) == (2, 3, 5)
    assert sum(ideal) == pytest.approx(100, rel=1e-3)


def test_marks_lie_where_their_values_are() -> None:
    axes = Axes("x", ["a", "b"], count_text)
    (points,) = re.findall(
        r'polygon class="area c0" points="([^"]*)"', charts.stacked_areas(axes, [Series("s", [0, 1])])
    )
    (_, y0), (_, y1), *_ = [tuple(map(float, point.split(","))) for point in points.split()]
    assert y0 == charts.HEIGHT - charts.BOTTOM
    assert y1 == charts.TOP
    text = charts.curves(Axes("x", ["a", "b", "c"], millis_text, (1, 10, 100)), [Series("s", [1, None, 100])])
    places = re.findall(r'circle class="dot c0" cx="[\d.]+" cy="([\d.]+)"', text)
    assert list(map(float, places)) == [charts.HEIGHT - charts.BOTTOM, charts.TOP]


def test_no_text_of_a_spreadsheet_is_a_formula() -> None:
    texts = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "a=b", None, ""]
    rows = pa.table({"key": pa.array(texts), "count": pa.array(range(len(texts)))})
    safe = spreadsheet_safe(rows).column("key").to_pylist()
    assert safe == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "a=b", None, ""]


def test_figures_are_shown_with_few_digits_and_a_unit() -> None:
    assert [count_text(value) for value in (0, 7, 1234, 56_700, 8_900_000, 0.25)] == [
        "0", "7", "1,234", "56.7k", "8.9M", "0.25",
    ]  # fmt: skip
    assert [bytes_text(value) for value in (0, 999, 1500, 20e6)] == ["0 B", "999 B", "1.5 kB", "20 MB"]
    assert [millis_text(value) for value in (5, 1200, 180_000, 16_200_000, -5)] == [
        "5 ms", "1.2 s", "3 min", "4.5 h", "−5 ms",
    ]  # fmt: skip
    assert time_text(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert time_text(1 << 62) == f"{1 << 62:,} ms"
