"""``kai queues --propose``: suggest queues, show where their amounts come from, and save them as manifests."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from kai.basics.errors import InputError
from kai.basics.wording import counted, found_by, number_text
from kai.cli.console import Console
from kai.cli.sources import STANDARD_INPUT, Source
from kai.cli.tables import Column, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai.manifests.proposals import Proposal

_DEFAULT_SCHEDULER = "default-scheduler"


def propose_queues(source: Source, console: Console, file: str) -> int:
    """Show the proposed queues, and save their manifests in ``file``, unless it is empty.

    Raises: InputError where the source suggests no queues.
    """
    proposals, notes = _proposed(source)
    for note in notes:
        console.talk(f"note: {note}")
    if not proposals:
        said = "kai queues lists the existing ones"
        raise InputError(f"{source.place or 'the cluster'}: found no queue that is not there already; {said}")
    if file:
        try:
            Path(file).write_text(_yaml(proposals), "utf-8")
        except OSError as error:
            raise InputError(f"{file}: found {found_by(error)}, expected a file that can be written") from None
    if console.output == "json":
        items = [each.manifest() for each in proposals]
        console.write(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    elif console.output == "yaml":
        console.write(_yaml(proposals).rstrip())
    elif console.output == "name":
        for each in proposals:
            console.write(f"queue.scheduling.run.ai/{each.name}")
    else:
        console.write(_table(proposals, console))
    if file:
        console.talk(f"saved {counted(len(proposals), 'queue')} in {file}; kubectl apply -f {file}")
    elif not console.is_for_machines:
        console.talk("nothing is written to a cluster: kai queues --propose queues.yaml saves them as manifests")
    return 0


def _proposed(source: Source) -> "tuple[Sequence[Proposal], Sequence[str]]":
    """Return the proposals for a source; for a cluster, those for pods of the default scheduler."""
    slurm = _of_slurm(source.place)
    if slurm is not None:
        return slurm, ()
    chosen = attrs.evolve(
        source, schedulers=source.schedulers or (_DEFAULT_SCHEDULER,), queue_from=source.queue_from or "namespace"
    )
    case = chosen.read()
    return case.proposals, case.adopted


def _of_slurm(place: str) -> "Sequence[Proposal] | None":
    """Return the queues of a Slurm accounting file; None for any other file."""
    from kai.lab.traces.slurm_accounts import is_slurm, queues_of_accounts

    path = Path(place)
    if not place or place == STANDARD_INPUT or not path.is_file():
        return None
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeError):
        return None  # reading it as a source reports the error
    return queues_of_accounts(text, place) if is_slurm(text) else None


def _yaml(proposals: "Sequence[Proposal]") -> str:
    """Return the manifests as YAML, each with a comment about its origin."""
    import yaml

    texts = [
        f"# {each.source}: {each.reason}\n{yaml.safe_dump(each.manifest(), sort_keys=False)}" for each in proposals
    ]
    return "---\n".join(texts)


def _table(proposals: "Sequence[Proposal]", console: Console) -> str:
    heads = [
        Column(head="QUEUE"),
        Column(head="PARENT", drop=2),
        Column(head="GPU QUOTA", right=True),
        Column(head="WEIGHT", right=True, drop=1),
        Column(head="LIMIT", right=True),
        Column(head="STANDS FOR", drop=3),
        Column(head="AMOUNTS FROM", drop=4, least=24),
    ]
    rows = [
        [
            each.name,
            each.parent or "-",
            _amount(each.share("gpu").quota),
            number_text(each.share("gpu").weight),
            _amount(each.share("gpu").limit),
            each.source,
            each.reason,
        ]
        for each in proposals
    ]
    return table(heads, rows, console.width)


def _amount(value: float) -> str:
    return "-" if value < 0 else number_text(value)
