"""Alert rules, dashboard and runbook: correct PromQL, metrics that the code has, a remedy for every alert."""

import re

import promql_parser
import pytest
from prometheus_client import CollectorRegistry

from combee.process.telemetry.metrics import HttpMetrics, Metrics, new_registry
from support import monitoring, shown
from support.clock import ManualClock
from support.monitoring import FROM_PROMETHEUS, Labels, Query, panels, problems, queries, rules

RUNBOOK = shown.ROOT / "docs" / "guide" / "operations.md"


def declared(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Return every series that the code declares, with its labels."""
    declared_series: dict[str, set[str]] = {}
    for collector in registry._collector_to_names:
        for name, labels in monitoring.series(collector.collect()).items():
            own = set(getattr(collector, "_labelnames", ()))
            declared_series[name] = labels | own | ({"le"} if name.endswith("_bucket") else set())
    return declared_series


@pytest.fixture(scope="module")
def known() -> Labels:
    registry = new_registry()
    Metrics(registry, ManualClock(), service="scan")
    HttpMetrics(registry, lambda: 0)
    return {**FROM_PROMETHEUS, **declared(registry)}


def test_every_expression_is_promql_about_metrics_and_labels_of_ours(known: Labels) -> None:
    asked = list(queries())
    assert {query.where for query in asked} == {rule["alert"] for rule in rules()} | {
        panel["title"] for panel in panels()
    }
    assert [problem for query in asked for problem in problems(query, known)] == []


@pytest.mark.parametrize(
    ("expression", "text", "problem"),
    [
        ("sum(rate(combee_versions_total[5m])", "", "unclosed left parenthesis"),
        ("rate(combee_versions_total)", "", "expected type matrix"),
        ("max(combee_version_total)", "", "no metric combee_version_total"),
        ("max by (service) (combee_condition)", "", "combee_condition has no label service"),
        ('combee_lag_seconds{playbook="x"}', "", "has no label playbook"),
        ("max by (topic) (combee_lag_seconds)", "{{ $labels.service }}", "result has no label service"),
        ("sum(combee_lag_records)", "{{topic}}", "result has no label topic"),
    ],
)
def test_a_broken_expression_is_noticed(expression: str, text: str, problem: str, known: Labels) -> None:
    found = problems(Query(where="x", expression=expression, text=text), known)
    assert problem in " ".join(found)


def test_every_metric_of_ours_is_on_the_dashboard(known: Labels) -> None:
    text = " ".join(query.expression for query in queries())
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in known if name.startswith("combee_")}
    assert [name for name in sorted(families) if name not in text] == []


def test_every_alert_names_its_section_of_the_runbook_and_every_section_an_alert() -> None:
    _, text = RUNBOOK.read_text("utf-8").split("\n## Alerts\n")
    sections = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    named = {rule["alert"]: rule["annotations"]["runbook"] for rule in rules()}
    assert named == {name: f"docs/guide/operations.md#{name.lower()}" for name in sections}
    bodies = dict(zip(sections, re.split(r"^### \w+$", text, flags=re.MULTILINE)[1:], strict=True))
    assert [name for name, body in bodies.items() if "**Do**" not in body] == []


def test_an_alert_waits_for_a_duration_that_prometheus_reads() -> None:
    assert [promql_parser.parse_duration(rule["for"]) for rule in rules() if "for" in rule]


def test_panels_have_numbers_of_their_own_and_lie_beside_one_another() -> None:
    places = [panel["gridPos"] for panel in panels()]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert [panel["title"] for panel in panels() if not panel["targets"]] == []
