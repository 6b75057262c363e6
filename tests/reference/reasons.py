"""The reason codes, each with an anchor of its own, and the states of jobs, with what they mean."""

from kai.answers.outcomes.job_states import MEANINGS
from kai.deciding.explain.codes import REASON_CODES, Stage
from tests.reference.marks import table

TITLES = {
    Stage.QUEUE: "The queue or the group cannot be used as it is written",
    Stage.READINESS: "Too few pods exist",
    Stage.BIND: "A node was chosen, and the bind is refused",
    Stage.IMPOSSIBLE: "The nodes could not hold it if they were empty",
    Stage.LIMIT: "A limit",
    Stage.QUOTA: "A quota that non-preemptible work must fit into",
    Stage.MATCH: "No node matches",
    Stage.SPARED: "There is no room, and jobs that could make some are spared",
    Stage.ROOM: "The whole gang, or a domain, has no room",
    Stage.FAIRNESS: "There is no room, and none may be taken",
    Stage.OTHERS: "Others are in the way, or are leaving",
}


def reasons(_: str, __: str) -> str:
    """Return a section for each stage, in the order of dominance, and below it one for each code."""
    lines: list[str] = []
    for stage in Stage:
        lines += [f"### {TITLES[stage]}", ""]
        for each in REASON_CODES:
            if each.stage is stage:
                lines += [f"#### {each.code}", "", each.means, "", f"*What to do:* {each.help}", ""]
    return "\n".join(lines)


def states(_: str, __: str) -> str:
    """Return the states that jobs are in after a cycle."""
    return table(("state", "means"), [(state.value, meaning) for state, meaning in MEANINGS.items()])
