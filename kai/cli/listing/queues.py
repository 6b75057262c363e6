"""``kai queues``: who is entitled to what, who has it, who wants it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from kai.cli.completing import complete_queues
from kai.cli.console import Console
from kai.cli.listing.shares import CPU, GPU, MEMORY, RESOURCES, UNITS, absent_queues, below_trees, queue_tree
from kai.cli.sources import Source, source_options
from kai.cli.tables import wrapped
from kai.cli.views import ServedView, View, Ways, show
from kai.errors import InputError
from kai.wording import number_text

if TYPE_CHECKING:
    from kai.cli.serving import Served
    from kai.simulation.outcomes.queue_lines import QueueLine
    from kai.simulation.request import Result

EPILOG = """\
Amounts are those of the queue and all queues below it. FAIR is the fair share: quota, and a part of what
others leave, as far as the queue asks for it. WANT is what runs and what waits.

\b
  kai queues
  kai queues team-a --resource cpu
  kai queues --from snapshot.zip -o json
  kai queues --propose queues.yaml --queue-from kueue
"""


@attrs.frozen(kw_only=True)
class QueueView:
    """The queues of one result."""

    result: "Result"
    lines: "tuple[QueueLine, ...]"
    resource: int | None
    """The one that is asked for; None for what the cluster is about."""
    flat: bool
    is_whole: bool = True
    """Whether all queues are asked for."""
    kind: str = "QueueList"

    def fields(self) -> dict[str, Any]:
        """Return every queue with all its resources."""
        from kai.documents.queues import queue_items
        from kai.simulation.outcomes.declared import left_out
        from kai.simulation.outcomes.entitlement import steps_of

        outcome, seen = self.result.outcome, self.result.overview
        if outcome is None or seen is None:
            return {"items": [], "leftOut": []}
        unit = UNITS[GPU][0] if seen.totals[GPU] else 1.0  # CPU is told in millicores
        labels = {each.metadata.name: each.metadata.labels for each in outcome.case.objects.queues}
        items = queue_items(self.lines, outcome.last.snapshot.queues, steps_of(outcome, seen), unit, labels)
        absent = left_out(outcome) if self.is_whole else ()
        told = [{"name": name, "code": words.code, "text": words.text} for name, words in absent]
        return {"items": items, "leftOut": told}

    def names(self) -> list[str]:
        """Return the queues."""
        return [f"queue.scheduling.run.ai/{line.name}" for line in self.lines]

    def text(self, console: Console) -> str:
        """Return the tree with bars, and who would have more."""
        seen = self.result.overview
        absent = absent_queues(self.result, console) if seen is not None and self.is_whole else ""
        if seen is None or not self.lines:
            return absent or "no queues"
        if self.resource is not None:
            resources = [self.resource]
        elif console.wide:
            resources = [GPU, CPU, MEMORY]
        else:
            resources = [GPU if seen.totals[GPU] else CPU]
        parts = _drawn(self.lines, seen.totals, resources, console, flat=self.flat)
        return "\n".join([*parts, absent] if absent else parts)


@click.command(epilog=EPILOG)
@click.argument("queue", required=False, default="", shell_complete=complete_queues)
@click.option("--resource", type=click.Choice(tuple(RESOURCES)), default=None, help="Show this resource.")
@click.option("--flat", is_flag=True, help="A plain list by name, without the tree.")
@click.option(
    "--propose",
    "file",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[FILE]",
    help="Show queues that there could be instead: of namespaces, of Kueue's or Volcano's queues (--queue-from), or of "
    "the accounts in a file of Slurm. With FILE save them as manifests.",
)
@source_options()
def queues(source: Source, console: Console, *, queue: str, resource: str | None, flat: bool, file: str | None) -> int:
    """Show who is entitled to what, who has it, and who wants it: all queues, or QUEUE and those below it."""
    if file is not None:
        from kai.cli.listing.proposing import propose_queues

        return propose_queues(source, console, file)
    chosen = None if resource is None else RESOURCES[resource]
    ways = Ways(
        decided=lambda result: queue_view(source, result, queue, chosen, flat=flat),
        served=lambda served: served_queues(source, served, queue, chosen, flat=flat),
    )
    return show(source, console, ways)


@attrs.frozen(kw_only=True)
class ServedQueues:
    """The queues that the service shows."""

    lines: "tuple[QueueLine, ...]"
    resource: int | None
    flat: bool

    def names(self) -> list[str]:
        """Return the queues."""
        return [f"queue.scheduling.run.ai/{line.name}" for line in self.lines]

    def text(self, console: Console) -> str:
        """Return the tree with bars, on a scale that ends where the topmost queues do."""
        if not self.lines:
            return "no queues"
        tops = [line for line in self.lines if not line.depth]
        totals = [sum(max(line.shares[at].fair_share, line.shares[at].used) for line in tops) for at in range(3)]
        resource = self.resource if self.resource is not None else GPU if totals[GPU] else CPU
        return "\n".join(_drawn(self.lines, totals, [resource], console, flat=self.flat))


def _drawn(
    lines: "Sequence[QueueLine]", totals: Sequence[float], resources: Sequence[int], console: Console, *, flat: bool
) -> list[str]:
    """Return a tree for each resource, what its signs mean, and who would have more of the first."""
    shown = [attrs.evolve(line, last=()) for line in lines] if flat else lines
    trees = [queue_tree(shown, totals[resource], resource, console) for resource in resources]
    parts = ["\n\n".join(trees), below_trees(totals, resources, console)]
    hungry = _hungriest(lines, resources[0])
    return [*parts, wrapped(hungry, console.width, indent="  ")] if hungry else parts


def served_queues(source: Source, served: "Served", queue: str, resource: int | None, *, flat: bool) -> View:
    """Return the queues that the service shows to this user.

    Raises: UnreachableError where it does not answer.
    """
    from kai.documents.asking import read
    from kai.documents.reading import queue_lines

    document = served.ask("queues", queue=queue)
    items = [item for item in document["items"] if source.selector.matches(item.get("labels") or {})]
    chosen = {**document, "items": items}
    lines = read(chosen, "QueueList", queue_lines)
    return ServedView(shown=ServedQueues(lines=lines, resource=resource, flat=flat), document=chosen)


def queue_view(source: Source, result: "Result", queue: str, resource: int | None, *, flat: bool) -> QueueView:
    """Return the queues of a result that are asked for.

    Raises: InputError for a queue that is not there.
    """
    seen = result.overview
    lines = () if seen is None else seen.queues
    if queue:
        _check_takes_part(result, queue)
        lines = _subtree(lines, queue)
    labels = {each.metadata.name: each.metadata.labels for each in source.case_of(result).objects.queues}
    chosen = [line for line in lines if source.selector.matches(labels.get(line.name, {}))]
    if flat:
        chosen.sort(key=lambda line: line.name)
    is_whole = not queue and not source.selector.requirements
    return QueueView(result=result, lines=tuple(chosen), resource=resource, flat=flat, is_whole=is_whole)


def _check_takes_part(result: "Result", queue: str) -> None:
    """Raise InputError for a queue that is written down and belongs to no tree."""
    from kai.simulation.outcomes.declared import left_out

    words = None if result.outcome is None else dict(left_out(result.outcome)).get(queue)
    if words is not None:
        raise InputError(f"{words.text} ({words.code})")


def _subtree(lines: "Sequence[QueueLine]", queue: str) -> "tuple[QueueLine, ...]":
    """Return a queue and all below it, drawn as a tree of its own."""
    top = next((line for line in lines if line.name == queue), None)
    if top is None:
        names = ", ".join(sorted(line.name for line in lines))
        raise InputError.about("command line", "QUEUE", found=queue, wanted=f"one of {names}" if names else "none")
    found, below = [], {queue}
    for line in lines:  # parents come before their children
        if line.name == queue or line.parent in below:
            below.add(line.name)
            found.append(attrs.evolve(line, last=line.last[top.depth :]))
    return tuple(found)


def _hungriest(lines: "Sequence[QueueLine]", resource: int) -> str:
    """Return a sentence about the leaf queue that wants most beyond what it has; "" where no queue wants more."""
    unit, noun = UNITS[resource]
    leaves = [line for line in lines if line.leaf]
    if not leaves:
        return ""
    line = max(leaves, key=lambda line: line.shares[resource].wanted - line.shares[resource].used)
    share = line.shares[resource]
    more = (share.wanted - share.used) / unit
    if more < 0.0005:
        return ""
    at = share.fair_share - share.used
    relation = "is at" if abs(at) < unit / 1000 else "is above" if at < 0 else "is below"
    amount = number_text(more, 4)
    wanted = f"{amount} {noun.removesuffix('s') if amount == '1' else noun}"
    return f"{line.name} wants {wanted} more and {relation} its fair share. kai why queue/{line.name}"
