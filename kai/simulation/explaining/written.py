"""What is written on a group and on its pods already: the conditions that `kubectl` shows, each in a line.

A scheduler writes them, kai or another, at times long before; other programs write conditions on pods too. They stand
beside the answer, which is decided anew.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from kai.api import names
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.api.values.times import instant_text
from kai.simulation.explaining.condition_reasons import newest
from kai.simulation.explaining.fact import Evidence
from kai.wording import counted

_LONGEST: Final = 160
_MOST: Final = 3
_READY: Final = frozenset({"Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"})
"""Conditions that say of a pod without a node only that it has none."""


def written(group: PodGroup, waiting: Iterable[Pod]) -> Iterator[Evidence]:
    """Yield the last condition on a group, and those on its pods that wait which say something else."""
    condition, message = newest(group), ""
    if condition is not None:
        message = _line(condition.message or "; ".join(f"{each.reason}: {each.message}" for each in condition.reasons))
        told = condition.last_transition_time
        pool = f"node pool {condition.node_pool}, " if condition.node_pool not in ("", "default") else ""
        # An age would differ from one look to the next, and between the service and a command.
        when = "" if told is None else f" ({pool}written at {instant_text(told)})"
        values = {"message": message, "nodePool": condition.node_pool or None}
        yield Evidence(label="condition", text=f"{_short(message)}{when}", values=values)
    said = Counter(text for pod in waiting for text in _of_pod(pod, message))
    for text, count in list(said.items())[:_MOST]:
        yield Evidence(
            label=f"on {counted(count, 'pod')}", text=_short(text), values={"pods": count, "condition": text}
        )


def _of_pod(pod: Pod, message: str) -> Iterator[str]:
    """Yield the conditions that hold a pod, less what the condition of its group says as well."""
    for each in pod.status.conditions:
        text = _line(each.message)
        if each.type in _READY or (each.type == names.POD_SCHEDULED_CONDITION and each.status != "False"):
            continue
        if not (text and message and text.rstrip(". ") in message):
            reason = f", {each.reason}" if each.reason else ""
            yield f"{each.type} {each.status}{reason}: {text}" if text else f"{each.type} {each.status}{reason}"


def _line(message: str) -> str:
    return " ".join(message.split())


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"


__all__ = ["written"]
