"""What tenants and strangers may try, and what becomes of it: from the cases that try it."""

from pathlib import Path
from typing import Any

import yaml

from tests.reference.marks import table

FOLDER = Path(__file__).parents[1] / "integration" / "tenancy"
WHERE = "tests/integration/test_attacks.py"


def cases() -> dict[str, Any]:
    """Return the attacks that are performed as data, by what must hold."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "attacks.yaml").read_text(encoding="utf-8"))
    return found


def elsewhere() -> dict[str, dict[str, str]]:
    """Return the attacks that other tests try, by what is tried."""
    found: dict[str, dict[str, str]] = yaml.safe_load((FOLDER / "elsewhere.yaml").read_text(encoding="utf-8"))
    return found


def attacks(words: str, before: str) -> str:
    """Return what is tried, what becomes of it and by which test, attack by attack."""
    rows = [(case["about"], _outcome(case), f"*{sentence}*") for sentence, case in cases().items()]
    rows += [(about, each["then"], f"`{each['test'].partition('::')[0]}`") for about, each in elsewhere().items()]
    return table(("what is tried", "what becomes of it", "test"), rows)


def _outcome(case: dict[str, Any]) -> str:
    """Return who stops an attack: the API server, kai, or both of them."""
    tried = [step for step in case["steps"] if "tries" in step]
    refused = any("refused" in step for step in tried)
    past = any("refused" not in step or step.get("past") for step in tried)
    if refused:
        return "refused, and gains nothing past it" if past else "refused"
    return "gains nothing"
