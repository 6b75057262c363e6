"""Writing the result of a simulation in the form that was asked for."""

from typing import TYPE_CHECKING

from kai.cli.console import Console
from kai.cli.writing import write_document

if TYPE_CHECKING:
    from kai.simulation.comparing.expected_answer import Differences
    from kai.simulation.request import Result


def write_result(result: "Result", console: Console, *, differences: "Differences | None", explain: bool) -> None:
    """Write one result. JSON is one object a line, YAML one document; tables are for people."""
    if console.is_for_machines:
        from kai.cli.deciding.documents import document

        write_document(document(result, differences, explain=explain), console)
        return
    if differences is not None:
        _write_verdict(result, differences, console)
        if not console.verbose:
            return
    if result.overview is None:
        from kai.cli.listing.shares import fair_share_table

        console.write(fair_share_table(result.case.title, result.answer))
        return
    from kai.cli.deciding.report import report

    console.write(report(result, result.overview, console, explain=explain))


def write_failure(path: str, error: Exception, console: Console) -> None:
    """Write that there is no result, where machines read."""
    if console.is_for_machines:
        write_document({"scenario": path, "error": f"{type(error).__name__}: {error}"}, console)


def _write_verdict(result: "Result", differences: "Differences", console: Console) -> None:
    if differences.unknown:
        return
    if not differences.found:
        console.write(f"{console.styled('ok', fg='green')}    {result.case.name}")
        return
    console.write(f"{console.styled('FAIL', fg='red')}  {result.case.name}")
    for text in differences.found:
        console.write(f"      {text}")
