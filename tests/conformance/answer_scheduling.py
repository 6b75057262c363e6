"""Answers the cases without a kind: clusters, decided on by the simulation."""

from typing import Any

from kai.answers.cases.case import Case
from kai.answers.offline.run import simulate
from kai.answers.outcomes.plan import answer as answer_of
from kai.lab.scenarios.scenario import read_scenario


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return statuses, nodes, devices and counts after each cycle."""
    read = read_scenario(case, case["name"])
    assert isinstance(read, Case), "only fair-share cases have no cluster, and they have a kind"
    return answer_of(simulate(read))
