"""Style sheet of both themes, and the script that reports a lost connection."""

CSS = """
:root { --line: rgba(138,143,152,.35); --done: #1f7a51; --ready: #a8650a; --merged: #8657c9; --failed: #c64545;
  --waiting: #767c86; --quiet: #767c86; --edge: #b4b9c2; --flowing: #2f6fd0; --behind: #8a5208; --page: #fff;
  --box: #eef1f6; }
.body--dark { --edge: #5a616d; --quiet: #8a919c; --flowing: #5c95ee; --behind: #efb04f; --page: #121212;
  --box: #2b313b; --waiting: #9aa1ac; }
.bar { background: #20242b; padding: 4px 12px; }
.links { display: flex; flex-wrap: wrap; align-items: center; gap: 0 4px; width: 100%; max-width: 1164px;
  margin: 0 auto; }
.brand { display: flex; align-items: center; gap: 6px; font-weight: 600; font-size: 16px; margin-right: 10px;
  color: #fff; }
.brand .q-icon { color: #f5b942; }
a.nav { color: #e8eaee; text-decoration: none; padding: 9px 10px; border-radius: 6px; }
a.nav:hover, a.nav:focus-visible { background: #3a414d; }
a.nav[aria-current] { background: #3a414d; color: #fff; box-shadow: inset 0 -2px #f5b942; }
.badge { color: #20242b; background: #f5b942; border-radius: 10px; padding: 1px 8px; font-size: 12px; }
.bar .q-btn { color: #e8eaee; }
:focus-visible { outline: 2px solid #4f8ff7; outline-offset: 2px; }
.q-btn:focus-visible, .q-checkbox:focus-visible { box-shadow: 0 0 0 2px #4f8ff7; }
.page { max-width: 1180px; margin: 0 auto; padding: 0 8px 48px; width: 100%; min-width: 0; }
.page .nicegui-sub-pages { display: flex; flex-direction: column; gap: 8px; align-items: stretch; width: 100%; }
.page h1 { font-size: 22px; font-weight: 600; margin: 8px 0 4px; line-height: 1.3; overflow-wrap: anywhere; }
.page h2 { font-size: 16px; font-weight: 600; margin: 20px 0 2px; line-height: 1.3; overflow-wrap: anywhere; }
.page, .q-dialog, .q-menu { --q-primary: #1f66d0; }
.body--dark .page, .body--dark .q-dialog, .body--dark .q-menu { --q-primary: #86b4ff; }
.body--dark .q-dialog .q-btn.bg-primary { --q-primary: #1f66d0; }
.q-dialog .title { font-size: 17px; font-weight: 600; } .q-dialog .wide { width: min(1000px, 94vw); max-width: 94vw; }
.edited textarea { font-family: ui-monospace, monospace; font-size: 13px; height: 55vh !important; }
.wrong { color: #b3261e; } .body--dark .wrong { color: #ff9c94; } .wrong:empty { display: none; }
.outcome { border-left: 3px solid var(--flowing); padding: 4px 10px; font-weight: 600; }
.page a { color: #1f66d0; } .body--dark .page a { color: #86b4ff; }
.page a:not(:hover) { text-decoration-color: rgba(79,143,247,.4); }
.page .q-table th .q-icon { position: absolute; }
.q-table a { color: #2f6fd0; text-decoration: underline; }
.body--dark .q-table a, .body--dark .page a { color: #7fb0ff; }
.q-field .q-field__focusable-action { opacity: 1; color: inherit; }
.quiet { opacity: .76; font-size: 13px; overflow-wrap: anywhere; }
.unreadable { color: #20242b; background: #f5b942; border-radius: 10px; padding: 4px 10px; white-space: pre-line; }
.told { display: flex; flex-direction: column; gap: 2px; }
.tiles { display: flex; flex-wrap: wrap; gap: 8px; width: 100%; }
.page a.tile { border: 1px solid var(--line); border-radius: 8px; padding: 6px 14px; min-width: 130px; color: inherit;
  text-decoration: none; } .page a.tile:hover { border-color: var(--flowing); }
.tile .number { font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.page a.tile.bad { border-color: var(--failed); } .tile.bad .number::after { content: " !"; color: var(--failed); }
.lessons { display: flex; flex-direction: column; gap: 18px; width: 100%; }
.learned { display: flex; flex-direction: column; gap: 6px; width: 100%; }
.page .learned h2 { margin: 8px 0 0; } .learned .more { padding-left: 13px; }
.quotes { display: flex; flex-direction: column; gap: 2px; margin: 4px 0 0; }
.quote { border-left: 2px solid var(--line); padding-left: 8px; font-style: italic; }

.graph.flow { width: 100%; height: 350px; } .graph.tree { width: 100%; min-width: 300px; height: 300px; }
.stale { background: #f5b942; color: #20242b; font-weight: 600; padding: 8px 12px; text-align: center; width: 100%; }
#lost { position: fixed; inset: 0 0 auto; z-index: 9999; } #popup { display: none; }
body.lost .page, .stale:not(.hidden) ~ .page { opacity: .45; filter: grayscale(1); }
.windows { display: flex; flex-direction: column; gap: 6px; width: 100%; }
.window { display: grid; grid-template-columns: minmax(120px, 240px) 1fr 110px; gap: 12px; align-items: center;
  width: 100%; overflow-wrap: anywhere; }
.window .count { text-align: right; font-variant-numeric: tabular-nums; }
.chip { width: 20px; height: 20px; border-radius: 50%; font-size: 14px; color: var(--waiting);
  border: 1px solid var(--waiting); }
.chip.ready { color: #fff; background: var(--ready); border-color: var(--ready); }
.chip.done { color: #fff; background: var(--done); border-color: var(--done); }
.chip.left_out { border-style: dashed; }
.chip.merged { color: #fff; background: var(--merged); border-color: var(--merged); }
.chip.failed { color: #fff; background: var(--failed); border-color: var(--failed); }
.beside { padding-left: 6px; }
.graph.tree path[fill="var(--ready)"] { animation: pulse 1.2s ease-in-out infinite; }
@keyframes pulse { 50% { opacity: .5; } }
@media (prefers-reduced-motion: reduce) { .graph.tree path { animation: none !important; } }
.virtual .q-table__middle { max-height: min(640px, 75vh); } .virtual.short .q-table__middle { max-height: 300px; }
.halves { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 0 32px; width: 100%; }
.halves > section { min-width: 0; } .halves .plot { height: 250px; } .halves .plot.short { height: 130px; }
.halves .facts { grid-template-columns: 90px 1fr; } td.branch { padding-left: 28px !important; }
.page a.nav, .nav { white-space: nowrap; }
.virtual thead th { position: sticky; top: 0; z-index: 1; background: var(--page); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; }
.legend > div { display: flex; gap: 6px; align-items: center; }
.legend .chip { width: 18px; height: 18px; font-size: 12px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 0 24px;
  width: 100%; } .plots > div { min-width: 0; }
.plots > div:last-child:nth-child(odd) { grid-column: 1 / -1; }
.plot { height: 230px; width: 100%; }
.slide { display: grid; grid-template-columns: auto 1fr auto auto; gap: 12px; align-items: center; width: 100%;
  padding: 0 4px; }
.tools, .names, .labels { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 16px; width: 100%; }
.sizes { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 12px; }
.sizes .q-linear-progress { width: 180px; }
.page a.pill { border: 1px solid var(--line); border-radius: 12px; padding: 1px 10px; text-decoration: none; }
.page a.pill.here { border-color: var(--flowing); font-weight: 600; }
.jump { display: flex; gap: 6px; width: 100%; overflow-x: auto; padding: 3px; position: sticky; top: 48px; z-index: 2;
  background: var(--page); }
.jump .q-btn { flex: none; padding: 2px 10px; font-size: 13px; }
.about .q-btn { font-size: 12px; padding: 0 6px; }
.listing { width: 100%; border: 1px solid var(--line); border-radius: 8px; }
.page .listing .section { display: block; margin: 0; padding: 12px 10px 4px; font-size: 15px; font-weight: 600; }
.entry.chosen { outline: 2px solid var(--flowing); outline-offset: -2px; }
.entry .before { opacity: .8; }
.entry { border-left: 3px solid transparent; padding: 5px 10px; width: 100%; overflow-wrap: anywhere; }
.entry.added { border-color: #2fa36b; background: rgba(47,163,107,.10); }
.entry.removed { border-color: #c64545; background: rgba(198,69,69,.10); } .entry.removed .words { opacity: .8; }
.entry.changed { border-color: #d18f2b; background: rgba(209,143,43,.10); }
.about { display: flex; flex-wrap: wrap; align-items: center; gap: 0 12px; }
.words { white-space: pre-wrap; overflow-wrap: anywhere; }
.close { position: absolute; top: 6px; right: 6px; } .head { padding-right: 40px; }
.facts { display: grid; grid-template-columns: 110px 1fr; gap: 6px 12px; width: 100%; }
@media (max-width: 640px) {
  .graph.flow { height: 640px; } .page a.tile { min-width: 0; flex: 1 1 28%; padding: 6px 8px; }
  .halves { grid-template-columns: minmax(0, 1fr); }
  .page .q-table thead { display: none; } .page .q-table, .page .q-table tbody { display: block; width: 100%; }
  .page .q-table tbody tr { display: block; height: auto; border-bottom: 1px solid var(--line); padding: 6px 0; }
  .page .q-table tbody tr td { display: flex; align-items: baseline; gap: 0 8px; height: auto; border: 0;
    padding: 2px 4px; white-space: normal; overflow-wrap: anywhere; }
  .page .q-table tbody td::before { content: var(--column); flex: 0 0 104px; opacity: .76; position: static;
    background: none; }
  .page .q-table tbody td[colspan]::before { content: none; } .page .q-table__bottom { padding: 0 4px; }
  .page .q-table td.branch { padding-left: 4px !important; }
  .nicegui-content { padding: 8px; } .page { padding: 0 2px 40px; }
  .brand { width: 100%; margin-bottom: 2px; } a.nav { padding: 7px 7px; font-size: 13px; }
  .links .corner { position: absolute; top: 2px; right: 8px; }
  .jump { flex-wrap: nowrap; }
  .window { grid-template-columns: 1fr auto; gap: 4px 12px; }
  .window .q-linear-progress { grid-column: 1 / -1; grid-row: 2; }
  .slide { grid-template-columns: auto 1fr auto; } .slide .which { grid-column: 1 / -1; grid-row: 2; }
  .facts { grid-template-columns: 1fr; gap: 0 } .facts .words { margin-bottom: 8px; }
}
"""

LOST = """<script type="module">
(() => {
  let heard = new Date();
  const popup = document.getElementById("popup"), told = document.createElement("div");
  Object.assign(told, { id: "lost", className: "stale", hidden: true, role: "alert" });
  document.body.append(told);
  const watch = setInterval(() => {
    if (!window.socket) return;
    clearInterval(watch);
    const now = () => { heard = new Date(); };
    window.socket.onAny(now);
    window.socket.io.on("ping", now);
  }, 200);
  new MutationObserver(() => {
    const lost = popup.getAttribute("aria-hidden") === "false";
    const since = heard.toISOString().slice(0, 19).replace("T", " ");
    if (lost && told.hidden) told.textContent = `No connection since ${since} UTC: the figures are from then.`;
    told.hidden = !lost;
    document.body.classList.toggle("lost", lost);
  }).observe(popup, { attributes: true });
})();
</script>"""
"""Warns that the gateway is unreachable since a time; NiceGUI's own note is small, and the figures look current."""
