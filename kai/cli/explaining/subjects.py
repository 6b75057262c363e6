"""The subject of a question: a job, a queue or a node, found by the name that was typed.

Where a name belongs to no job because kai schedules none of its pods, `why_left_out` says why.
"""

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from kai.basics.errors import InputError
from kai.basics.wording import first_of
from kai.cli.arguments import KINDS, SHORT, owner_subject, split_subject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kai.answers.cases.case import Case
    from kai.answers.outcomes.job_lines import JobLine
    from kai.answers.outcomes.overview import Job, Overview
    from kai.answers.outcomes.owners import Above
    from kai.api.kubernetes.pod import Pod
    from kai.cli.sources import Source
    from kai.lab.request import Result


_MOST_OWNERS = 6
_LONGEST = 253


class NoSubjectError(InputError):
    """A name matches nothing in the source; ``help`` suggests the nearest name."""


@attrs.frozen(kw_only=True)
class Subject:
    """The subject of a question: jobs, or the name of a queue or of a node."""

    kind: str
    name: str
    lines: "tuple[JobLine, ...]" = ()
    """The jobs; an owner with replicas has several."""


def find_subject(text: str, source: "Source", result: "Result") -> Subject:
    """Return the subject of ``text``: ``NAME``, ``job/NAME``, ``job/NAMESPACE/NAME``, ``queue/NAME`` or ``node/NAME``.

    A bare name is looked up among jobs, owners of jobs, their pods, then queues, then nodes. Any other kind before it
    is that of a pod, or of an object that owns pods of jobs: ``deployment/NAME``.

    Raises: NoSubjectError with the nearest name.
    """
    kind, name = split_subject(text)
    owners: Mapping[str, Sequence[Above]] = {}
    for each in [kind] if kind else KINDS:
        if each == "job":
            lines, owners = _jobs(text, source, result)
            if lines:
                return Subject(kind=each, name=name, lines=lines)
        elif name in _names(each, source, result):
            return Subject(kind=each, name=name)
    from kai.cli.explaining.subjects import why_left_out

    # The prefix of the name may be a kind or a namespace.
    for of_kind, bare in (("", name), owner_subject(name)) if kind in {"", "job"} else ():
        why, hint = why_left_out(of_kind, bare, source.case_of(result))
        if why:
            raise NoSubjectError(why, help=hint)
    # A file that does not parse has unknown contents, so it may hold the name.
    unread = next((str(each) for each in result.findings if each.code.startswith("T")), "")
    if unread:
        raise NoSubjectError(f"found no {kind or 'job, queue or node'} {_cut(name)} in what can be read", help=unread)
    known = {each: _names(each, source, result) for each in KINDS}
    raise (
        _displayed(kind, name, source, result)
        or _without_pods(kind, name, source, result)
        or _unknown(kind, name, known, owners, source)
    )


def _displayed(kind: str, name: str, source: "Source", result: "Result") -> NoSubjectError | None:
    """Return the error for a queue's display name, as events and metrics show it, with the real name; else None."""
    queues = source.case_of(result).objects.queues if kind in {"", "queue"} else ()
    found = next((each.metadata.name for each in queues if each.spec.display_name == name), "")
    if not found:
        return None
    hint = f"{source.command} queue/{found}{_place(source)}"
    return NoSubjectError(f"{_cut(name)} is the display name of queue {found}, expected the name", help=hint)


def _without_pods(kind: str, name: str, source: "Source", result: "Result") -> NoSubjectError | None:
    """Return the error for a workload without pods, with its conditions and events; None if there is none."""
    if not source.is_live or kind not in {"", "job"}:
        return None
    from kai.answers.why.podless import PODLESS, podless

    of_kind, short = owner_subject(name)  # the prefix may be a kind or a namespace
    of_kind, rest = (of_kind, short) if of_kind in PODLESS else ("", name)
    namespace, _, bare = rest.rpartition("/")
    place = namespace or source.namespace_of(source.case_of(result))
    found = podless(source.access, of_kind, bare, place)
    if found is None:
        return None
    why = found.reason or "its conditions and events do not say why"
    hint = f"kubectl -n {found.namespace} describe {found.kind.lower()} {found.name}"
    return NoSubjectError(f"{found.kind} {found.name} has no pod that waits or runs: {why}", help=hint)


def _place(source: "Source") -> str:
    at = f" --at {source.at}" if source.at else ""
    return f" --from {source.place}{at}" if source.place else ""


def _unknown(
    kind: str, name: str, known: "dict[str, list[str]]", owners: "Mapping[str, Sequence[Above]]", source: "Source"
) -> NoSubjectError:
    choices = {f"{each}/{one}": one for each in ([kind] if kind else KINDS) for one in known[each]}
    owned = _subjects_of(owners)
    of_kind, bare = ("", name) if kind else _of_known_kind(name, owned)
    if of_kind:
        same = {long: short for long, short in owned.items() if long.startswith(f"{of_kind}/")}
        choices = same if _near(bare, same) else owned | choices
    elif kind in {"", "job"}:
        choices |= owned
    typed = _near(bare, choices)
    place = _place(source)
    hint = f"{source.command} {typed}{place}" if typed else f"kai {kind or 'job'}s{place} lists the {kind or 'job'}s"
    if of_kind and not typed and owned:
        hint = f"jobs here belong to {first_of(sorted(owned), _MOST_OWNERS)}"
    return NoSubjectError(f"found no {of_kind or kind or 'job, queue or node'} {_cut(bare)}", help=hint)


def unknown_job(
    text: str, among: str, lines: "Sequence[JobLine]", owners: "Mapping[str, Sequence[Above]]", source: "Source"
) -> NoSubjectError:
    """Return the error for a text that names no job the user may see, with the nearest name."""
    kind, name = split_subject(text)
    owned = _subjects_of(owners)
    of_kind, bare = ("", name) if kind else _of_known_kind(name, owned)
    typed = _near(bare, owned | {f"job/{line.job.name}": line.job.name for line in lines})
    hint = f"{source.command} {typed}" if typed else "kai jobs lists them"
    return NoSubjectError(f"found no {of_kind or 'job'} {_cut(bare)} among {among}", help=hint)


def _cut(name: str) -> str:
    """Return a name cut for a message; no name of a Kubernetes object is longer."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"


def _subjects_of(owners: "Mapping[str, Sequence[Above]]") -> dict[str, str]:
    """Return what to type for each owner, with its bare name; the topmost owner first."""
    return {f"{each.kind.lower()}/{each.name}": each.name for key in owners for each in reversed(owners[key])}


def _of_known_kind(name: str, owned: "Mapping[str, str]") -> tuple[str, str]:
    """Return kind and name of an owner; a prefix that is the kind of no owner belongs to the name."""
    of_kind, bare = owner_subject(name)
    known = {*SHORT.values(), *(long.partition("/")[0] for long in owned)}
    return (of_kind, bare) if of_kind in known else ("", name)


def _near(name: str, choices: "Mapping[str, str]") -> str:
    """Return the subject with the most similar name; "" if none is similar."""
    near = difflib.get_close_matches(name.rpartition("/")[2], list(choices.values()), n=1)
    return next((long for long, short in choices.items() if near and short == near[0]), "")


def _jobs(text: str, source: "Source", result: "Result") -> "tuple[tuple[JobLine, ...], Mapping[str, Sequence[Above]]]":
    """Return the jobs of this name, all of one namespace, and the owners of jobs."""
    from kai.answers.outcomes.owners import owners_in

    if result.outcome is None:
        return (), {}
    case = source.case_of(result)
    # First by name alone: lines of all jobs, and owners of all pods, take seconds in a large cluster.
    called = result.lines_called(split_subject(text)[1])
    exact = [line for line in called if source.shows(case, line.job.namespace, line.labels)]
    if exact:
        return named_jobs(text, exact, source, {}), {}
    lines = [line for line in result.lines if source.shows(case, line.job.namespace, line.labels)]
    owners = owners_in(case.objects.pods, case.objects.pod_groups, case.owners)
    shown = {line.job.key for line in lines}
    return named_jobs(text, lines, source, owners), {key: owners[key] for key in owners if key in shown}


def named_jobs(
    text: str, lines: "Sequence[JobLine]", source: "Source", owners: "Mapping[str, Sequence[Above]]"
) -> "tuple[JobLine, ...]":
    """Return the jobs of ``lines`` that ``text`` means, with or without a kind before the name.

    Raises: NoSubjectError where the matches are in several namespaces.
    """
    found = _named(text, lines, owners)
    namespaces = sorted({line.job.namespace for line in found})
    if len(namespaces) > 1:
        kind, name = split_subject(text)
        of_kind, bare = ("", name) if kind else owner_subject(name)
        typed = f"{of_kind}/{namespaces[0]}/{bare}" if of_kind else found[0].job.key
        hint = f"{source.command} {typed}, or -n {namespaces[0]}"
        raise NoSubjectError(f"found {bare} in the namespaces {', '.join(namespaces)}, expected one of them", help=hint)
    return found


def _named(text: str, lines: "Sequence[JobLine]", owners: "Mapping[str, Sequence[Above]]") -> "tuple[JobLine, ...]":
    from kai.answers.outcomes.job_lines import lines_named

    kind, name = split_subject(text)
    exact = tuple(line for line in lines if name in {line.job.name, line.job.key})
    if exact:
        return exact
    wanted, bare = ("job", name) if kind == "job" else owner_subject(name)
    found = _owned(wanted, bare, lines, owners) if wanted else ()
    return found or lines_named(name, lines) or _owned("", name, lines, owners)


def _owned(
    kind: str, name: str, lines: "Sequence[JobLine]", owners: "Mapping[str, Sequence[Above]]"
) -> "tuple[JobLine, ...]":
    """Return the jobs of an owner of this kind, or of any kind if it is ""."""
    namespace, _, name = name.rpartition("/")
    here = [line for line in lines if namespace in {"", line.job.namespace}]
    if kind == "pod":
        return tuple(line for line in here if any(pod.name == name for pod in line.pods))
    return tuple(
        line
        for line in here
        if any(
            each.name == name and kind in {"", each.kind.lower()}
            for each in (*owners.get(line.job.key, ()), *([line.owner] if line.owner is not None else ()))
        )
    )


def _names(kind: str, source: "Source", result: "Result") -> list[str]:
    outcome, seen = result.outcome, result.overview
    if outcome is None or seen is None:
        return []
    if kind == "job":
        return [job.title for job in _asked(seen, source, result)]
    if kind == "queue":
        return [each.metadata.name for each in outcome.case.objects.queues]
    return [each.name for each in outcome.last.snapshot.nodes]


def _asked(seen: "Overview", source: "Source", result: "Result") -> "Sequence[Job]":
    namespace = source.namespace_of(source.case_of(result))
    return [job for job in seen.jobs if namespace in {"", job.namespace}]


def why_left_out(kind: str, name: str, case: "Case") -> tuple[str, str]:
    """Return why the object called ``name`` is no job, and a hint; "" if the source has no such object.

    ``kind`` is a kind in lower case, or "" for any; ``name`` may have a namespace before it.
    """
    namespace, _, bare = name.rpartition("/")
    pool = _pool_of(kind, namespace, bare, case)
    if pool is not None:
        ours = case.settings.node_pool or f"what has no label {case.settings.node_pool_label}"
        hint = f"--config FILE with a SchedulingShard of partitionLabelValue: {pool} decides for it"
        return f"{bare} is in node pool {pool}, and this is decided for {ours}", hint
    for what, reason in (*_unused(kind, namespace, bare, case), *_ungrouped(kind, namespace, bare, case)):
        other = reason.partition("for scheduler ")[2].partition(",")[0]
        own = f"schedulerName: {case.settings.scheduler_name} in its pods gives it to kai"
        hint = f"{own}; --scheduler-name {other} asks what kai would do with it" if other else ""
        said = reason.replace("its pods are", "it is").replace("its pods have", "it has") if what == "Pod" else reason
        return f"kai does not place {what} {bare}: {said}", hint
    return "", ""


def _pool_of(kind: str, namespace: str, name: str, case: "Case") -> str | None:
    """Return the other node pool that a group, or the group of a pod or owner, belongs to; None if there is none."""
    from kai.api import names
    from kai.api.kinds import key_of

    groups = {key_of(each): each for each in case.objects.pod_groups}
    others = {key: each for key, each in groups.items() if not case.settings.owns(each.metadata.labels)}
    found = {key for key in others if key[1] == name and namespace in {"", key[0]} and kind in {"", "podgroup"}}
    for pod in case.objects.pods if others else ():
        if namespace in {"", pod.metadata.namespace} and _kind_called(kind, name, pod):
            found |= {(pod.metadata.namespace, pod.metadata.annotations.get(names.POD_GROUP, ""))} & others.keys()
    return next((case.settings.pool(others[key].metadata.labels) or "none" for key in sorted(found)), None)


def _unused(kind: str, namespace: str, name: str, case: "Case") -> Iterator[tuple[str, str]]:
    """Yield kind and reason of input objects that took no part in the decision."""
    for each in case.unused:
        places = [found.partition("/") for found in each.names if kind in {"", each.kind.lower()}]
        if any(last == name and namespace in {"", first} for first, _, last in places):
            yield each.title, each.reason


def _ungrouped(kind: str, namespace: str, name: str, case: "Case") -> Iterator[tuple[str, str]]:
    """Yield kind and reason of pods without a pod group, or of their owners."""
    from kai.api import names
    from kai.api.kinds import key_of
    from kai.manifests.unused import NO_GROUP, for_scheduler

    groups = {key_of(each) for each in case.objects.pod_groups}
    for pod in case.objects.pods:
        what = _kind_called(kind, name, pod) if namespace in {"", pod.metadata.namespace} else ""
        group = pod.metadata.annotations.get(names.POD_GROUP, "")
        if what and pod.spec.scheduler_name != case.settings.scheduler_name:
            yield what, for_scheduler(pod.spec.scheduler_name, case.settings.scheduler_name)
        elif what and (pod.metadata.namespace, group) not in groups:
            yield what, NO_GROUP if group else "its pods have no pod group yet"


def _kind_called(kind: str, name: str, pod: "Pod") -> str:
    """Return the kind of the pod, or of its owner, that is called ``name``; "" if neither is."""
    if kind in {"", "pod"} and pod.metadata.name == name:
        return "Pod"
    owners = (each for each in pod.metadata.owner_references if each.name == name)
    return next((each.kind for each in owners if kind in {"", each.kind.lower()}), "")
