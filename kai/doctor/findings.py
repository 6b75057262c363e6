"""What a check says: that all is well, or what is not, how bad that is, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import attrs

from kai.doctor.seen import NOT_ALLOWED, Seen, resource_of


class Severity(StrEnum):
    """How bad a finding is. Only a failure makes the command end with 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    """It could not be looked at."""


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    message: str
    help: str = ""
    severity: Severity = Severity.FAIL
    object: str = ""
    """The object that it is about, such as ``queue/team-a``."""
    found: str = ""
    expected: str = ""


@attrs.frozen(kw_only=True)
class Looked:
    """The result of one look: what to say if there is no finding, and the findings."""

    well: str
    findings: Sequence[Finding] = ()


@attrs.frozen(kw_only=True)
class Check:
    """One check."""

    code: str
    title: str
    look: Callable[[Seen], Looked]
    needs: tuple[str, ...] = ()
    """The lists that it cannot do without, by their names in `kai.doctor.seen`."""


@attrs.frozen(kw_only=True)
class Verdict:
    """What one check came to."""

    check: Check
    severity: Severity
    message: str
    findings: tuple[Finding, ...] = ()


def run_check(check: Check, seen: Seen) -> Verdict:
    """Return what a check comes to; one that lacks what it needs is skipped and says why."""
    lacking = [name for name in check.needs if name in seen.unread]
    if lacking:
        message = f"{check.title}: not looked at: {'; '.join(_why(name, seen.unread[name]) for name in lacking)}"
        return Verdict(check=check, severity=Severity.SKIP, message=message)
    looked = check.look(seen)
    findings = tuple(looked.findings)
    worst = Severity.FAIL if any(each.severity is Severity.FAIL for each in findings) else Severity.WARN
    return Verdict(check=check, severity=worst if findings else Severity.OK, message=looked.well, findings=findings)


def _why(name: str, why: str) -> str:
    """Return why a list could not be read."""
    resource = resource_of(name)
    return f"it takes the right to list {resource}" if why == NOT_ALLOWED and resource else f"{name}: {why}"


def is_blind(verdicts: Iterable[Verdict]) -> bool:
    """Return whether nothing of a cluster could be judged: each check that needs a list was skipped."""
    severities = {each.severity for each in verdicts if each.check.needs}
    return severities == {Severity.SKIP}


def warning(message: str, help: str = "", *, about: str = "", found: str = "", expected: str = "") -> Finding:  # noqa: A002 - what the line is called that it fills
    """Return a finding that ends nothing."""
    return Finding(message=message, help=help, severity=Severity.WARN, object=about, found=found, expected=expected)


def failure(message: str, help: str = "", *, about: str = "", found: str = "", expected: str = "") -> Finding:  # noqa: A002 - as above
    """Return a finding that makes the command end with 1."""
    return Finding(message=message, help=help, object=about, found=found, expected=expected)
