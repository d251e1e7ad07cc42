"""The alert rules and the dashboard: their expressions, and what these ask of the metrics."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import promql_parser
import yaml
from prometheus_client import Metric

from support import shown

ALERTS = shown.ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = shown.ROOT / "deploy" / "grafana" / "combee.json"
SCRAPED = frozenset({"instance", "job"})
"""Labels that Prometheus adds to all that it scrapes."""
FROM_PROMETHEUS = {"up": SCRAPED}
"""Metrics that Prometheus makes itself."""
KEEPS_LABELS = frozenset({"topk", "bottomk"})
PARTS = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "info": ("_info",)}
"""What a family's series are called, by its type."""
IN_TEXT = re.compile(r"{{\s*(?:\$labels\.)?(\w+)\s*}}")

Labels = Mapping[str, AbstractSet[str]]
"""Metrics by name, each with its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """An expression, where it stands, and the text that names labels of its result."""

    where: str
    expression: str
    text: str = ""


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(ALERTS.read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    document = json.loads(DASHBOARD.read_text("utf-8"))
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Query]:
    """Yield every expression of the rules and of the dashboard, Grafana's variables filled in."""
    for rule in rules():
        yield Query(where=rule["alert"], expression=rule["expr"], text=rule["annotations"]["summary"])
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
            yield Query(where=panel["title"], expression=expression, text=target["legendFormat"])


def series(families: Iterable[Metric]) -> dict[str, set[str]]:
    """Return the series of families, each with the labels of its samples."""
    found: dict[str, set[str]] = {}
    for family in families:
        labels = {name for sample in family.samples for name in sample.labels}
        for ending in PARTS.get(family.type, ("",)):
            found.setdefault(f"{family.name}{ending}", set()).update(labels)
    return found


def used(expression: str) -> dict[str, set[str]]:
    """Return the series that an expression asks for, each with the labels that it names.

    Raises
    ------
    ValueError
        If it is no PromQL.
    """
    return _walked(expression).used


def _walked(expression: str) -> "_Walk":
    walk = _Walk({}, [], [])
    promql_parser.walk(promql_parser.parse(expression), walk.enter, walk.leave)
    return walk


@dataclass(slots=True)
class _Walk:
    """The metrics below a node, and the labels that aggregations above them leave."""

    used: dict[str, set[str]]
    left: list[set[str]]
    result: list[set[str] | None]

    def enter(self, node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.AggregateExpr):
            by = set(node.modifier.labels) if node.modifier else set()
            self.left.append(by)
            if str(node.op) not in KEEPS_LABELS:
                self.result.append(by)
        elif isinstance(node, promql_parser.VectorSelector):
            asked = {matcher.name for matcher in node.matchers.matchers}
            self.used.setdefault(str(node.name), set()).update(asked, *self.left)

    def leave(self, node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.AggregateExpr):
            self.left.pop()


def problems(query: Query, known: Labels) -> list[str]:
    """Return what is wrong with a query: its grammar and types, metrics and labels that there are not."""
    try:
        walk = _walked(query.expression)
    except ValueError as error:
        return [f"{query.where}: {error}"]
    found = [f"{query.where}: no metric {name}" for name in walk.used if name not in known]
    labels = {name: known.get(name, frozenset()) | SCRAPED for name in walk.used}
    for name, asked in walk.used.items():
        if name in known:
            found += [f"{query.where}: {name} has no label {label}" for label in asked - labels[name]]
    shown_labels = walk.result[0] if walk.result else set().union(*labels.values())
    unknown = set(IN_TEXT.findall(query.text)) - (shown_labels or set())
    return found + [f"{query.where}: its result has no label {label}" for label in unknown]
