"""Why a node is empty or full: who is there, and what keeps waiting jobs away."""

from typing import TYPE_CHECKING, Any

import attrs

from kai.cli.console import Console
from kai.cli.tables import columns, wrapped
from kai.documents.nodes import closed, occupancy_values, occupied
from kai.model.axis import GPU_UNIT
from kai.wording import first_of, number_text

if TYPE_CHECKING:
    from kai.simulation.outcomes.node_occupancy import Occupancy

_MOST_TENANTS = 8
_MOST_NAMED = 4


@attrs.frozen(kw_only=True)
class NodeAnswer:
    """What is on one node."""

    found: "Occupancy"
    kind: str = "NodeExplanation"

    def fields(self) -> dict[str, Any]:
        """Return who is on the node, and what keeps whom away."""
        return occupancy_values(self.found)

    def names(self) -> list[str]:
        """Return the node."""
        return [f"node/{self.found.node}"]

    def text(self, console: Console) -> str:
        """Return the answer, who is there, and what keeps waiting jobs away."""
        found = self.found
        lines = [console.styled(wrapped(occupied(found), console.width, indent="  "), bold=True)]
        if found.tenants:
            rows = [["  JOB", "QUEUE", "PODS", "GPUS", "STATE"]]
            rows += [
                [f"  {each.title}", each.queue or "-", str(each.pods), number_text(each.gpus / GPU_UNIT), each.state]
                for each in found.tenants[:_MOST_TENANTS]
            ]
            lines += ["", columns(rows, right={2, 3}, width=console.width)]
            left = len(found.tenants) - _MOST_TENANTS
            lines += [f"  and {left} more"] if left > 0 else []
        if found.slices:
            profiles = [f"{each.resource} {each.in_use} of {each.total} in use" for each in found.slices]
            lines += ["", wrapped(f"  MIG slices: {', '.join(profiles)}", console.width, indent="    ")]
        if found.tenants and (why := closed(found)):  # of an empty node the first line says it
            lines += ["", wrapped(f"  {why}", console.width, indent="    ")]
        if found.kept_away:
            lines += ["", "Waiting jobs that are not on it"]
            kept = [[f"  {len(jobs)}", first_of(jobs, _MOST_NAMED), why] for why, jobs in found.kept_away]
            lines.append(columns(kept, right={0}, width=console.width))
        return "\n".join(lines)
