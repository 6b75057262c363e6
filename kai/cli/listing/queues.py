"""``kai queues``: the queue tree with bars: fair share, usage and demand of each queue."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kai.basics.errors import InputError
from kai.basics.wording import number_text
from kai.cli.completing import complete_queues
from kai.cli.console import Console
from kai.cli.sources import Source, source_options
from kai.cli.tables import Cell, Column, columns, table, wrapped
from kai.cli.views import ServedView, View, Ways, show

if TYPE_CHECKING:
    from kai.answers.outcomes.overview import Overview
    from kai.answers.outcomes.queue_lines import QueueLine, QueueWeek, Share
    from kai.cli.serving import Served
    from kai.lab.request import Result


CELLS = 40
_LEAST_CELLS = 10
_BESIDE = 2
"""Room beside a bar for usage beyond the total, and in the header for the last digit of the scale."""
SHORT_LEGEND = "█ used  ▓ above fair share  ░ wanted  ◆ fair share  | quota  ] limit"
LEGEND = "█ used  ▓ used above fair share (can be reclaimed)  ░ wanted  ◆ fair share  | quota  ] limit  » more"
CPU, MEMORY, GPU = 0, 1, 2
RESOURCES = {"gpu": GPU, "cpu": CPU, "memory": MEMORY}
"""The names of resources in flags."""
UNITS = {CPU: (1000.0, "cores"), MEMORY: (1e9, "GB"), GPU: (1000.0, "GPUs")}
"""For each resource: axis units in one displayed unit, and the name of that unit."""
_NOUNS = {GPU: "GPUs", CPU: "CPU cores", MEMORY: "memory"}


def queue_tables(seen: "Overview", console: Console) -> str:
    """Return the tree for GPUs, or for CPU in a cluster without GPUs; for every resource with ``-o wide``."""
    resources = [GPU, CPU, MEMORY] if console.wide else [GPU if seen.totals[GPU] else CPU]
    return "\n\n".join(
        [
            *(queue_tree(seen.queues, seen.totals[resource], resource, console) for resource in resources),
            below_trees(seen.totals, resources, console),
            *filter(None, [model_table(seen.queues, console), user_table(seen.queues, console)]),
        ]
    )


def model_table(queues: "Sequence[QueueLine]", console: Console) -> str:
    """Return what queues use of the models of GPUs that they bound; "" if none bounds any."""
    unit, named = UNITS[GPU][0], [(queue.name, each) for queue in queues for each in queue.models]
    has_quotas = any(each.quota != 0 for _, each in named)
    rows: list[list[Cell]] = [
        [
            name,
            each.model,
            *((_amount(each.quota, unit), _amount(each.deserved, unit)) if has_quotas else ()),
            _amount(each.limit, unit),
            _amount(each.used, unit),
        ]
        for name, each in named
    ]
    amounts = (*(("QUOTA", "OWED") if has_quotas else ()), "LIMIT", "USED")
    heads = [Column(head="QUEUE"), Column(head="MODEL"), *(Column(head=each, right=True) for each in amounts)]
    return table(heads, rows, console.width) if rows else ""


def user_table(queues: "Sequence[QueueLine]", console: Console) -> str:
    """Return what users hold in queues that limit users; "" if there are none."""
    rows: list[list[Cell]] = [
        [queue.name, each.user, noun, _amount(each.limit, unit), _amount(each.used, unit)]
        for queue in queues
        for each in queue.users
        for unit, noun in [UNITS[RESOURCES[each.resource]]]
    ]
    amounts = (Column(head=each, right=True) for each in ("LIMIT", "HOLDS"))
    heads = [Column(head="QUEUE"), Column(head="USER"), Column(head="OF"), *amounts]
    return table(heads, rows, console.width) if rows else ""


def absent_queues(result: "Result", console: Console) -> str:
    """Return a block with the queues that exist but take no part, each with the reason; "" if there are none."""
    from kai.answers.outcomes.overview import left_out

    if result.outcome is None:
        return ""
    lines = [f"{words.text} ({words.code})" for _, words in left_out(result.outcome)]
    return "\n".join(wrapped(line, console.width, indent="  ") for line in lines)


def below_trees(totals: Sequence[float], resources: Sequence[int], console: Console) -> str:
    """Return the legend of the bars of these resources, or why there are no bars."""
    if not any(totals[resource] > 0 for resource in resources):
        lacking = [noun for resource, noun in _NOUNS.items() if totals[resource] <= 0]
        return wrapped(f"no bars are drawn: there {_are_no(lacking)} to share", console.width, indent="  ")
    return console.styled(wrapped(LEGEND, console.width, between="  "), dim=True)


def _are_no(nouns: Sequence[str]) -> str:
    verb = "is" if nouns[0] == _NOUNS[MEMORY] else "are"
    *first, last = (f"no {noun}" for noun in nouns)
    return f"{verb} {', '.join(first)} and {last}" if first else f"{verb} {last}"


def queue_tree(queues: "Sequence[QueueLine]", total: float, resource: int, console: Console) -> str:
    """Return the queues as a tree, with bars on a scale that ends at ``total``; without bars if it is 0."""
    unit, noun = UNITS[resource]
    name = noun.upper() if noun.islower() else noun
    heads = [
        Column(head="QUEUE"),
        Column(head="QUOTA", right=True, drop=2),
        Column(head="LIMIT", right=True, drop=4),
        Column(head="FAIR", right=True),
        Column(head="USED", right=True),
        Column(head="WANT", right=True, drop=1),
        Column(head="RUN/WAIT", right=True, drop=5),
        Column(
            head=lambda width: _scale(total / unit, name, width - _BESIDE),
            least=_LEAST_CELLS + _BESIDE,
            most=CELLS + _BESIDE,
            drop=3,
        ),
    ]
    rows: list[list[Cell]] = [
        [
            _branches(queue) + queue.name,
            _amount(queue.shares[resource].quota, unit),
            _amount(queue.shares[resource].limit, unit),
            _amount(queue.shares[resource].fair_share, unit),
            _amount(queue.shares[resource].used, unit),
            _amount(queue.shares[resource].wanted, unit),
            f"{queue.running}/{queue.waiting}",
            _drawn_bar(queue.shares[resource], total, console),
        ]
        for queue in queues
    ]
    # There is no scale without a total, and a column of empty bars would look like idle queues.
    if total <= 0:
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return table(heads, rows, console.width)


def _drawn_bar(share: "Share", total: float, console: Console) -> Callable[[int], str]:
    return lambda width: bar(share, total, console, width - _BESIDE)


def _branches(queue: "QueueLine") -> str:
    if not queue.last:
        return ""
    stem = "".join("   " if last else "│  " for last in queue.last[:-1])
    return stem + ("└─ " if queue.last[-1] else "├─ ")


def _scale(total: float, name: str, cells: int = CELLS) -> str:
    """Return the header of the bars: the amounts at every quarter."""
    line = f"0 {name}"
    for quarter in range(1, 5):
        text = number_text(total * quarter / 4, 4)
        # The last amount ends at the edge, so its digits may push out the one before; that one is then left out.
        place = cells * quarter // 4 if quarter < 4 else cells + _BESIDE - len(text)
        if place > len(line) and (quarter == 4 or place + len(text) < cells + _BESIDE - len(number_text(total, 4))):
            line = line.ljust(place) + text
    return line


def _amount(value: float | None, unit: float) -> str:
    return "-" if value is None else number_text(value / unit, 4)


def bar(share: "Share", total: float, console: Console, size: int = CELLS) -> str:
    """Return the bar of one queue, ``size`` characters wide, on a scale that ends at ``total``."""
    if total <= 0:
        return ""

    def place(amount: float) -> int:
        return min(size, round(amount * size / total))

    used, wanted, fair = place(share.used), place(share.wanted), place(share.fair_share)
    # One cell more than the scale, for a fair share of everything and for demand beyond it.
    cells = [" "] * (size + 1)
    for at in range(max(used, wanted)):
        cells[at] = ("█" if at < fair else "▓") if at < used else "░"
    if share.limit is not None and place(share.limit) < size:
        cells[place(share.limit)] = "]"
    if share.quota is not None and place(share.quota) != fair and place(share.quota) < size:
        cells[place(share.quota)] = "|"
    # After quota and limit, which have columns of their own: where they coincide, the fair share shows.
    cells[fair] = "◆"
    if share.wanted > total:
        cells[size] = "»"
    return _colored("".join(cells).rstrip(), console)


def _colored(text: str, console: Console) -> str:
    if not console.color:
        return text
    colors: Mapping[str, str] = {"█": "green", "▓": "yellow", "░": "blue"}
    return "".join(console.styled(char, fg=colors[char]) if char in colors else char for char in text)


def fair_share_table(title: str, answer: Mapping[str, Any]) -> str:
    """Return the answer of a fair-share case as a table."""
    resources = sorted({resource for shares in answer["fairShare"].values() for resource in shares})
    rows = [["QUEUE", *(resource.upper() for resource in resources)]]
    for uid, shares in answer["fairShare"].items():
        rows.append([uid, *(number_text(shares.get(resource, 0.0)) for resource in resources)])
    rows.append(["left over", *(number_text(answer["remaining"].get(resource, 0.0)) for resource in resources)])
    return f"{title}\n\n" + columns(rows, right=set(range(1, len(resources) + 1)))


def _hours(amount: float | None) -> str:
    return "unknown" if amount is None else number_text(round(amount, 1), 9)


EPILOG = """\
Amounts are those of the queue and all queues below it. FAIR is the fair share: quota, and a part of what
others leave, as far as the queue asks for it. WANT is what runs and what waits.

\b
  kai queues
  kai queues team-a --resource cpu
  kai queues --from snapshot.zip -o json
  kai queues --at "Fri 22:00"
  kai queues --week team-a
  kai queues --propose queues.yaml --queue-from kueue
"""


@attrs.frozen(kw_only=True)
class QueueView:
    """The queues of one result, as ``kai queues`` shows them."""

    result: "Result"
    lines: "tuple[QueueLine, ...]"
    resource: int | None
    """The resource of the flag; None to choose by the cluster."""
    flat: bool
    is_whole: bool = True
    """Whether all queues are shown."""
    kind: str = "QueueList"

    def fields(self) -> dict[str, Any]:
        """Return every queue with all its resources."""
        from kai.answers.documents.document import as_json
        from kai.answers.documents.queues import AbsentQueue, QueueList, queue_items
        from kai.answers.outcomes.entitlement import steps_of
        from kai.answers.outcomes.overview import left_out
        from kai.answers.outcomes.queue_lines import budget_lines

        outcome, seen = self.result.outcome, self.result.overview
        if outcome is None or seen is None:
            return as_json(QueueList(items=(), left_out=()))
        unit = UNITS[GPU][0] if seen.totals[GPU] else 1.0  # documents have CPU in millicores
        labels = {each.metadata.name: each.metadata.labels for each in outcome.case.objects.queues}
        steps, budgets = steps_of(outcome, seen), budget_lines(outcome.last)
        items = queue_items(self.lines, outcome.last.snapshot.queues, steps, unit, labels, budgets)
        absent = left_out(outcome) if self.is_whole else ()
        omitted = tuple(AbsentQueue(name=name, code=str(words.code), text=words.text) for name, words in absent)
        return as_json(QueueList(items=items, left_out=omitted))

    def names(self) -> list[str]:
        """Return the names of the queues, as ``-o name`` writes them."""
        return [f"queue.scheduling.run.ai/{line.name}" for line in self.lines]

    def text(self, console: Console) -> str:
        """Return the tree with bars, and the queue that wants most beyond its usage."""
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
        return "\n".join(filter(None, [*parts, absent, self._budgets()]))

    def _budgets(self) -> str:
        """Return a table of the budgets of the shown queues; "" without any."""
        from kai.answers.outcomes.queue_lines import budget_lines, budget_text
        from kai.facts.model.budgets import WARN

        shown = {line.name for line in self.lines}
        found = () if self.result.outcome is None else budget_lines(self.result.outcome.last)
        found = tuple(each for each in found if each.queue in shown)
        rows = [
            [
                f"{each.queue}/{each.name}",
                *map(_hours, (each.amount, each.used, each.held, each.left)),
                each.begins_anew or "-",
            ]
            for each in found
        ]
        head = ["BUDGET", "GPU-HOURS", "USED", "HELD", "LEFT", "BEGINS ANEW"]
        # What a budget that bounds starts has left is said where work waits; of one that warns only nothing else is.
        notes = [budget_text(each) for each in found if each.is_used_up and each.enforce == WARN]
        return "\n".join(["", columns([head, *rows], right={1, 2, 3, 4}), *notes]) if rows else ""


@click.command(epilog=EPILOG)
@click.argument("queue", required=False, default="", shell_complete=complete_queues)
@click.option("--resource", type=click.Choice(tuple(RESOURCES)), default=None, help="Show this resource.")
@click.option("--flat", is_flag=True, help="A plain list by name, without the tree.")
@click.option("--week", is_flag=True, help="Show the quotas of a week, of queues whose quota follows the clock.")
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
def queues(
    source: Source, console: Console, *, queue: str, resource: str | None, flat: bool, week: bool, file: str | None
) -> int:
    """Show who is entitled to what, who has it, and who wants it: all queues, or QUEUE and those below it."""
    if file is not None:
        from kai.cli.listing.proposing import propose_queues

        return propose_queues(source, console, file)
    if week:
        return show(source, console, Ways(decided=lambda result: week_view(source, result, queue, resource)))
    chosen = None if resource is None else RESOURCES[resource]
    ways = Ways(
        decided=lambda result: queue_view(source, result, queue, chosen, flat=flat),
        served=lambda served: served_queues(source, served, queue, chosen, flat=flat),
    )
    return show(source, console, ways)


def week_view(source: Source, result: "Result", queue: str, resource: str | None) -> "WeekView":
    """Return the weeks of the queues that match the flags.

    Raises: InputError for an unknown queue.
    """
    from kai.answers.outcomes.queue_lines import weeks_of

    if queue:
        _check_takes_part(result, queue)
    case = source.case_of(result)
    found = [
        each
        for each in case.objects.queues
        if queue in {"", each.metadata.name} and source.selector.matches(each.metadata.labels)
    ]
    return WeekView(weeks=weeks_of(found, case.now), resource=resource or "gpu")


@attrs.frozen(kw_only=True)
class ServedQueues:
    """The queues that the service shows."""

    lines: "tuple[QueueLine, ...]"
    resource: int | None
    flat: bool

    def names(self) -> list[str]:
        """Return the names of the queues, as ``-o name`` writes them."""
        return [f"queue.scheduling.run.ai/{line.name}" for line in self.lines]

    def text(self, console: Console) -> str:
        """Return the tree with bars, on a scale that ends at the total of the topmost queues."""
        if not self.lines:
            return "no queues"
        tops = [line for line in self.lines if not line.depth]
        # A user of one namespace may not list nodes, so the total of the
        # cluster is unknown; the topmost queues divide it.
        totals = [sum(max(line.shares[at].fair_share, line.shares[at].used) for line in tops) for at in range(3)]
        resource = self.resource if self.resource is not None else GPU if totals[GPU] else CPU
        return "\n".join(_drawn(self.lines, totals, [resource], console, flat=self.flat))


def _drawn(
    lines: "Sequence[QueueLine]", totals: Sequence[float], resources: Sequence[int], console: Console, *, flat: bool
) -> list[str]:
    """Return a tree for each resource, the legend, and the queue that wants most of the first resource."""
    shown = [attrs.evolve(line, last=()) for line in lines] if flat else lines
    trees = [queue_tree(shown, totals[resource], resource, console) for resource in resources]
    parts = ["\n\n".join(trees), below_trees(totals, resources, console)]
    hungry, models = _hungriest(lines, resources[0]), model_table(lines, console)
    parts += [wrapped(hungry, console.width, indent="  ")] if hungry else []
    return [*parts, f"\n{models}"] if models else parts


def served_queues(source: Source, served: "Served", queue: str, resource: int | None, *, flat: bool) -> View:
    """Return the queues that the service shows to this user.

    Raises: UnreachableError where it does not answer.
    """
    from kai.answers.documents.asking import read
    from kai.answers.documents.queues import queue_lines

    document = served.ask("queues", queue=queue)
    items = [item for item in document["items"] if source.selector.matches(item.get("labels") or {})]
    chosen = {**document, "items": items}
    lines = read(chosen, "QueueList", queue_lines)
    return ServedView(shown=ServedQueues(lines=lines, resource=resource, flat=flat), document=chosen)


def queue_view(source: Source, result: "Result", queue: str, resource: int | None, *, flat: bool) -> QueueView:
    """Return the queues of a result that match the flags.

    Raises: InputError for an unknown queue.
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
    # Queues outside of all trees have no place in an answer about some of them.
    is_whole = not queue and not source.selector.requirements
    return QueueView(result=result, lines=tuple(chosen), resource=resource, flat=flat, is_whole=is_whole)


def _check_takes_part(result: "Result", queue: str) -> None:
    """Raise InputError for a queue that exists but belongs to no tree."""
    from kai.answers.outcomes.overview import left_out

    words = None if result.outcome is None else dict(left_out(result.outcome)).get(queue)
    if words is not None:
        raise InputError(f"{words.text} ({words.code})")


def _subtree(lines: "Sequence[QueueLine]", queue: str) -> "tuple[QueueLine, ...]":
    """Return a queue and all below it as a tree of its own."""
    top = next((line for line in lines if line.name == queue), None)
    if top is None:
        names = ", ".join(sorted(line.name for line in lines))
        raise InputError.about("command line", "QUEUE", found=queue, wanted=f"one of {names}" if names else "none")
    found, below = [], {queue}
    for line in lines:  # parents come before their children
        if line.name == queue or line.parent in below:
            below.add(line.name)
            # The branches above are cut off, so that the queue stands at the edge.
            found.append(attrs.evolve(line, last=line.last[top.depth :]))
    return tuple(found)


def _hungriest(lines: "Sequence[QueueLine]", resource: int) -> str:
    """Return a sentence about the leaf queue that wants most beyond its usage; "" where no queue wants more."""
    unit, noun = UNITS[resource]
    leaves = [line for line in lines if line.leaf]
    if not leaves:
        return ""
    # Leaves only: what a parent wants is the sum of its children, so it would always win.
    line = max(leaves, key=lambda line: line.shares[resource].wanted - line.shares[resource].used)
    share = line.shares[resource]
    more = (share.wanted - share.used) / unit
    # Less than is printed would read as a wish for 0.
    if more < 0.0005:
        return ""
    at = share.fair_share - share.used
    relation = "is at" if abs(at) < unit / 1000 else "is above" if at < 0 else "is below"
    amount = number_text(more, 4)
    wanted = f"{amount} {noun.removesuffix('s') if amount == '1' else noun}"
    return f"{line.name} wants {wanted} more and {relation} its fair share. kai why queue/{line.name}"


_SHADES: Final = "·░▒▓█"
_WEEK_UNITS: Final = {"gpu": (1.0, "GPUs"), "cpu": (1000.0, "cores"), "memory": (1000.0, "GB")}
_HOURS: Final = "0           6           12          18          24"


@attrs.frozen(kw_only=True)
class WeekView:
    """The weeks of queues."""

    weeks: "tuple[QueueWeek, ...]"
    resource: str
    kind: str = "QueueWeekList"

    def fields(self) -> dict[str, Any]:
        """Return every slice of each week, with all resources."""
        from kai.answers.documents.document import as_json
        from kai.answers.documents.queues import QueueWeekItem, QueueWeekList

        return as_json(QueueWeekList(items=tuple(map(QueueWeekItem.of, self.weeks))))

    def names(self) -> list[str]:
        """Return the names of the queues, as ``-o name`` writes them."""
        return [f"queue.scheduling.run.ai/{week.queue}" for week in self.weeks]

    def text(self, console: Console) -> str:
        """Return a picture for each queue: a line for each day, and the quotas that the shades stand for."""
        if not self.weeks:
            return "no queue has a quota that follows the clock (spec.schedules)"
        return "\n\n".join("\n".join(self._picture(week)) for week in self.weeks)

    def _picture(self, week: "QueueWeek") -> list[str]:
        unit, noun = _WEEK_UNITS[self.resource]
        days = list(week.days(self.resource))
        shades = _shades(sorted({quota for _, cells in days for quota in cells}, key=_as_most))
        head = f"{week.queue}: quota of {noun}, on the clock of {week.zone or 'UTC'}"
        lines = [f"  {day}  {''.join(shades[quota] for quota in cells)}" for day, cells in days]
        legend = [f"{shade} {_shown_quota(quota, unit)}" for quota, shade in shades.items()]
        return [head, f"       {_HOURS}", *lines, f"       {'   '.join(legend)}"]


def _shades(quotas: Sequence[float]) -> dict[float, str]:
    """Return a shade for each quota, darker for more; the darkest ones are shared if there are too many."""
    last = len(_SHADES) - 1
    # Two quotas, the usual day and night, get shades that differ at a glance.
    if len(quotas) <= 2:
        return dict(zip(quotas, (_SHADES[1], _SHADES[last]), strict=False))
    return {quota: _SHADES[min(last, at if len(quotas) > last else at + 1)] for at, quota in enumerate(quotas)}


def _as_most(quota: float) -> float:
    return float("inf") if quota < 0 else quota


def _shown_quota(quota: float, unit: float) -> str:
    return "unlimited" if quota < 0 else number_text(quota / unit, 4)
