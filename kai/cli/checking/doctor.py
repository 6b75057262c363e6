"""``kai doctor``: look at a cluster, run the checks, and report problems with their remedies."""

import difflib
from typing import TYPE_CHECKING

import click

from kai.basics.wording import shown
from kai.cli.console import Console, console_options
from kai.cli.failures import NO, UNREACHABLE, keep_logs_off, say_error
from kai.cli.sources import cluster_options

if TYPE_CHECKING:
    from kai.answers.documents.listings import FindingItem
    from kai.doctor.seen import Check, Diagnosis, Finding, Seen

EPILOG = """\
Exit code 0 if no check failed (warnings do not count), 1 if one did, 3 if the cluster cannot be reached,
or nothing in it can be read.

\b
  kai doctor
  kai doctor --only D007,D021
  kai doctor -o json | jq '.items[] | select(.severity != "ok")'
"""
_COLORS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}


@click.command(epilog=EPILOG)
@click.option("--only", default="", metavar="CODE[,CODE...]", help="Run these checks only.")
@click.option("--list", "is_list", is_flag=True, help="List the checks and look at nothing.")
@cluster_options
@console_options(("table", "json", "yaml"))
def doctor(console: Console, only: str, context: str, kubeconfig: str, user: str, *, is_list: bool) -> int:
    """Check that an installation is healthy; each finding has a line that helps."""
    from kai.doctor.seen import Severity, is_blind, run_check

    chosen = _chosen(only)
    if is_list:
        _list(chosen, console)
        return 0
    seen, title = _look(kubeconfig, context, user)
    verdicts = [run_check(check, seen) for check in chosen]
    if console.output == "table":
        _write(verdicts, console)
    else:
        from kai.answers.cases.origin import Origin
        from kai.answers.documents.listings import Findings
        from kai.cli.console import write_kind

        items = tuple(item for each in verdicts for item in _items(each))
        write_kind(Findings(items=items), console, Origin(type="live", cluster=title))
    if any(each.severity is Severity.FAIL for each in verdicts):
        return NO
    if is_blind(verdicts):
        _say_blind(verdicts, seen, title)
        return UNREACHABLE
    return 0


def _say_blind(verdicts: "list[Diagnosis]", seen: "Seen", title: str) -> None:
    """Report that no check could be made: ``0 of 25 checks need attention`` alone would read as health."""
    from kai.doctor.cluster_reading import not_allowed

    needed = dict.fromkeys(name for each in verdicts for name in each.check.needs)
    lacking = ", ".join(not_allowed(seen, needed))
    why = f": not allowed to list {lacking}" if lacking else ""
    say_error(
        f"nothing in the cluster {title} could be checked{why}",
        "ask for a cluster role with list for these, or for another context" if lacking else "",
    )


def _list(checks: "list[Check]", console: Console) -> None:
    if not console.is_for_machines:
        console.write("\n".join(f"{check.code}  {check.title}" for check in checks))
        return
    from kai.answers.documents.listings import CheckItem, CheckList
    from kai.cli.console import write_kind

    write_kind(CheckList(items=tuple(CheckItem(code=each.code, title=each.title) for each in checks)), console)


def _chosen(only: str) -> "list[Check]":
    """Return the checks with these codes, or all.

    Raises: UsageError for an unknown code.
    """
    from kai.doctor.checks import CHECKS

    wanted = [code.strip().upper() for code in only.split(",") if code.strip()]
    known = {check.code: check for check in CHECKS}
    for code in wanted:
        if code not in known:
            near = difflib.get_close_matches(code, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "kai doctor --list"
            raise click.UsageError(f"--only: found {shown(code)}, expected the code of a check\n{hint}")
    return [known[code] for code in wanted] if wanted else list(CHECKS)


def _look(kubeconfig: str, context: str, user: str) -> "tuple[Seen, str]":
    """Return the observations of the cluster, and its name.

    Raises: UnreachableError, ConfigError.
    """
    import anyio

    from kai.answers.documents.document import DISTRIBUTION, installed
    from kai.basics.errors import UnreachableError
    from kai.cluster.clock import SystemClock
    from kai.cluster.transport.access import Access
    from kai.cluster.transport.client import Account, Client, user_agent
    from kai.doctor.cluster_reading import Look

    keep_logs_off()
    access = Access(kubeconfig=kubeconfig, context=context, impersonated=user)
    access.check()
    name = access.chosen.name

    async def look() -> "Seen":
        clock = SystemClock()
        account = await Account.open(access.source, clock)
        async with Client(account, user_agent=user_agent("cli", installed(DISTRIBUTION)), connections=8) as client:
            cluster = f'context "{name}"' if name else "this pod's account"
            return await Look(client, clock, account.credentials.server, cluster).all()

    try:
        return anyio.run(look), name or "this cluster"
    except* UnreachableError as group:
        error = group.exceptions[0]
        if isinstance(error, UnreachableError) and access.others:
            error.help = error.help or f"kai doctor --context {access.others[0]}"
        raise error from None


def _write(verdicts: "list[Diagnosis]", console: Console) -> None:
    """Write a line for each passed check and for each finding, and the number of checks that need attention."""
    from kai.doctor.seen import Severity

    for each in verdicts:
        if not each.findings:
            console.write(f"{_mark(each.severity, console)}  {each.message}")
        for finding in each.findings:
            console.write(f"{_mark(finding.severity, console)}  {each.check.code} {finding.message}")
            if finding.help:
                console.write(f"        help: {finding.help}")
    bad = sum(each.severity in {Severity.WARN, Severity.FAIL} for each in verdicts)
    skipped = sum(each.severity is Severity.SKIP for each in verdicts)
    tail = f", {skipped} could not be run" if skipped else ""
    need = "needs" if bad == 1 else "need"
    console.write(f"{bad} of {len(verdicts)} checks {need} attention{tail}")


def _mark(severity: str, console: Console) -> str:
    return console.styled(f"{severity:<4}", fg=_COLORS[severity])


def _items(verdict: "Diagnosis") -> "list[FindingItem]":
    if not verdict.findings:
        return [_item(verdict.check, str(verdict.severity), verdict.message)]
    return [_item(verdict.check, str(each.severity), each.message, each) for each in verdict.findings]


def _item(check: "Check", severity: str, message: str, finding: "Finding | None" = None) -> "FindingItem":
    from kai.answers.documents.listings import FindingItem

    return FindingItem(
        code=check.code,
        title=check.title,
        severity=severity,
        meaning=None,
        message=message,
        file=None,
        line=None,
        column=None,
        object=(finding.object or None) if finding else None,
        found=(finding.found or None) if finding else None,
        expected=(finding.expected or None) if finding else None,
        help=(finding.help or None) if finding else None,
        url=None,
    )
