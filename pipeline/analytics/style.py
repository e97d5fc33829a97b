"""The style sheet of the analytics page: light and dark by the reader's setting, printable, without external resources."""

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
