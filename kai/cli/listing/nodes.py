"""``kai nodes``: where the GPUs are, who has them, and in what pieces."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from kai.cli.completing import complete_jobs
from kai.cli.console import Console
from kai.cli.listing.cells import cells, head, legend, letters_of, shares, slices
from kai.cli.sources import Source, source_options
from kai.cli.tables import Column, table, wrapped
from kai.cli.views import ServedView, View, Ways, show
from kai.errors import InputError
from kai.wording import counted

if TYPE_CHECKING:
    from kai.cli.serving import Served
    from kai.simulation.outcomes.gpu_slots import NodeSlots
    from kai.simulation.request import Result

EPILOG = """\
One cell is one GPU: the letter is the queue (small where the GPU is shared), the block how much is granted.
MIG slices are counted by profile: in use, of all.
Kubernetes does not say which whole GPU a pod has: whole GPUs are numbered in the order of jobs.

\b
  kai nodes
  kai nodes --by rack --free 16
  kai nodes --job train --from snapshot.zip
"""
_MAKERS = frozenset({"nvidia", "tesla", "geforce", "amd", "instinct", "quadro"})
_ALIKE = 3
"""From so many equal nodes in a row on, one line stands for all."""
_SIZES = (8, 4, 2, 1)


@attrs.frozen(kw_only=True)
class NodeView:
    """The nodes of one result, in parts that are labelled alike."""

    parts: "tuple[tuple[str, tuple[NodeSlots, ...]], ...]"
    is_divided: bool
    folds: bool
    bare: int
    """Nodes without GPUs, which are not shown."""
    nothing: str = "no nodes"
    """What is said where no node is left."""
    kind: str = "NodeList"

    @property
    def _nodes(self) -> "list[NodeSlots]":
        return [node for _, nodes in self.parts for node in nodes]

    def fields(self) -> dict[str, Any]:
        """Return every node with its GPUs."""
        from kai.documents.nodes import node_values

        return {"items": [node_values(node) for node in self._nodes]}

    def names(self) -> list[str]:
        """Return the nodes."""
        return [f"node/{node.name}" for node in self._nodes]

    def text(self, console: Console) -> str:
        """Return the map, what its signs mean, and what would fit now."""
        nodes = self._nodes
        lines = [] if nodes else [self.nothing]
        if nodes:
            letters = letters_of(nodes)
            lines += self._map(letters, console)
            lines.append(legend(letters, nodes, console.width))
            lines.append(wrapped(_room(nodes), console.width, indent="  "))
        if self.bare:
            lines.append(f"{counted(self.bare, 'node')} without GPUs not shown (-o wide)")
        return "\n".join(lines)

    def _map(self, letters: dict[str, str], console: Console) -> list[str]:
        indent = "  " if self.is_divided else ""
        most = max(len(node.slots) for node in self._nodes)
        heads = [
            Column(head="NODE"),
            Column(head="TYPE", drop=2),
            Column(head=head(most)),
            Column(head="FREE", right=True),
            Column(head="SHARED GPUS", drop=3, least=11),
        ]
        sliced = any(node.slices for node in self._nodes)
        heads += [Column(head="MIG SLICES", drop=1)] if sliced else []
        rows: list[list[str]] = []
        titles: dict[int, str] = {}
        for name, nodes in self.parts:
            if self.is_divided:
                titles[len(rows)] = _title(name, nodes)
            for alike in _runs(nodes, folds=self.folds and not console.wide):
                row = [_named(alike), short_type(alike[0].product), cells(alike[0], letters, console)]
                row += [_free(alike[0]), console.plainly(shares(alike[0]))]  # a quarter is longer in ASCII
                row += [console.plainly(slices(alike[0]))] if sliced else []
                rows.append([f"{indent}{row[0]}", *row[1:]])
        drawn = table(heads, rows, console.width).splitlines()
        out = drawn[:1]
        for at, line in enumerate(drawn[1:]):
            out += [titles[at]] if at in titles else []
            out.append(line)
        return out


@click.command(epilog=EPILOG)
@click.option("--by", default="", metavar="LABEL", help="Divide nodes by this label, or the last part of its name.")
@click.option(
    "--job",
    default="",
    metavar="NAME",
    shell_complete=complete_jobs,
    help="Only nodes on which this job has a place.",
)
@click.option("--free", type=click.IntRange(min=1), default=None, metavar="N", help="Only where N whole GPUs are free.")
@source_options()
def nodes(source: Source, console: Console, *, by: str, job: str, free: int | None) -> int:
    """Show where the GPUs are, who has them, and in what pieces."""
    ways = Ways(
        decided=lambda result: node_view(source, console, result, by=by, job=job, free=free or 0),
        served=lambda served: served_nodes(source, console, served, by=by, job=job, free=free or 0),
    )
    return show(source, console, ways)


def node_view(source: Source, console: Console, result: "Result", *, by: str, job: str, free: int) -> NodeView:
    """Return the nodes of a result that are asked for.

    Raises: InputError for a label or a job that is not there.
    """
    from kai.simulation.outcomes.gpu_slots import node_slots

    source.case_of(result)
    seen = result.overview
    namespace, _, name = job.rpartition("/")
    known = [] if seen is None else [each for each in seen.jobs if namespace in {"", each.namespace}]
    if job and name not in {each.name for each in known}:
        raise InputError.about("command line", "--job", found=job, wanted="a job, as kai jobs lists it")
    found = () if result.outcome is None else node_slots(result.outcome)
    return _view_of(source, console, found, by=by, job=job, free=free)


def served_nodes(source: Source, console: Console, served: "Served", *, by: str, job: str, free: int) -> View:
    """Return the nodes that are asked for, of those that the service shows to this user.

    Raises: UnreachableError where it does not answer; InputError for a label that is not there.
    """
    from kai.documents.asking import read
    from kai.documents.reading import node_slots

    document = served.ask("nodes")
    view = _view_of(source, console, read(document, "NodeList", node_slots), by=by, job=job, free=free)
    names = {node.name for _, nodes in view.parts for node in nodes}
    items = [item for item in document["items"] if item["name"] in names]
    return ServedView(shown=view, document={**document, "items": items})


def _view_of(
    source: Source, console: Console, found: "Sequence[NodeSlots]", *, by: str, job: str, free: int
) -> NodeView:
    found = tuple(node for node in found if source.selector.matches(node.labels))
    label = _label(by, found)
    if job:
        found = _with_job(job, found)
    has_gpus = any(node.slots or node.slices for node in found)
    shown = [node for node in found if node.slots or node.slices or console.wide or not has_gpus]
    parts: dict[str, list[NodeSlots]] = {}
    for node in shown:
        parts.setdefault(node.labels.get(label, "-") if label else node.name if free else "", []).append(node)
    kept = {name: nodes for name, nodes in sorted(parts.items()) if sum(node.free for node in nodes) >= free}
    if not label:
        kept = {"": [node for nodes in kept.values() for node in nodes]}
    return NodeView(
        parts=tuple((name, tuple(nodes)) for name, nodes in kept.items()),
        is_divided=bool(label),
        folds=not job,
        bare=len(found) - len(shown),
        nothing=_nothing(parts.values(), label, free),
    )


def _nothing(parts: "Iterable[Sequence[NodeSlots]]", label: str, free: int) -> str:
    """Return what is said where no part has ``free`` GPUs: a cluster with nodes is not without any."""
    most = max((sum(node.free for node in nodes) for nodes in parts), default=None)
    if most is None or not free:
        return "no nodes"
    return f"no {label.rpartition('/')[2] or 'node'} has {counted(free, 'free GPU')}; the most is {most}"


def _label(by: str, nodes: "Sequence[NodeSlots]") -> str:
    """Return the label that ``by`` names: whole, or by the last part of its name."""
    known = sorted({key for node in nodes for key in node.labels})
    if not by or by in known:
        return by
    near = [key for key in known if key.rpartition("/")[2] == by]
    if len(near) == 1:
        return near[0]
    wanted = f"one of {', '.join(near or known)}" if known else "a label of nodes; they have none"
    raise InputError.about("command line", "--by", found=by, wanted=wanted)


def _with_job(job: str, nodes: "Sequence[NodeSlots]") -> "tuple[NodeSlots, ...]":
    namespace, _, name = job.rpartition("/")
    return tuple(
        node
        for node in nodes
        if any(each == name and namespace in {"", its_namespace} for its_namespace, each in _jobs_on(node))
    )


def _jobs_on(node: "NodeSlots") -> Iterator[tuple[str, str]]:
    for slot in node.slots:
        yield from ((user.namespace, user.job) for user in slot.users)
    for slices_of_profile in node.slices:
        yield from ((user.namespace, user.job) for user in slices_of_profile.users)


# ---------------------------------------------------------------------------------------------------------------- text


def short_type(product: str) -> str:
    """Return the part of a product's name that people use: ``H100`` of ``NVIDIA-H100-80GB-HBM3``."""
    parts = [part for part in re.split(r"[-_ ]", product) if part and part.lower() not in _MAKERS]
    return next((part for part in parts if any(char.isdigit() for char in part)), parts[0] if parts else "-")


def _title(name: str, nodes: "Sequence[NodeSlots]") -> str:
    gpus = sum(node.gpus for node in nodes)
    return f"{name} · {counted(gpus, 'GPU')} · {sum(node.free for node in nodes)} free"


def _free(node: "NodeSlots") -> str:
    if node.over:
        return f"over by {node.over}"
    return str(node.free) if node.ready else "off"


def _named(alike: "Sequence[NodeSlots]") -> str:
    if len(alike) == 1:
        return alike[0].name
    return f"{alike[0].name} … {alike[-1].name} ({len(alike)})"


def _runs(nodes: "Sequence[NodeSlots]", *, folds: bool) -> "list[list[NodeSlots]]":
    """Return nodes in runs of equal ones; short runs are taken apart."""
    runs: list[list[NodeSlots]] = []
    for node in nodes:
        if runs and folds and _look(runs[-1][0]) == _look(node):
            runs[-1].append(node)
        else:
            runs.append([node])
    return [part for run in runs for part in ([run] if len(run) >= _ALIKE else [[node] for node in run])]


def _look(node: "NodeSlots") -> tuple[object, ...]:
    """Return what is equal for nodes that look the same."""
    slots = [(slot.state, [(user.queue, user.share, user.state) for user in slot.users]) for slot in node.slots]
    slices = [(each.resource, each.total, each.in_use, each.count("held")) for each in node.slices]
    return node.product, node.ready, slots, slices


def _room(nodes: "Sequence[NodeSlots]") -> str:
    """Return how many pods of some sizes would fit now, by GPUs alone, and which MIG slices are free."""
    free, total = sum(node.free for node in nodes), sum(node.gpus for node in nodes)
    left: Counter[str] = Counter()
    for node in nodes:
        left.update({each.profile: each.free if node.ready else 0 for each in node.slices})
    sliced = ", ".join(f"{count} x {profile}" for profile, count in sorted(left.items()) if count) or "none"
    also = f"; MIG slices that are free: {sliced}" if left else ""
    if left and not total:
        return also.removeprefix("; ")
    if not free:
        return f"largest gang that would start now without evicting: none, 0 of {total} GPUs are free{also}"
    fits = [(size, sum(node.free // size for node in nodes)) for size in _SIZES]
    told = ", or ".join(f"{counted(count, 'pod')} x {counted(size, 'GPU')}" for size, count in fits if count)
    return f"largest gang that would start now without evicting: {told} ({free} of {total} GPUs are free){also}"
