"""How the page of a plan looks. Light and dark follow the reader's system; nothing is fetched from anywhere."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--ground:#f4f6f8;--card:#fff;--ink:#17202a;--soft:#5a6673;--line:#e2e6eb;--faint:#f0f2f5;
--us:#2f7fd8;--eu:#d97706;--uk:#22915c;--other:#8a5ad6;--warn:#d43c44;--good:#22915c;--accent:#2f7fd8;--hatch:#00000012}
@media(prefers-color-scheme:dark){:root{--ground:#0e1217;--card:#161c23;--ink:#e7ebf0;--soft:#9aa6b3;--line:#29313b;
--faint:#1d242d;--us:#58a6ff;--eu:#f0973a;--uk:#3fbf83;--other:#b48cf2;--warn:#ff6b70;--good:#3fbf83;--accent:#58a6ff;
--hatch:#ffffff14}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 Inter,system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}
main{max-width:1480px;margin:0 auto;padding:28px 24px 64px}
h1{font-size:28px;line-height:1.2;margin:0;letter-spacing:-.02em}
h2{font-size:18px;margin:0 0 4px;letter-spacing:-.01em}
h2 a{color:inherit;text-decoration:none}
a{color:var(--accent)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
p{margin:0 0 8px}.soft{color:var(--soft)}.small{font-size:13px}
header{display:flex;flex-wrap:wrap;gap:10px 20px;align-items:flex-end;justify-content:space-between;margin-bottom:20px}
.badge{display:inline-block;background:var(--accent);color:#fff;border-radius:999px;padding:2px 12px;font-size:15px;
font-weight:600;vertical-align:5px;margin-left:8px;letter-spacing:0}
@media(prefers-color-scheme:dark){.badge{color:#08111c}}
nav{display:flex;flex-wrap:wrap;gap:8px}
nav a{border:1px solid var(--line);background:var(--card);border-radius:8px;padding:5px 12px;text-decoration:none;
font-size:14px;color:var(--ink)}nav a:hover{border-color:var(--accent)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:14px;margin-bottom:18px}
.tile,section{background:var(--card);border:1px solid var(--line);border-radius:14px}
.tile{padding:14px 18px}
.tile b{display:block;font-size:25px;line-height:1.25;letter-spacing:-.02em;font-variant-numeric:tabular-nums}
.tile b small{font-size:15px;font-weight:500;color:var(--soft);letter-spacing:0}
.tile span{font-size:13px;color:var(--soft)}
.meter{height:6px;border-radius:3px;background:var(--faint);margin:8px 0 4px;overflow:hidden}
.meter i{display:block;height:100%;border-radius:3px;background:var(--accent)}.meter i.full{background:var(--eu)}
.meter i.over{background:var(--warn)}
section{padding:18px 20px;margin-bottom:18px}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch}
.chart svg{display:block;width:100%;min-width:760px;height:auto}.chart.slim svg{min-width:0;max-width:640px}
.chart [fill="#7c8794"]{fill:var(--soft)}.chart [stroke="#7c8794"]{stroke:var(--soft)}
.chart [fill="#3b8eea"]{fill:var(--us)}.chart [fill="#e8871e"]{fill:var(--eu)}
.chart [fill="#2fa36b"]{fill:var(--uk)}.chart [fill="#9a6ae0"]{fill:var(--other)}
.chart [stroke="#3b8eea"]{stroke:var(--us)}.chart [stroke="#e8871e"]{stroke:var(--eu)}
.chart [stroke="#2fa36b"]{stroke:var(--uk)}.chart [stroke="#9a6ae0"]{stroke:var(--other)}
.two{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:24px;align-items:start}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
.list th,.list td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}
.list th{font-size:12.5px;color:var(--soft);font-weight:500}
.list .n{text-align:right}.list tr:last-child td{border-bottom:0}
.list td.wide{white-space:normal;min-width:220px}
.dot{display:inline-block;width:9px;height:9px;border-radius:3px;margin-right:7px}
.us{--c:var(--us)}.eu{--c:var(--eu)}.uk{--c:var(--uk)}.other{--c:var(--other)}
.dot,.key{background:var(--c)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);margin:6px 0 10px}
.legend span{display:inline-flex;align-items:center;gap:7px}
.key{width:22px;height:12px;border-radius:3px;display:inline-block}
.key.pale{background:color-mix(in srgb,var(--us) 38%,var(--card))}
.key.shut{background:repeating-linear-gradient(135deg,var(--hatch) 0 3px,transparent 3px 7px)}
.key.was{background:none;border:1.5px dashed var(--soft)}
.key.moved{background:none;box-shadow:inset 0 0 0 2px var(--ink)}
.cal{table-layout:fixed;width:100%;min-width:calc(150px + var(--days)*66px);
border-collapse:separate;border-spacing:0;font-size:12px}
.cal th,.cal td{border-bottom:1px solid var(--line);border-left:1px solid var(--line);padding:2px;height:30px;
vertical-align:middle}
.cal thead th{position:sticky;top:0;background:var(--card);z-index:2;font-weight:500;color:var(--soft);height:auto;
padding:4px 2px;text-align:center;line-height:1.25;border-left-color:transparent}
.cal thead b{display:block;color:var(--ink);font-size:14px}
.cal thead .today{color:var(--accent)}.cal thead .today b{color:var(--accent)}
.cal tfoot th,.cal tfoot td{color:var(--soft);text-align:center;height:24px;border-left-color:transparent}
.cal tfoot b{color:var(--ink);font-weight:600}
.cal .u{position:sticky;left:0;background:var(--card);z-index:1;text-align:left;font-weight:500;font-size:13px;
padding:2px 10px 2px 4px;white-space:nowrap;border-left:0;width:150px;overflow:hidden;
text-overflow:ellipsis}
.cal thead .u,.cal tfoot .u{z-index:3}
.cal .u a{color:var(--ink);text-decoration:none}.cal .u a:hover{text-decoration:underline}
.cal .u small{color:var(--soft);font-weight:400;float:right;padding-left:12px}
.cal .group th{background:var(--faint);text-align:left;height:26px;font-size:12.5px;color:var(--soft);padding:2px 4px;
border-left:0}
.cal .group .in{position:sticky;left:4px;white-space:nowrap}
.cal .group b{color:var(--ink)}
.cal .shut{background:repeating-linear-gradient(135deg,var(--hatch) 0 3px,transparent 3px 7px)}
.b{position:relative;border-radius:5px;padding:1px 4px 5px;line-height:1.3;overflow:hidden;white-space:nowrap;
background:color-mix(in srgb,var(--c) 24%,var(--card));display:flex;justify-content:space-between;gap:3px}
.b b{font-weight:600;font-size:11.5px}.b i{font-style:normal;font-size:10.5px;color:var(--soft)}
.b u{position:absolute;bottom:0;height:3px;border-radius:2px;background:var(--c)}
.b.rolling{background:color-mix(in srgb,var(--c) 11%,var(--card))}
.b.done{opacity:.6}.b.moved{box-shadow:inset 0 0 0 1.5px var(--ink)}
.was{border:1.5px dashed var(--soft);border-radius:5px;color:var(--soft);padding:1px 5px;line-height:1.35;
text-decoration:line-through;white-space:nowrap}
.later{color:var(--eu)}.earlier,.added{color:var(--good)}.cancelled{color:var(--warn)}
.chips{display:flex;flex-wrap:wrap;gap:6px;margin-top:8px}
.chips a{border:1px solid var(--line);border-radius:7px;padding:2px 9px;font-size:13px;text-decoration:none;
color:var(--ink)}.chips a:hover{border-color:var(--accent)}.chips small{color:var(--soft)}
details>summary{cursor:pointer;color:var(--accent);font-size:14px;margin:4px 0}
footer{color:var(--soft);font-size:13px}
@media(max-width:860px){main{padding:18px 12px 40px}.two{grid-template-columns:minmax(0,1fr)}
section{padding:14px 12px;border-radius:12px}.tiles{grid-template-columns:1fr 1fr;gap:10px}.tile{padding:10px 13px}
.tile b{font-size:20px}.cal{min-width:calc(104px + var(--days)*70px)}
.cal .u{width:104px}.cal .u small{display:none}h1{font-size:23px}}
@media print{body{background:#fff}section,.tile{break-inside:avoid}.scroll{overflow:visible}}
"""
