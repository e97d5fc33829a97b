"""The analytics page: one self-contained HTML file without script, in one language. Pure.

Producers choose topics and keys, so every text passes `text_of`. As a second protection, the page's content security
policy forbids the browser to load or run anything. A phone of 360 px shows it without scrolling sideways: the rows of tables
become blocks there (`STYLE`).

The style sheet of the analytics page: light and dark by the reader's setting, printable, without external resources.
"""

from html import escape

from pipeline.analytics import charts
from pipeline.analytics.charts import Axes, Series, text_of
from pipeline.analytics.digest import OTHERS, Digest, Timeline
from pipeline.analytics.sections import (
    card,
    duplicates_section,
    full_text,
    groups_section,
    growth_section,
    index_section,
    keys_section,
    legend,
    none_found,
    queues_section,
    retries_section,
    section,
    tiles,
    topics_section,
    waits_section,
)
from pipeline.analytics.texts import (
    DURATION_MARKS,
    HTML_LANGUAGES,
    LANGUAGES,
    PAGE_NAMES,
    Texts,
    axis_times,
    bytes_rate_text,
    bytes_text,
    count_text,
    millis_text,
    rate_text,
    seconds_text,
    time_text,
)

STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5d6778;--faint:#8a94a6;--line:#e3e7ee;--page:#f5f7fa;--card:#fff;
--good:#1a7f4b;--good-back:#e4f5ec;--warn:#9a5b00;--warn-back:#fdf1dc;--accent:#3563e9;--ideal:#1c2330;
--c0:#3563e9;--c1:#12a594;--c2:#f0883e;--c3:#a855c7;--c4:#e5484d;--c5:#d9a400;--c6:#5b6b85;--c7:#b4bccb}
@media(prefers-color-scheme:dark){:root{--ink:#e8ecf3;--soft:#a3adbd;--faint:#768194;--line:#2a313d;--page:#0f1319;
--card:#171c25;--good:#4cc38a;--good-back:#12291f;--warn:#f1a94e;--warn-back:#2f2413;--accent:#7ea1ff;--ideal:#f3f5f9;
--c0:#6b91ff;--c1:#2ec4b0;--c2:#ff9d57;--c3:#c583e0;--c4:#ff7176;--c5:#e9c04a;--c6:#8fa0bd;--c7:#566176}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue","Noto Sans","PingFang SC","Microsoft YaHei","Noto Sans CJK SC",
"DejaVu Sans",sans-serif;-webkit-font-smoothing:antialiased}
main{max-width:1120px;margin:0 auto;padding:40px 24px 64px}
h1{font-size:30px;line-height:1.2;letter-spacing:-.02em;margin:0 0 6px}
h2{font-size:20px;letter-spacing:-.01em;margin:0}
h3{font-size:14px;margin:0 0 2px}
p{margin:4px 0 0}
.lead,.hint,caption,th,.note{color:var(--soft)}
.lead{font-size:15px;overflow-wrap:anywhere}
.hint{font-size:13.5px;max-width:86ch}
header{margin-bottom:28px}
section{margin-top:44px}
section>header{margin-bottom:14px}
nav{margin-top:14px;display:flex;flex-wrap:wrap;gap:6px 18px;font-size:14px}
a{color:var(--accent);text-decoration:none}a:hover{text-decoration:underline}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(168px,1fr));gap:12px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:12px}
.tile{padding:14px 16px}
.tile b{display:block;font-size:25px;line-height:1.25;letter-spacing:-.02em;font-variant-numeric:tabular-nums}
.tile span{display:block;font-size:13px;color:var(--soft)}
.tile.good{background:var(--good-back);border-color:transparent}.tile.good b{color:var(--good)}
.tile.warn{background:var(--warn-back);border-color:transparent}.tile.warn b{color:var(--warn)}
.card{padding:16px 18px;margin-top:14px;overflow-x:auto}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(400px,1fr));gap:0 14px}
svg{display:block}
.chart{width:100%;height:auto;margin-top:8px;overflow:visible}
.grid{stroke:var(--line)}
.tick{fill:var(--faint);font-size:12px}
.area{fill:var(--c0);fill-opacity:.82;stroke:var(--card);stroke-width:.6}
.curve{fill:none;stroke:var(--c0);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.dot,.bar{fill:var(--c0)}
.ideal{stroke:var(--ideal);stroke-width:2}
.touch{fill:var(--ink);fill-opacity:0}.touch:hover{fill-opacity:.06}
PALETTE
.spark{width:120px;height:26px}
.spark .area{fill-opacity:.16;stroke:none}.spark .curve{stroke-width:1.4}
.key{display:flex;flex-wrap:wrap;gap:4px 16px;margin:8px 0 0;padding:0;list-style:none;font-size:13px;color:var(--soft)}
.key i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
.key i.line{height:2px;width:14px;vertical-align:4px;background:var(--ideal)}
table{border-collapse:collapse;width:100%;font-size:13.5px}
caption{text-align:left;font-size:13px;padding-bottom:6px}
th{font-weight:500;font-size:12.5px;text-align:left;vertical-align:bottom;padding:4px 10px 6px 0;
border-bottom:1px solid var(--line)}
td{padding:6px 10px 6px 0;border-bottom:1px solid var(--line);vertical-align:middle}
tr:last-child td{border-bottom:0}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.name{font-weight:500;overflow-wrap:anywhere;min-width:120px}
td code{font:12.5px ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
.meter{display:block;width:100%;min-width:64px;height:8px;border-radius:4px;background:var(--line);overflow:hidden}
.meter i{display:block;height:100%;border-radius:4px;background:var(--c0)}
.share{display:flex;align-items:center;gap:8px;white-space:nowrap;font-variant-numeric:tabular-nums}
.share span:last-child{min-width:48px;text-align:right}
.strip{display:flex;flex-wrap:wrap;gap:3px;min-width:160px}
.strip i{width:17px;height:17px;border-radius:4px;background:var(--c0)}
.strip i.off{outline:2px solid var(--warn);outline-offset:-2px}
.none{display:inline-block;margin-top:12px;padding:8px 14px;border-radius:10px;font-size:14px;background:var(--good-back);
color:var(--good)}
.none.plain{background:var(--line);color:var(--soft)}
footer{margin-top:52px;padding-top:16px;border-top:1px solid var(--line);font-size:13.5px;color:var(--soft)}
@media print{body{background:none}.card,.tile{break-inside:avoid}}
@media(max-width:560px){main{padding:24px 12px 40px}.pair{grid-template-columns:minmax(0,1fr)}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr))}.tile{padding:10px 12px}.tile b{font-size:20px;overflow-wrap:anywhere}
.card{padding:12px;overflow-x:visible}
table,tbody,tr,caption{display:block}thead{display:none}
tr{padding:8px 0;border-bottom:1px solid var(--line)}tr:last-child{border-bottom:0}
td,td.n{display:flex;justify-content:space-between;gap:12px;border:0;padding:2px 0;text-align:right;white-space:normal}
td::before{content:attr(data-label);flex:none;max-width:50%;text-align:left;font-weight:400;color:var(--soft)}
td>*{min-width:0;overflow-wrap:anywhere}td:empty{display:none}
td.name{display:block;text-align:left}td.name::before{content:none}
.share{flex:1 1 auto;max-width:60%}td>.meter{max-width:60%;align-self:center}
.strip{max-width:60%;min-width:0;justify-content:flex-end}
.tick{font-size:30px}.tick.more{display:none}
.tick.y{text-anchor:start;transform:translate(-56px,-10px);paint-order:stroke;stroke:var(--card);stroke-width:8px}}
""".replace(
    "PALETTE",
    "\n".join(
        f".area.c{n},.dot.c{n},.bar.c{n}{{fill:var(--c{n})}}.curve.c{n}{{stroke:var(--c{n})}}i.c{n}{{background:var(--c{n})}}"
        for n in range(8)
    ),
).strip()


POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
# Delays that differ by more than this factor are drawn on a logarithmic axis.
UNEVEN_DELAYS = 50


def page(digest: Digest, say: Texts | None = None) -> str:
    """The HTML of the whole page; in English if no texts are given."""
    say = say or Texts()
    body = [_head(digest, say)]
    if not digest.totals["message_count"]:
        body.append(none_found(say("The log has no message."), is_good=False))
    else:
        assert digest.timeline is not None
        body += [
            groups_section(digest, say),
            waits_section(digest, say),
            retries_section(digest, say),
            growth_section(digest, say),
            _traffic(digest.timeline, say),
            _delays(digest.timeline, digest, say),
            topics_section(digest, say),
            queues_section(digest, say),
            keys_section(digest, say),
            duplicates_section(digest, say),
        ]
    body += [index_section(digest, say), _foot(digest, say)]
    title = escape(say("Log analytics"))
    return (
        f'<!doctype html><html lang="{HTML_LANGUAGES[say.language]}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
        f"<title>{title}: {text_of(digest.store)}</title><style>{STYLE}</style></head><body><main>"
        + "\n".join(body)
        + "</main></body></html>\n"
    )


def _head(digest: Digest, say: Texts) -> str:
    totals = digest.totals
    begin, end = totals["first_store_time"], totals["last_store_time"]
    span = (end - begin) / 1000
    when = ""
    if totals["message_count"]:
        values = {"begin": time_text(begin), "end": time_text(end), "span": seconds_text(span)}
        when = say("{begin} to {end} UTC ({span})", **values)
    peak = max(map(sum, zip(*digest.timeline.messages.values(), strict=True)), default=0) if digest.timeline else 0
    queue_count = count_text(digest.row_counts.get("queues", 0))
    missing, spare, behind = totals["missing_count"], totals["spare_copy_count"], totals["lag_count"]
    shown = [
        (count_text(totals["message_count"]), say("messages"), ""),
        (bytes_text(totals["store_size_bytes"]), say("of records"), ""),
        (count_text(digest.row_counts.get("topics", 0)), say("topics, {queues} queues", queues=queue_count), ""),
        (
            rate_text(totals["message_count"] / span) if span > 0 else "–",
            say("on average, {peak} at most", peak=rate_text(peak)),
            "",
        ),
    ]
    if digest.lags:
        shown.append((count_text(behind), say("messages behind, all groups"), "warn" if behind else "good"))
    if digest.growth:
        shown.append((full_text(digest.growth), say("until the disk is full, as it grows now"), ""))
    shown += [
        (count_text(missing), say("queue offsets missing"), "warn" if missing else "good"),
        (count_text(spare), say("messages stored again"), "warn" if spare else "good"),
    ]
    links = {
        "groups": say("Consumers"), "waits": say("Waiting"), "retries": say("Retries"), "growth": say("Growth"),
        "traffic": say("Traffic"), "delay": say("Delay"), "topics": say("Topics"), "queues": say("Queues"),
        "keys": say("Keys"), "duplicates": say("Duplicates"), "index": say("Index"),
    }  # fmt: skip
    if not totals["message_count"]:
        links = {"index": links["index"]}
    nav = "".join(f'<a href="#{anchor}">{escape(name)}</a>' for anchor, name in links.items())
    others = "".join(
        f'<a href="{PAGE_NAMES[other]}" lang="{HTML_LANGUAGES[other]}">{name}</a>'
        for other, name in LANGUAGES.items()
        if other != say.language
    )
    return (
        f'<header><h1>{escape(say("Log analytics"))}</h1><p class="lead">{text_of(digest.store, 200)}<br>{escape(when)}</p>'
        f"<nav>{nav}{others}</nav></header>{tiles(shown)}"
    )


def _traffic(timeline: Timeline, say: Texts) -> str:
    names = {name: say("all others") if name == OTHERS else name for name in timeline.messages}
    names_of_times, titles = axis_times(timeline.begins_millis, timeline.bucket_seconds), timeline.titles()
    parts = []
    for title, values, unit in (
        (say("Messages per second"), timeline.messages, rate_text),
        (say("Bytes per second"), timeline.bytes, bytes_rate_text),
    ):
        bands = [Series(shown, values[name]) for name, shown in names.items()]
        label = say("{title}, by topic, over time", title=title)
        chart = charts.stacked_areas(Axes(label, names_of_times, unit, titles=titles), bands)
        parts.append(card(f"<h3>{escape(title)}</h3>{chart}{legend(list(names.values()))}"))
    step = seconds_text(timeline.bucket_seconds)
    hint = say("By store time, in steps of {step}; topics stacked, the largest at the bottom.", step=step)
    return section("traffic", say("Traffic"), hint, *parts)


def _delays(timeline: Timeline, digest: Digest, say: Texts) -> str:
    series = [
        Series(say("half of the messages (p50)"), timeline.delay_p50),
        Series(say("99 of 100 (p99)"), timeline.delay_p99),
    ]
    values = [value for one in series for value in one.values if value is not None and value > 0]
    marks = DURATION_MARKS if values and max(values) > UNEVEN_DELAYS * min(values) else ()
    names_of_times = axis_times(timeline.begins_millis, timeline.bucket_seconds)
    axes = Axes(say("Delay from birth to store over time"), names_of_times, millis_text, marks, timeline.titles())
    hint = say(
        "From the creation of a message by its producer until the store wrote it; delayed messages wait on purpose."
    )
    early = digest.totals["born_after_store_count"]
    if early:
        hint += " " + say(
            "{count} messages were born after they were stored: their producers' clocks were ahead.",
            count=count_text(early),
        )
    names = [one.name for one in series]
    chart = f"<h3>{escape(say('Delay, all topics'))}</h3>{charts.curves(axes, series)}{legend(names)}"
    return section("delay", say("Delay"), hint, card(chart))


def _foot(digest: Digest, say: Texts) -> str:
    names = sorted(digest.row_counts)
    links = ", ".join(f'<a href="{name}.csv">{name}</a> ({digest.row_counts[name]:,})' for name in names)
    tables = escape(say("All rows are in the tables beside this page, as CSV and as Parquet:"))
    made = escape(say("Made by {command} on {time} UTC.", command="\0", time=time_text(digest.made_at_millis)))
    made = made.replace("\0", "<code>reput pipeline analytics</code>")
    return f"<footer>{tables} {links}.<br>{made}</footer>"
