"""Read what ``run``, ``scale`` and ``profile`` printed, told apart by their schema."""

import json
from collections.abc import Iterable
from pathlib import Path

import cattrs
from attrs import frozen

from benchmarks import growth, results, sampling
from benchmarks.growth import Growth
from benchmarks.results import Report
from benchmarks.sampling import Profile


class UnreadableReportError(ValueError):
    """A file is none that this version of the benchmarks printed."""


@frozen
class Findings:
    """Everything that a page shows."""

    reports: tuple[Report, ...]
    growths: tuple[Growth, ...]
    profiles: tuple[Profile, ...]

    @property
    def machine(self) -> dict[str, str]:
        """Return what the figures were measured on: of the first report, else of what there is."""
        every = [found.machine for found in self.reports]
        every += [found.machine for found in self.growths]
        every += [found.machine for found in self.profiles]
        return dict(every[0]) if every else {}


def read_findings(paths: Iterable[Path]) -> Findings:
    """Read files, each with one JSON value or several, a line each.

    Raises: UnreadableReportError for anything else.
    """
    reports: list[Report] = []
    growths: list[Growth] = []
    profiles: list[Profile] = []
    for path in paths:
        for value in _values(path):
            schema = value.get("schema") if isinstance(value, dict) else None
            try:
                if schema == results.SCHEMA:
                    reports.append(cattrs.structure(value, Report))
                elif schema == growth.SCHEMA:
                    growths.append(cattrs.structure(value, Growth))
                elif schema == sampling.SCHEMA:
                    profiles.append(cattrs.structure(value, Profile))
                else:
                    known = f"{results.SCHEMA}, {growth.SCHEMA}, {sampling.SCHEMA}"
                    raise UnreadableReportError(f"{path}: schema: found {schema}, expected one of {known}")
            except (cattrs.BaseValidationError, KeyError, TypeError) as error:
                raise UnreadableReportError(f"{path}: found a {schema} that lacks something: {error}") from error
    return Findings(tuple(reports), tuple(growths), tuple(profiles))


def _values(path: Path) -> list[object]:
    text = path.read_text(encoding="utf-8")
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise UnreadableReportError(f"{path}: found {error.msg}, expected JSON") from error
