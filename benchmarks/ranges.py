"""Read and write ``ranges.yaml``: what each workload should take, may take, and took when it was last recorded."""

from collections.abc import Mapping
from pathlib import Path

import cattrs
import yaml
from attrs import evolve

from benchmarks.catalogue import WORKLOADS, UnknownWorkloadError
from benchmarks.results import Observed, Range, Report, Summary

PATH = Path(__file__).with_name("ranges.yaml")
_DIGITS = 3
_LEAST = 0.05
"""No budget is smaller: what takes microseconds varies by more than any slack."""


def read_ranges(path: Path = PATH) -> Mapping[str, Range]:
    """Read the ranges by workload.

    Raises: UnknownWorkloadError for a workload that is not in the catalogue; a group of cattrs' errors, with the path
    of each, for a field that is unknown or not of its type.
    """
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(Observed, cattrs.gen.make_dict_structure_fn(Observed, converter))
    found = converter.structure(yaml.safe_load(path.read_text(encoding="utf-8")), dict[str, Range])
    for id_ in found:
        if id_ not in WORKLOADS:
            raise UnknownWorkloadError(id_)
    return found


def record(report: Report, slack: float, path: Path = PATH) -> None:
    """Write the figures of ``report`` beside the targets, and a budget of ``slack`` times each ratio.

    Workloads without a range, or with a wrong decision, are left out; the words at the top of the file stay.
    """
    ranges = dict(read_ranges(path))
    for summary in report.results:
        if summary.workload in ranges and not summary.problems:
            ranges[summary.workload] = _recorded(ranges[summary.workload], summary, report.machine, slack)
    text = path.read_text(encoding="utf-8")
    comment = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("#"))
    entries = {id_: _plain(limits) for id_, limits in ranges.items()}
    body = yaml.safe_dump(entries, sort_keys=False, width=120, allow_unicode=True)
    path.write_text(f"{comment}\n{body}", encoding="utf-8")


def _recorded(limits: Range, summary: Summary, machine: Mapping[str, str], slack: float) -> Range:
    ratio, date = summary.warm.ratio.median, machine.get("date", "")
    seen = Observed(
        median_ms=_short(summary.warm.cpu_ms.median),
        min_ms=_short(summary.warm.cpu_ms.min),
        wall_ms=_short(summary.warm.wall_ms.median),
        cold_ms=_short(summary.cold.cpu_ms.median),
        ratio=_short(ratio),
        peak_rss_mb=_short(summary.peak_rss_mb),
        date=date,
        machine=f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores",
        load=machine.get("load", ""),
        commit=machine.get("commit", ""),
    )
    budget = f"{slack:g} times the ratio that was observed then"
    return evolve(limits, observed=seen, budget_ratio=_short(max(ratio * slack, _LEAST)), budget_from=budget)


def _plain(limits: Range) -> dict[str, object]:
    """Return the fields that are set."""
    fields = cattrs.unstructure(limits)
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _short(value: float) -> float:
    """Keep the digits that say something."""
    return float(f"{value:.{_DIGITS}g}")
