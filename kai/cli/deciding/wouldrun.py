"""``kai would-run``: add a workload to a cluster as it is, decide, and say where it would start and at whose cost."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from kai.cli.console import FORMATS, Console
from kai.cli.failures import INPUT, NO
from kai.cli.sources import STANDARD_INPUT, Source, source_options
from kai.cli.views import CUT_SHORT

if TYPE_CHECKING:
    from kai.manifests import Document
    from kai.simulation.cases.case import Case
    from kai.simulation.comparing.arrival import Arrival
    from kai.simulation.request import Result
    from kai.simulation.sources.addition import Addition

EPILOG = """\
FILE holds manifests: a Job, a Deployment, a PyTorchJob, the output of helm template, a folder, or -.
Nothing is written to the cluster. Of a job that would wait kai tries what would help, as kai why does.

\b
  kai would-run train.yaml
  kai would-run train.yaml --queue research --copies 4
  kai would-run train.yaml --from snapshot.zip

Leaves with 0 if it starts (evictions allowed), 1 if not, 3 without a cluster, 4 if a cluster refuses it.
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True, readable=False))
@click.option("--queue", default="", help="Queue in place of the one that the files name.")
@click.option("--copies", type=click.IntRange(min=1, max=1000), default=1, help="So many of each workload.")
@source_options(FORMATS, watch=False)
def would_run(paths: tuple[str, ...], source: Source, console: Console, queue: str, copies: int) -> int:
    """Say what would happen if FILE were applied now: start, where, at whose cost, or why not."""
    if STANDARD_INPUT in paths and source.place == STANDARD_INPUT:
        raise click.UsageError("standard input cannot be both FILE and SOURCE")
    from kai.cli.checking.findings import finding_text
    from kai.manifests.adoption import NONE, adopted_documents
    from kai.simulation.comparing.arrival import arrival
    from kai.simulation.sources.addition import add
    from kai.simulation.sources.adopting import around_of
    from kai.simulation.sources.plugin_kinds import declare_kinds
    from kai.simulation.sources.text_files import read_documents

    texts = [read_documents(path) for path in paths]
    documents: list[Document] = [document for each in texts for document in each.documents]
    case = _with_templates(source.read(), documents, source)
    declare_kinds(source.request.registry)
    adoption = source.adoption or NONE
    taken, _, notes = adopted_documents(documents, adoption, around_of(case), case.queue_sources)
    for note in notes:
        console.talk(f"note: {note}")
    operators = adoption.operators
    addition = add(case, taken, queue=queue, copies=copies, namespace=source.namespace, operators=operators)
    result = source.request.decide(addition.case)
    findings = [*(finding for each in texts for finding in each.findings), *addition.findings]
    for finding in findings:
        console.talk(finding_text(finding))
    for unused in addition.unused:
        console.talk(f"note: {unused}")
    if result.outcome is None or result.overview is None:
        return NO
    found = arrival(result.outcome, result.overview, addition.jobs, addition.refused)
    _write(found, addition, result, console)
    if result.was_cut_short:
        console.talk(CUT_SHORT)
    if any(finding.is_refusal for finding in findings):
        return INPUT
    return 0 if found.eta_seconds is not None else NO


def _with_templates(case: "Case", documents: "Sequence[Document]", source: Source) -> "Case":
    """Return a case with what a running cluster has beside it that describes the pods of the documents."""
    from kai.manifests.workloads.table import needed_by
    from kai.simulation.sources.live_cluster import list_templates

    needed = needed_by(document.manifest for document in documents) if source.is_live else ()
    return attrs.evolve(case, templates=list_templates(source.access, needed)) if needed else case


def _explained(found: "Arrival", result: "Result") -> "Sequence[Mapping[str, Any]]":
    """Return why those of the jobs wait that would not start, and which changes help, as `kai why` says it."""
    from kai.documents.explanations import explanation
    from kai.progress import report
    from kai.simulation.comparing.arrival import NEVER, WAITS, answer_of
    from kai.simulation.explaining.explanation import Explainer

    waiting = [job for job in found.jobs if job.words is not None and answer_of(job) in {WAITS, NEVER}]
    if not waiting or result.outcome is None or result.overview is None:
        return ()
    explainer = Explainer(result.outcome, result.overview, tell=report)
    return [explanation(fold) for fold in explainer.folded(waiting, explainer.twins)]


def _write(found: "Arrival", addition: "Addition", result: "Result", console: Console) -> None:
    from kai.cli.deciding.arrivals import arrival_text, besides_text, later_text, later_values, plan_values
    from kai.cli.writing import write_kind
    from kai.model.axis import GPU_UNIT

    items = _explained(found, result)
    if console.is_for_machines:
        values = {**plan_values(found, items), **({"later": later_values(addition.later)} if addition.later else {})}
        write_kind("Plan", values, console, result.case.origin)
        return
    console.write(arrival_text(found, console, items))
    if addition.later and result.overview is not None:
        console.write(later_text(addition.later, result.overview.totals[2] / GPU_UNIT, console))
    said = besides_text(found)
    if said:
        console.talk(said)
