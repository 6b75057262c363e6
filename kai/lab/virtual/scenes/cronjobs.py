"""CronJobs over virtual time: a Job for each time of the schedule, named and owned as by the controller.

``kai.lab.virtual.running.workloads`` applies ``concurrencyPolicy`` to overlapping runs.
Source: the CronJob controller.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, Final

import attrs

from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of, part_of, place_of
from kai.basics.schedules import WANTED, Schedule
from kai.basics.wording import counted
from kai.lab.virtual.scenes.job_plans import Overlap, Series
from kai.manifests.workloads.making import uid_of

MOST_RUNS: Final = 100_000
"""Most runs of a CronJob; a schedule with more of them is probably a typo."""
_MOST_SECONDS: Final = 1 << 53
"""A longer starting deadline counts as none: a float has no exact value for every whole number beyond."""
_MINUTE: Final = dt.timedelta(minutes=1)


@attrs.frozen(kw_only=True)
class Runs:
    """The runs of one CronJob."""

    cron_job: Mapping[str, Any]
    """The manifest, with the UID that its Jobs refer to."""
    series: Series
    jobs: tuple[tuple[float, Mapping[str, Any]], ...]
    """The creation time of each run, in seconds since the epoch, and its manifest."""
    note: str


def is_repeated(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object is a CronJob that starts Jobs."""
    is_batch = str(manifest.get("apiVersion")).startswith("batch/")
    return is_batch and manifest.get("kind") == "CronJob" and part_of(manifest, "spec", "suspend") is not True


def runs_of(manifest: Mapping[str, Any], since: float, until: float) -> Runs:
    """Return the runs of a CronJob from ``since`` to before ``until``, in seconds since the epoch.

    Raises: InputError for an invalid schedule, time zone or policy.
    """
    metadata, spec = mapping_of(manifest, "metadata"), mapping_of(manifest, "spec")
    place = place_of(manifest)
    title = f"CronJob {place[0]}/{place[1]}"
    schedule, zone = _schedule(spec, title)
    owner = {
        **metadata,
        "namespace": place[0],
        "name": place[1],
        "uid": metadata.get("uid") or uid_of("CronJob", *place),
    }
    found: list[tuple[float, Mapping[str, Any]]] = []
    start = dt.datetime.fromtimestamp(since, tz=zone)
    before = start if schedule.every else start - _MINUTE
    for moment in schedule.after(before):
        at = moment.timestamp()
        if at >= until:
            break
        if len(found) == MOST_RUNS:
            wanted = f"at most {MOST_RUNS} runs"
            raise InputError.about(title, "spec.schedule", found=spec.get("schedule"), wanted=wanted)
        if at >= since:
            found.append((at, _job(owner, spec, int(at))))
    deadline = spec.get("startingDeadlineSeconds")
    return Runs(
        cron_job={**manifest, "metadata": owner},
        series=Series(
            name=f"{place[0]}/{place[1]}",
            overlap=_overlap(spec, title),
            deadline=float(deadline) if isinstance(deadline, int) and abs(deadline) <= _MOST_SECONDS else inf,
        ),
        jobs=tuple(found),
        note=f"CronJob {place[1]} comes {counted(len(found), 'time')}, by its schedule in {zone}.",
    )


def once_note(manifest: Mapping[str, Any]) -> str:
    """Return the note on a CronJob in a run without a horizon."""
    name = part_of(manifest, "metadata", "name")
    return f"CronJob {name} runs once, when it arrives: its schedule counts with --until."


def _schedule(spec: Mapping[str, Any], title: str) -> tuple[Schedule, dt.tzinfo]:
    text, name = spec.get("schedule"), spec.get("timeZone")
    try:
        schedule = Schedule.read(str(text))
    except ValueError:
        raise InputError.about(title, "spec.schedule", found=text, wanted=WANTED) from None
    if not name:
        return schedule, dt.UTC
    try:
        return schedule, zoneinfo.ZoneInfo(str(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        wanted = "the name of a time zone that this machine knows"
        raise InputError.about(title, "spec.timeZone", found=name, wanted=wanted) from None


def _overlap(spec: Mapping[str, Any], title: str) -> Overlap:
    text = spec.get("concurrencyPolicy") or Overlap.ALLOW.value
    try:
        return Overlap(text)
    except ValueError:
        wanted = "one of " + ", ".join(each.value for each in Overlap)
        raise InputError.about(title, "spec.concurrencyPolicy", found=text, wanted=wanted) from None


def _job(owner: Mapping[str, Any], spec: Mapping[str, Any], at: int) -> Mapping[str, Any]:
    """Return the Job of a run; its name ends in the minutes since the epoch, as the controller names it."""
    template = mapping_of(spec, "jobTemplate")
    written = mapping_of(template, "metadata")
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": owner["name"], "uid": owner["uid"]}
    metadata = {
        **{key: written[key] for key in ("labels", "annotations") if written.get(key)},
        "name": f"{owner['name']}-{at // 60}",
        "namespace": owner["namespace"],
        "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template.get("spec")}


def missed_notes(came: Mapping[str, int], missed: Mapping[str, int]) -> Iterator[str]:
    """Yield notes on runs that were due before the previous run had ended."""
    for name, count in came.items():
        runs = counted(count, "run")
        yield f"CronJob {name}: {runs} came before the last one had ended, {missed.get(name, 0)} of them left out."
