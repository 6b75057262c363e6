"""Why a node is empty or full: who is there, and what keeps waiting jobs away."""

from typing import TYPE_CHECKING, Any

import attrs

from kai.cli.console import Console
from kai.cli.tables import columns
from kai.model.axis import GPU_UNIT
from kai.wording import counted, first_of

if TYPE_CHECKING:
    from kai.simulation.occupancy import Occupancy

_MOST_TENANTS = 8
_MOST_NAMED = 4


@attrs.frozen(kw_only=True)
class NodeAnswer:
    """What is on one node."""

    found: "Occupancy"
    kind: str = "NodeExplanation"

    def fields(self) -> dict[str, Any]:
        """Return who is on the node, and what keeps whom away."""
        found = self.found
        return {
            "subject": {"kind": "Node", "name": found.node},
            "summary": self.summary,
            "gpus": found.gpus / GPU_UNIT,
            "idleGpus": found.idle / GPU_UNIT,
            "ready": found.ready,
            "taints": list(found.taints),
            "users": [
                {
                    "job": each.job,
                    "queue": each.queue or None,
                    "pods": each.pods,
                    "gpus": each.gpus / GPU_UNIT,
                    "state": each.state,
                }
                for each in found.tenants
            ],
            "keptAway": [{"reason": why, "jobs": list(jobs)} for why, jobs in found.kept_away],
        }

    def names(self) -> list[str]:
        """Return the node."""
        return [f"node/{self.found.node}"]

    @property
    def summary(self) -> str:
        """The answer in one sentence."""
        from kai.explain.phrases import plain, quantity

        found = self.found
        if not found.gpus:
            count = sum(each.pods for each in found.tenants)
            return f"{found.node} has no GPUs; {counted(count, 'pod is', 'pods are')} on it."
        size = quantity(found.gpus, "gpu")
        if not found.tenants:
            why = self._closed() or ("no waiting job can use it" if found.kept_away else "no job waits for it")
            return f"{found.node} is empty, {size} idle: {why}."
        held = found.sum("held")
        parts = [f"{plain(found.sum('running'))} used"]
        parts += [f"{plain(held)} held for jobs that start later"] if held else []
        parts += [f"{plain(found.sum('leaving'))} with pods that are leaving"] if found.sum("leaving") else []
        what = "is full" if not found.idle else f"has {quantity(found.idle, 'gpu')} idle"
        return f"{found.node} {what}: of {size} {', '.join(parts)}."

    def _closed(self) -> str:
        if not self.found.ready:
            return "it is not ready, or cordoned"
        return f"it is tainted {', '.join(self.found.taints)}" if self.found.taints else ""

    def text(self, console: Console) -> str:
        """Return the answer, who is there, and what keeps waiting jobs away."""
        found = self.found
        lines = [console.styled(self.summary, bold=True)]
        if found.tenants:
            rows = [["  JOB", "QUEUE", "PODS", "GPUS", "STATE"]]
            rows += [
                [f"  {each.title}", each.queue or "-", str(each.pods), f"{each.gpus / GPU_UNIT:g}", each.state]
                for each in found.tenants[:_MOST_TENANTS]
            ]
            lines += ["", columns(rows, right={2, 3})]
            left = len(found.tenants) - _MOST_TENANTS
            lines += [f"  and {left} more"] if left > 0 else []
        if closed := self._closed():
            lines += ["", f"  {closed}"]
        if found.kept_away:
            lines += ["", "Waiting jobs that are not on it"]
            lines.append(
                columns(
                    [[f"  {len(jobs)}", why, first_of(jobs, _MOST_NAMED)] for why, jobs in found.kept_away], right={0}
                )
            )
        return "\n".join(lines)


__all__ = ["NodeAnswer"]
