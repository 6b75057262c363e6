"""``kai nodes``: a map of GPUs, their queues, and how they are shared.

Each GPU is one cell: a letter for the queue, a block for the share of the GPU that is granted.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import attrs
import click

from kai.basics.errors import InputError
from kai.basics.wording import counted
from kai.cli.completing import complete_jobs
from kai.cli.console import Console
from kai.cli.sources import Source, source_options
from kai.cli.tables import Column, table, wrapped
from kai.cli.views import ServedView, View, Ways, show

if TYPE_CHECKING:
    from kai.answers.outcomes.gpu_slots import NodeSlots, Slices, Slot, User
    from kai.cli.serving import Served
    from kai.lab.request import Result


WIDTH = 3
"""Characters from one GPU to the next."""
HEAD = "GPU "
_BLOCKS = ((750, "█"), (500, "▆"), (250, "▄"), (0, "▂"))
_PARTS = {250: "¼", 500: "½", 750: "¾"}
_STRANGER = "?"
_COLORS = {"used": "green", "shared": "green", "held": "cyan", "leaving": "yellow", "unhealthy": "red"}
_SIGNS = "s▄ partly granted   · free   ○ held   × leaving   ! unhealthy"


def letters_of(nodes: "Iterable[NodeSlots]") -> dict[str, str]:
    """Return a letter for each queue that has a GPU."""
    return letters_for(user.queue for node in nodes for slot in node.slots for user in slot.users if user.queue)


def letters_for(queues: Iterable[str]) -> dict[str, str]:
    """Return a letter for each queue: the first free letter of its name, else any free one."""
    found: dict[str, str] = {}
    for queue in sorted(set(queues)):
        own = [char for char in queue.upper() if char in ascii_uppercase]
        taken = set(found.values())
        found[queue] = next((char for char in [*own, *ascii_uppercase] if char not in taken), _STRANGER)
    return found


def cells(node: "NodeSlots", letters: dict[str, str], console: Console) -> str:
    """Return the GPUs of a node as cells."""
    drawn = [console.styled(_cell(slot, letters), fg=_COLORS.get(slot.state)) for slot in node.slots]
    return " " * len(HEAD) + " ".join(drawn)


def head(count: int) -> str:
    """Return the header of ``count`` GPU numbers above their cells."""
    return HEAD + "".join(f"{number:<{WIDTH}}" for number in range(count)).rstrip()


def _cell(slot: "Slot", letters: dict[str, str]) -> str:
    if not slot.users:
        return "! " if slot.state == "unhealthy" else "· "
    # A promise beside a pod that still runs must not give the cell its letter: the GPU is that pod's until it leaves.
    present = [user for user in slot.users if user.state != "held"] or slot.users
    largest = max(present, key=lambda user: user.share)
    letter = letters.get(largest.queue, _STRANGER)
    if slot.state == "held":
        return f"{letter}○"
    if slot.state == "leaving":
        return f"{letter}×"
    # The last block stands for any rest, so that a share of 1 % still shows.
    block = next(sign for least, sign in _BLOCKS if slot.granted > least or least == 0)
    return f"{letter.lower() if slot.state == 'shared' else letter}{block}"


def shares(node: "NodeSlots") -> str:
    """Return how the shared GPUs of a node are divided: ``2-4: ½+½   5: ¼+¼``."""
    texts = ["+".join(map(_part, slot.users)) if slot.state == "shared" else "" for slot in node.slots]
    out, at = [], 0
    while at < len(texts):
        end = at
        while end + 1 < len(texts) and texts[end + 1] == texts[at]:
            end += 1
        if texts[at]:
            out.append(f"{at}: {texts[at]}" if end == at else f"{at}-{end}: {texts[at]}")
        at = end + 1
    return "   ".join(out) or "-"


def _part(user: "User") -> str:
    text = _PARTS.get(user.share) or f"{user.share / 1000:g}"
    return f"{text}×" if user.state == "leaving" else f"{text}○" if user.state == "held" else text


def slices(node: "NodeSlots") -> str:
    """Return how many MIG slices of each profile are in use: ``1g.10gb 5 of 7   2g.20gb 3 of 3, 1×``."""
    return "   ".join(map(_profile, node.slices)) or "-"


def _profile(found: "Slices") -> str:
    signs = [(found.count("held"), "○"), (found.count("leaving"), "×")]
    marks = "".join(f", {count}{sign}" for count, sign in signs if count)
    return f"{found.profile} {found.in_use} of {found.total}{marks}"


def legend(letters: dict[str, str], nodes: "Sequence[NodeSlots]", width: int = 0) -> str:
    """Return the legend of letters and signs, on lines of at most ``width`` characters."""
    named = "  ".join(f"{letter} {queue}" for queue, letter in letters.items())
    strangers = any(not user.queue for node in nodes for slot in node.slots for user in slot.users)
    parts = [named, f"{_STRANGER} other pods" if strangers else "", _SIGNS]
    if 0 < width < len(named):
        signs = "   ".join(part for part in parts[1:] if part)
        return f"{wrapped(named, width, between='  ')}\n{wrapped(signs, width, between='   ')}"
    return wrapped("   ".join(part for part in parts if part), width, between="   ")


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
"""From this many equal nodes in a row on, one line stands for all."""
_SIZES = (8, 4, 2, 1)


@attrs.frozen(kw_only=True)
class NodeView:
    """The nodes of one result, grouped by the value of a label."""

    parts: "tuple[tuple[str, tuple[NodeSlots, ...]], ...]"
    is_divided: bool
    folds: bool
    bare: int
    """Number of nodes without GPUs, which are not shown."""
    nothing: str = "no nodes"
    """The text shown when no node is left."""
    kind: str = "NodeList"

    @property
    def _nodes(self) -> "list[NodeSlots]":
        return [node for _, nodes in self.parts for node in nodes]

    def fields(self) -> dict[str, Any]:
        """Return every node with its GPUs."""
        from kai.answers.documents.document import as_json
        from kai.answers.documents.nodes import NodeItem, NodeList

        return as_json(NodeList(items=tuple(map(NodeItem.of, self._nodes))))

    def names(self) -> list[str]:
        """Return the names of the nodes, as ``-o name`` writes them."""
        return [f"node/{node.name}" for node in self._nodes]

    def text(self, console: Console) -> str:
        """Return the map, its legend, and the pods that would fit now."""
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
                row += [_free(alike[0]), console.plainly(shares(alike[0]))]  # ¼ is wider in ASCII: convert first
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
    """Return the nodes of a result that match the flags.

    Raises: InputError for an unknown label or job.
    """
    from kai.answers.outcomes.gpu_slots import node_slots

    source.case_of(result)
    seen = result.overview
    namespace, _, name = job.rpartition("/")
    known = [] if seen is None else [each for each in seen.jobs if namespace in {"", each.namespace}]
    if job and name not in {each.name for each in known}:
        raise InputError.about("command line", "--job", found=job, wanted="a job, as kai jobs lists it")
    found = () if result.outcome is None else node_slots(result.outcome)
    return _view_of(source, console, found, by=by, job=job, free=free)


def served_nodes(source: Source, console: Console, served: "Served", *, by: str, job: str, free: int) -> View:
    """Return the nodes from the service that match the flags.

    Raises: UnreachableError where the service does not answer; InputError for an unknown label.
    """
    from kai.answers.documents.asking import read
    from kai.answers.documents.nodes import node_slots

    document = served.ask("nodes")
    view = _view_of(source, console, read(document, "NodeList", node_slots), by=by, job=job, free=free)
    names = {node.name for _, nodes in view.parts for node in nodes}
    # The document of the service as it is, only with fewer items: a newer service may send fields unknown here.
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
        # With --free and no label each node is a part of its own: a gang of that size must fit on one node.
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
    """Return the text for a map without nodes: no part has ``free`` GPUs, or the cluster has no nodes."""
    most = max((sum(node.free for node in nodes) for nodes in parts), default=None)
    if most is None or not free:
        return "no nodes"
    return f"no {label.rpartition('/')[2] or 'node'} has {counted(free, 'free GPU')}; the most is {most}"


def _label(by: str, nodes: "Sequence[NodeSlots]") -> str:
    """Return the node label that ``by`` names in full or by the last part of its name."""
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
    """Return the usual short form of a product's name: ``H100`` of ``NVIDIA-H100-80GB-HBM3``."""
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
    """Return nodes in runs of equal ones; runs too short to fold are split up."""
    runs: list[list[NodeSlots]] = []
    for node in nodes:
        if runs and folds and _look(runs[-1][0]) == _look(node):
            runs[-1].append(node)
        else:
            runs.append([node])
    return [part for run in runs for part in ([run] if len(run) >= _ALIKE else [[node] for node in run])]


def _look(node: "NodeSlots") -> tuple[object, ...]:
    """Return the key by which nodes look equal on the map."""
    # Without names of pods and jobs: the map shows queues, and replicas of one job would otherwise never look alike.
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
    gangs = ", or ".join(f"{counted(count, 'pod')} x {counted(size, 'GPU')}" for size, count in fits if count)
    return f"largest gang that would start now without evicting: {gangs} ({free} of {total} GPUs are free){also}"
