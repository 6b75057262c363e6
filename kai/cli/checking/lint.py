"""``kai lint``: report errors in manifests, queues, configurations and scenarios before they are applied."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kai.cli.console import Console, console_options
from kai.cli.failures import INPUT, NO
from kai.cli.sources import adoption_options
from kai.cli.tables import columns, wrapped

if TYPE_CHECKING:
    from kai.manifests import Finding

EPILOG = """\
FILE is a manifest, a folder, a configuration of the scheduler, a scenario, a snapshot (zip), or -.
Manifests are looked at together, as one cluster: a job of one file may name a queue of another.

\b
  kai lint train.yaml
  helm template mychart | kai lint -
  kai lint queues/ jobs/ --ignore Q005 -o github
  kai lint --explain J011

Leaves with 0 if nothing is wrong, 1 if something is, 4 if a file cannot be read. Warnings count for nothing.
"""
_ALL = "*"


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, metavar="FILE...", type=click.Path(allow_dash=True, readable=False))
@click.option("--select", default="", metavar="CODES", help="Only codes that begin so, separated by commas: J,Q003.")
@click.option("--ignore", default="", metavar="CODES", help="No codes that begin so.")
@click.option(
    "--explain",
    "explained",
    default="",
    is_flag=False,
    flag_value=_ALL,
    metavar="[CODE]",
    help="Say what a code means; without CODE list all codes.",
)
@adoption_options
@console_options(("text", "json", "yaml", "github"))
def lint(
    paths: tuple[str, ...],
    console: Console,
    select: str,
    ignore: str,
    explained: str,
    schedulers: tuple[str, ...],
    queue_from: str | None,
) -> int:
    """Check manifests, queues, configurations and scenarios."""
    if explained:
        _explain(explained, console)
        return 0
    if not paths:
        raise click.UsageError("no FILE is given\nkai lint FILE... or kai lint --explain CODE")
    wanted, unwanted = _codes("--select", select), _codes("--ignore", ignore)
    from kai.answers.cases.files import read_standard_input
    from kai.cli.checking.linting import UNREADABLE, lint_paths, summary
    from kai.manifests.adoption import Adoption

    text = read_standard_input() if "-" in paths else b""
    adoption = Adoption(schedulers=frozenset(schedulers), queue_from=queue_from or "")
    linted = lint_paths(paths, text, adoption)
    for note in linted.notes:
        console.talk(f"note: {note}")
    # Unreadable files are reported whatever codes are selected: they may contain findings of any code.
    found = [each for each in linted.findings if each.code in UNREADABLE or _is_wanted(each, wanted, unwanted)]
    _write(found, summary(linted), console)
    if linted.is_unreadable:
        return INPUT
    return NO if any(each.is_error for each in found) else 0


def _explain(name: str, console: Console) -> None:
    from kai.manifests import CODES

    codes = {name.upper(): CODES.get(name.upper())} if name != _ALL else dict(CODES)
    known = {name: code for name, code in codes.items() if code is not None}
    if not known:
        raise click.UsageError(f"{name!r} is no code\nkai lint --explain lists the codes")
    if console.is_for_machines:
        from kai.answers.documents.listings import CodeItem, CodeList
        from kai.cli.console import write_kind

        items = tuple(
            CodeItem(code=name, severity=code.severity, meaning=code.meaning, title=code.title, text=code.text)
            for name, code in known.items()
        )
        write_kind(CodeList(items=items), console)
    elif name == _ALL:
        rows = [[name, code.severity, code.meaning, code.title] for name, code in known.items()]
        console.write(columns(rows, width=console.width))
    else:
        ((code_name, code),) = known.items()
        lines = (f"{code_name} ({code.severity}, {code.meaning}): {code.title}", code.text)
        console.write("\n".join(wrapped(each, console.width) for each in lines))


def _codes(flag: str, text: str) -> tuple[str, ...]:
    """Return the prefixes of codes in ``text``; an unknown one is refused, since it would silently select nothing."""
    from kai.manifests import CODES

    found = tuple(code.strip().upper() for code in text.split(",") if code.strip())
    for start in found:
        if not any(code.startswith(start) for code in CODES):
            raise click.UsageError(f"{flag}: no code begins with {start!r}\nkai lint --explain lists the codes")
    return found


def _is_wanted(finding: "Finding", select: tuple[str, ...], ignore: tuple[str, ...]) -> bool:
    return (not select or finding.code.startswith(select)) and not finding.code.startswith(ignore)


def _write(found: Sequence["Finding"], summary: str, console: Console) -> None:
    from kai.cli.console import write_kind
    from kai.cli.failures import finding_item, finding_text, github_text

    if console.is_for_machines:
        from kai.answers.documents.listings import Findings

        write_kind(Findings(items=tuple(map(finding_item, found))), console)
        return
    for each in found:
        console.write(github_text(each) if console.output == "github" else finding_text(each))
    if console.output == "github" or any(each.is_error for each in found):
        return
    console.write(f"ok: {summary}" if summary else "ok")
