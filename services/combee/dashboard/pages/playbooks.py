"""All playbooks, with a search by name."""

from collections import defaultdict

from nicegui import ui

from combee.dashboard.pieces import fill, following, heading, table, unreadable
from combee.dashboard.views.rows import playbook_rows, warnings_text
from combee.dashboard.views.wording import address
from combee.gateway import playbooks
from combee.gateway.context import Context
from combee_schemas import topics

COLUMNS = {
    "name": "playbook",
    "forked": "forked from",
    "version": "version",
    "entries": "entries",
    "prompt": "prompt tokens",
    "labels": "labels",
    "window": "window",
    "retention": "retention",
    "omitted": "omitted",
    "tokens": "tokens today",
    "cost": "cost today",
    "changed": "changed (UTC)",
}

SORTED = """(rows, by, descending) => {
  const lead = Object.fromEntries(rows.filter(row => !row.branch).map(row => [row.of, row]));
  const number = value => Number(String(value).replaceAll(",", ""));
  const compared = (a, b) => {
    const [x, y] = [number(a), number(b)];
    return isNaN(x) || isNaN(y) ? String(a).localeCompare(String(b)) : x - y;
  };
  return [...rows].sort((a, b) => {
    const [x, y] = [lead[a.of] ?? a, lead[b.of] ?? b];
    const groups = by && x !== y ? compared(x[by], y[by]) * (descending ? -1 : 1) : 0;
    return by ? groups || a.of.localeCompare(b.of) || a.branch.localeCompare(b.branch) : 0;
  });
}"""
"""Sorts playbooks, each followed by its branches."""
NAME = """<q-td :props="props" :class="{branch: props.row.branch}">
<a href="#" @click.prevent="() => $parent.$emit('open', props.row)">{{ props.value }}</a></q-td>"""


def page(context: Context) -> None:
    """Build the page."""
    heading("Playbooks")
    unreadable(context, topics.REFLECTIONS, topics.PLAYBOOKS, topics.HISTORY, topics.BATCH_SIZES)
    wanted = (
        ui.input("Find by name").props("type=search clearable debounce=200 outlined dense").classes("w-64")
    )
    status = ui.label().classes("quiet").props("role=status")
    paused = ui.label().classes("wrong words").props("role=status")
    warned = ui.label().classes("wrong words").props("role=status")
    rows = table(
        COLUMNS,
        key="name",
        label="Playbooks",
        on_open=lambda row: ui.navigate.to(address(str(row["name"]))),
    )
    rows.props[":sort-method"] = SORTED
    rows.add_slot("body-cell-name", NAME)
    nothing = ui.label("Nothing yet: publish a reflection or a trace, and a playbook begins.").classes(
        "quiet"
    )

    def show() -> None:
        labels: defaultdict[str, list[str]] = defaultdict(list)
        for pointer in sorted(context.labels.all().values(), key=lambda pointer: pointer.label):
            labels[pointer.playbook].append(f"{pointer.label} → {pointer.version}")
        told_labels = {name: ", ".join(those) for name, those in labels.items()}
        shown_rows, total = playbook_rows(
            context.live.shared(),
            playbooks.newest_by_name(context),
            told_labels,
            wanted.value or "",
        )
        status.text = (
            f"{len(shown_rows)} of {total:,} are shown: a name finds the others"
            if len(shown_rows) < total
            else ""
        )
        paused.text = "\n".join(
            f"paused: {book.name}: {book.paused}" for book in context.live.shared().playbooks if book.paused
        )
        warned.text = warnings_text(context.live.shared().playbooks)
        nothing.set_visibility(not total)
        wanted.set_visibility(bool(total))
        rows.set_visibility(bool(total))
        fill(rows, shown_rows)

    wanted.on_value_change(show)
    following(context, show)
