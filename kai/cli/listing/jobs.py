"""``kai jobs``: running and waiting jobs, the reasons, and the order of the queue."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click
from click.shell_completion import CompletionItem

from kai.answers.documents.document import span
from kai.basics.errors import InputError
from kai.basics.wording import counted, number_text, shown
from kai.cli.completing import complete_queues
from kai.cli.console import Console
from kai.cli.deciding.report import COLORS
from kai.cli.listing.joblist import Row, rows_of
from kai.cli.sources import Source, source_options
from kai.cli.tables import Column, cut_text, table, wrapped
from kai.cli.views import ServedView, View, Ways, show

if TYPE_CHECKING:
    from kai.answers.outcomes.job_lines import JobLine
    from kai.answers.why.own_jobs import OwnJobs
    from kai.cli.serving import Served
    from kai.lab.request import Result

EPILOG = """\
A job is a pod group. Replicas of one owner are one line; --pods unfolds them.
GPUS is what all pods of a job want together, POS its place in line within its queue; -o wide adds what they hold.

\b
  kai jobs -A
  kai jobs --state waits --queue vision
  kai jobs --from snapshot.zip -o json
"""
_NONE = "-"
_FAR = float("inf")
_SORTS: "dict[str, Callable[[Row], Any]]" = {
    "queue": lambda row: (row.queue, row.position or 0, row.name),
    "name": lambda row: (row.name, row.namespace),
    "state": lambda row: (row.state, row.queue, row.name),
    "priority": lambda row: (-(row.priority or 0), row.queue, row.name),
    "gpus": lambda row: (-row.gpus, row.name),
    "since": lambda row: (_FAR if row.since is None else row.since, row.name),
    "position": lambda row: (_FAR if row.position is None else row.position, row.queue, row.name),
}
_WAITING = "waiting"
_CAUSE = re.compile(r" \((\w+)\)")
"""Finds the cause of an eviction in the text about evicted pods."""
_SCREEN = 30
"""With more rows than this, jobs of one queue with the same state and reason are counted instead of listed."""
_FIRST = 3
"""The first jobs of such a group, which are still listed."""


@attrs.frozen(kw_only=True)
class Wanted:
    """Which jobs to show, and how."""

    queue: str = ""
    state: str = ""
    sort: str = ""
    pods: bool = False
    order: bool = False
    everything: bool = False


@attrs.frozen(kw_only=True)
class JobView:
    """The jobs of one result, as ``kai jobs`` shows them."""

    now: float
    lines: "tuple[JobLine, ...]"
    hidden: int
    """Number of jobs in other namespaces."""
    wanted: Wanted
    kind: str = "JobList"

    def fields(self) -> dict[str, Any]:
        """Return every job by itself: its owner says which replicas belong together."""
        from kai.answers.documents.document import as_json
        from kai.answers.documents.jobs import JobItem, JobList

        return as_json(JobList(items=tuple(JobItem.of(line, with_pods=self.wanted.pods) for line in self.lines)))

    def names(self) -> list[str]:
        """Return the names of the pod groups, as ``-o name`` writes them."""
        return [f"podgroup.scheduling.run.ai/{line.job.name}" for line in self.lines]

    def text(self, console: Console) -> str:
        """Return the jobs as a table."""
        rows = rows_of(self.lines, fold=not (self.wanted.pods or self.wanted.order))
        if self.wanted.sort:
            rows.sort(key=_SORTS[self.wanted.sort])
        if not rows:
            return self._nothing()
        if self.wanted.order:
            parts = [_order_table(rows, console)]
        elif self.wanted.pods:
            parts = [_pod_table(rows, console)]
        else:
            drawn = _table(rows, console, self.now).splitlines()
            # A terminal screen is short; a program that reads a pipe wants every job.
            folds = console.width > 0 and not self.wanted.everything and len(rows) > _SCREEN
            parts = [drawn[0], *(_folded(rows, drawn[1:], console.width) if folds else drawn[1:])]
        return "\n".join([*parts, *self._rest()])

    def _nothing(self) -> str:
        return "\n".join(["no jobs", *self._rest()])

    def _rest(self) -> list[str]:
        return [f"{counted(self.hidden, 'job')} of other namespaces not shown (-A)"] if self.hidden else []


def _complete_states(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(state) for state in _states() if state.startswith(begun.lower())]


@click.command(epilog=EPILOG)
@click.option(
    "--queue", default="", shell_complete=complete_queues, help="Only jobs of this queue, or of queues below it."
)
@click.option(
    "--state",
    default="",
    shell_complete=_complete_states,
    help="Only jobs in this state, as the table calls it; or waiting.",
)
@click.option("--sort", type=click.Choice(tuple(_SORTS)), default=None, help="Sort by this column.")
@click.option("--pods", is_flag=True, help="One line for each pod.")
@click.option("--order", is_flag=True, help="Waiting jobs in the order they are asked, key by key.")
@click.option("--all", "everything", is_flag=True, help="List every job, also where many are alike.")
@source_options()
def jobs(
    source: Source,
    console: Console,
    *,
    queue: str,
    state: str,
    sort: str | None,
    pods: bool,
    order: bool,
    everything: bool,
) -> int:
    """Show what runs, what waits, why, and in which order."""
    if pods and order:
        raise click.UsageError("--pods and --order cannot be used together")
    if state and state.lower() not in (states := _states()):
        raise click.UsageError(f"--state: found {shown(state)}, expected one of {', '.join(states)}")
    wanted = Wanted(queue=queue, state=state.lower(), sort=sort or "", pods=pods, order=order, everything=everything)
    ways = Ways(
        decided=lambda result: job_view(source, result, wanted),
        own=lambda own: own_view(source, own, wanted),
        served=lambda served: served_jobs(source, served, wanted),
    )
    return show(source, console, ways)


def job_view(source: Source, result: "Result", wanted: Wanted) -> JobView:
    """Return the jobs of a result that match the flags.

    Raises: InputError for an unknown queue.
    """
    case, seen = source.case_of(result), result.overview
    if result.outcome is None or seen is None:
        return JobView(now=0.0, lines=(), hidden=0, wanted=wanted)
    queues = _queues_below(result, wanted.queue)
    chosen, hidden = [], 0
    for line in result.lines:
        # Before the namespace: jobs of other queues are not counted as hidden.
        if queues is not None and line.job.queue not in queues:
            continue
        if not _is_in(wanted, line):
            continue
        if source.shows(case, line.job.namespace, line.labels):
            chosen.append(line)
        elif source.selector.matches(line.labels):
            hidden += 1
    return JobView(now=case.now, lines=tuple(chosen), hidden=hidden, wanted=wanted)


def own_view(source: Source, own: "OwnJobs", wanted: Wanted) -> JobView:
    """Return the user's own jobs that match the flags, for a user who may not list the whole cluster.

    Raises: UnreachableError for the order of a queue, which needs the jobs of others.
    """
    if wanted.order:
        # A place in line depends on jobs that this user may not see.
        raise own.refused
    chosen = [
        line
        for line in own.lines
        if wanted.queue in {"", line.job.queue} and _is_in(wanted, line) and source.selector.matches(line.labels)
    ]
    return JobView(now=own.now, lines=tuple(chosen), hidden=0, wanted=wanted)


def served_jobs(source: Source, served: "Served", wanted: Wanted) -> View:
    """Return the jobs from the service that match the flags.

    Raises: UnreachableError where the service does not answer.
    """
    from kai.answers.documents.asking import read
    from kai.answers.documents.jobs import job_lines
    from kai.api import values as times

    pods = "true" if wanted.pods else ""
    document = served.ask("jobs", namespace=served.namespace, queue=wanted.queue, pods=pods)
    listed = read(document, "JobList", job_lines)
    lines = tuple(line for line in listed if _is_in(wanted, line) and source.selector.matches(line.labels))
    keys = {line.job.key for line in lines}
    items = [item for item in document["items"] if f"{item['namespace']}/{item['name']}" in keys]
    # The service's clock: ages would be wrong by how far this machine's differs.
    now = times.instant(document["generatedAt"])
    shown = JobView(now=now, lines=lines, hidden=0, wanted=wanted)
    return ServedView(shown=shown, document={**document, "items": items})


def _queues_below(result: "Result", queue: str) -> frozenset[str] | None:
    """Return the names of a queue and all below it; None without a queue."""
    if not queue:
        return None
    seen = result.overview
    lines = () if seen is None else seen.queues
    names = sorted(line.name for line in lines)
    if queue not in names:
        wanted = f"one of {', '.join(names)}" if names else "a queue; there is none"
        raise InputError.about("command line", "--queue", found=queue, wanted=wanted)
    return frozenset() if seen is None else seen.queues_below(queue)


def _is_in(wanted: Wanted, line: "JobLine") -> bool:
    if wanted.order and not line.waits:
        return False
    if not wanted.state:
        return True
    return line.waits if wanted.state == _WAITING else line.job.state.lower() == wanted.state


def _states() -> list[str]:
    """Return the choices of --state: the states that tables show, and the groups of them."""
    from kai.answers.outcomes.job_states import State

    return sorted([*(state.lower() for state in State), _WAITING])


# -------------------------------------------------------------------------------------------------------------- tables


def _names(rows: Sequence[Row], console: Console) -> list[str]:
    """Return the titles of rows: with the namespace where a name occurs twice, or for ``-o wide``."""
    counts = Counter(row.name for row in rows)
    return [f"{row.namespace}/{row.name}" if console.wide or counts[row.name] > 1 else row.name for row in rows]


def _table(rows: Sequence[Row], console: Console, now: float) -> str:
    heads = [
        Column(head="JOB"),
        Column(head="QUEUE", drop=3),
        Column(head="PRIO", right=True, drop=8),
        Column(head="GPUS", right=True, drop=2),
        *([Column(head="HELD", right=True, drop=5)] if console.wide else []),
        Column(head="PODS", right=True, drop=4),
        Column(head="STATE"),
        Column(head="SINCE", right=True, drop=6),
        Column(head="POS", right=True, drop=7),
        Column(head="REASON", drop=1),
        Column(head="", drop=9, least=24),
    ]
    out = []
    # Format each state and time once: thousands of jobs share few states, and many began together.
    states: dict[str, str] = {}
    spans: dict[float | None, str] = {None: _NONE}
    for row, name in zip(rows, _names(rows, console), strict=True):
        code, text = _reason(row)
        state, since = row.state, row.since
        if state not in states:
            states[state] = console.styled(state, fg=COLORS.get(state))
        if since is not None and since not in spans:
            spans[since] = span(now - since)
        out.append(
            [
                name,
                row.queue,
                _NONE if row.priority is None else str(row.priority),
                row.gpus_text,
                *([_NONE if row.gpus_held is None else number_text(row.gpus_held)] if console.wide else []),
                row.pods,
                states[state],
                spans[since],
                str(row.position or _NONE),
                code or _NONE,
                text,
            ]
        )
    return table(heads, out, console.width)


def _reason(row: Row) -> tuple[str, str]:
    """Return code and text of a reason. Evicted jobs get the cause as the code, which their state repeats otherwise."""
    code, text = row.reason
    if not code and row.ends_in is not None:
        return "", f"ends in {span(row.ends_in)} at the latest"
    if code != row.state:
        return code, text
    causes = list(dict.fromkeys(_CAUSE.findall(text)))
    return ", ".join(cause.capitalize() for cause in causes), _CAUSE.sub("", text) if len(causes) == 1 else text


def _folded(rows: Sequence[Row], drawn: Sequence[str], width: int) -> list[str]:
    """Return the lines of a table, with jobs that look like earlier ones replaced by a count at the end."""
    looks = [_look(row) for row in rows]
    counts = Counter(looks)
    seen: Counter[tuple[str, str, str]] = Counter()
    out: list[str] = []
    for look, line in zip(looks, drawn, strict=True):
        seen[look] += 1
        if seen[look] <= _FIRST or counts[look] < 2 * _FIRST:
            out.append(line)
    for (queue, state, code), count in counts.items():
        if count >= 2 * _FIRST:
            alike = f"all {state}, all {code}" if code else f"all {state}"
            out.append(cut_text(f"… {count - _FIRST} more of {queue}: {alike} (--all)", width))
    return out


def _look(row: Row) -> tuple[str, str, str]:
    return row.queue, str(row.state), row.reason[0]


def _pod_table(rows: Sequence[Row], console: Console) -> str:
    heads = [
        Column(head="POD"),
        Column(head="JOB", drop=3),
        Column(head="QUEUE", drop=4),
        Column(head="GPUS", right=True, drop=2),
        Column(head="STATE"),
        Column(head="NODE"),
    ]
    out = []
    for row, name in zip(rows, _names(rows, console), strict=True):
        place = f"{row.namespace}/" if name != row.name else ""
        for line in row.lines:
            out += [
                [f"{place}{pod.name}", name, row.queue, pod.gpus_text, pod.state, pod.node or _NONE]
                for pod in line.pods
            ]
    return table(heads, out, console.width)


def _order_table(rows: Sequence[Row], console: Console) -> str:
    keys = list(dict.fromkeys(key.name for row in rows for key in row.first.keys))
    heads = [
        Column(head="POS", right=True),
        Column(head="JOB"),
        Column(head="QUEUE"),
        *(Column(head=name.upper(), right=True, drop=len(keys) - at) for at, name in enumerate(keys)),
        Column(head="REASON", drop=len(keys) + 1),
    ]
    out = []
    for row, name in zip(rows, _names(rows, console), strict=True):
        values = {key.name: number_text(key.value) for key in row.first.keys}
        line = [str(row.position or _NONE), name, row.queue]
        out.append([*line, *(values.get(key, _NONE) for key in keys), row.reason[0] or _NONE])
    rule = wrapped("smaller keys go first, from left to right; ties go by age", console.width, indent="  ")
    return f"{table(heads, out, console.width)}\n{rule}"
