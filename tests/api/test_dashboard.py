"""The dashboard, the guide and the server agree on what is measured."""

import json
import re

import pytest

from tests.api.test_metrics import Numbers
from tests.contracts.wire import ask
from tests.processes import ROOT

DASHBOARD = ROOT / "docs" / "grafana.json"
GUIDE = ROOT / "docs" / "operation.md"
NAME = re.compile(r"\b(?:chatkeep|process)_[a-z_]+\b")
PARTS = re.compile(r"_(?:bucket|sum|count)$")


def queried(place):
    """The names of metrics in the dashboard's queries, or in the guide's words."""
    text = place.read_text("utf-8")
    if place is GUIDE:
        return set(re.findall(r"\bchatkeep_[a-z_]+\b", text.split("## Metrics")[1].split("\n## ")[0]))
    targets = [target for panel in json.loads(text)["panels"] for target in panel.get("targets", [])]
    return {name for target in targets for name in NAME.findall(target["expr"])}


@pytest.fixture
def exported(app, alice, chat):
    """The names of the samples that a server exports after a question."""
    ask(alice, chat, "q")
    return {sample.name for sample in Numbers(app).samples}


def test_every_metric_that_the_dashboard_asks_for_is_exported(exported):
    assert queried(DASHBOARD) - exported == set()


def test_every_metric_of_ours_is_on_the_dashboard_and_in_the_guide(exported):
    families = {PARTS.sub("", name) for name in exported if name.startswith("chatkeep_")}
    assert len(families) > 15
    for place in (DASHBOARD, GUIDE):
        assert families - {PARTS.sub("", name) for name in queried(place)} == set(), place.name
    assert {PARTS.sub("", name) for name in queried(GUIDE)} - families == set()


def test_the_dashboard_overlaps_nowhere_and_names_each_panel():
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    cells = [(x, y) for place in (panel["gridPos"] for panel in panels)
             for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in panels}) == len(panels) == len({panel["title"] for panel in panels})
