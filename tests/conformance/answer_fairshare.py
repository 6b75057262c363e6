"""Answers the cases of kind `fairshare`: an amount, divided among sibling queues."""

from typing import Any

from kai.answers.cases.case import FairShareCase
from kai.answers.offline.run import divide_case


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return the fair share of every queue and what is left over."""
    return divide_case(FairShareCase(name=case["name"], title=case["name"], document=case))
