"""A list of entries that fills the page, and renders only the rows near the visible ones."""

from collections.abc import Callable, Collection

from nicegui import ui

from combee.dashboard.views.rows import Row

ROW_PX = 76
"""Estimated height of a row (px); the component measures the visible ones."""
ROW = """
<a v-if="props.item.kind === 'section' && props.item.href" class="section" :href="props.item.href"
  @click.prevent="() => $parent.$emit('open', props.item)">{{ props.item.words }} · {{ props.item.count }}</a>
<h2 v-else-if="props.item.kind === 'section'" class="section">{{ props.item.words }} · {{ props.item.count }}</h2>
<div v-else :class="['entry', props.item.kind, props.item.chosen ? 'chosen' : '']" :data-entry="props.item.id">
  <div v-if="props.item.before" class="words before">{{ '− ' + props.item.before }}</div>
  <div class="words">{{ props.item.sign + props.item.words }}</div>
  <div class="about">
    <q-checkbox v-if="props.item.pickable" dense size="sm" label="reject" :model-value="props.item.picked"
      :aria-label="'Reject ' + props.item.id"
      @update:model-value="(picked) => $parent.$emit('pick', {id: props.item.id, picked})"></q-checkbox>
    <span v-if="props.item.state" class="badge">{{ props.item.state }}</span>
    <span class="quiet">{{ props.item.about }}</span>
    <q-btn v-if="props.item.evidence !== null" flat dense no-caps color="primary"
      :label="'evidence: ' + props.item.evidence"
      :aria-label="'evidence: ' + props.item.evidence + ' for ' + props.item.id"
      @click="() => $parent.$emit('evidence', props.item)"></q-btn>
    <a class="link" :href="props.item.href" :aria-label="'Link to ' + props.item.id"
      @click.prevent="() => $parent.$emit('open', props.item)">link</a>
  </div>
</div>
"""
SCROLL = """(async () => {
  for (let tries = 0; tries < 300; tries++) {
    const list = getElement(%(list)d);
    const before = window.scrollY;
    if (list?.$props?.items?.length > %(row)d) list.scrollTo(%(row)d, "start-force");
    await new Promise(resolve => setTimeout(resolve, 100));
    if (list?.$props?.items?.length > %(row)d && (window.scrollY === before || %(row)d === 0)) return;
  }
})()"""


class Listing:
    """The list; ``on_evidence`` and ``on_open`` get the row, ``on_pick`` the ids picked so far."""

    def __init__(
        self,
        label: str,
        *,
        on_evidence: Callable[[Row], object],
        on_open: Callable[[Row], object],
        on_pick: Callable[[Collection[str]], object] | None = None,
    ) -> None:
        self._picked: dict[str, None] = {}
        self._on_pick = on_pick
        self._element = ui.element("q-virtual-scroll").classes("listing")
        self._element.props(f'role="region" aria-label="{label}" ')
        self._element.props["virtual-scroll-item-size"] = ROW_PX
        self._element.props["scroll-target"] = "body"
        self._element.props["items"] = []
        self._element.add_slot("default", ROW)
        self._element.on("evidence", lambda event: on_evidence(event.args))
        self._element.on("open", lambda event: on_open(event.args))
        self._element.on("pick", lambda event: self._pick(event.args))

    def show(self, rows: list[Row]) -> None:
        """Show other rows, with none picked."""
        self._picked.clear()
        if self._on_pick is not None:
            entries = ({"pickable": row["kind"] not in ("", "section"), "picked": False} for row in rows)
            rows = [row | pickable for row, pickable in zip(rows, entries, strict=True)]
        self._element.props["items"] = rows
        self._element.set_visibility(bool(rows))
        self._element.update()

    def _pick(self, picked: Row) -> None:
        entry_id = str(picked["id"])
        self._picked.pop(entry_id, None)
        if picked["picked"]:
            self._picked[entry_id] = None
        self._element.props["items"] = [
            row | {"picked": row["id"] in self._picked} for row in self._element.props["items"]
        ]
        self._element.update()
        if self._on_pick is not None:
            self._on_pick(tuple(self._picked))

    def scroll_to(self, row: int) -> None:
        """Scroll a row to the top as soon as the browser has it, as parts of a page arrive one after the other."""
        ui.run_javascript(SCROLL % {"list": self._element.id, "row": row})
