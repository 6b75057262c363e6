"""Checks of the installation: the API server, kinds, rights, programs and their leases, clocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kai.api import values
from kai.api.values import BadValue
from kai.basics.parsing import list_of, part_of, text_of
from kai.basics.wording import counted, first_of, shown
from kai.doctor.seen import (
    PART_OF,
    TOGETHER,
    Finding,
    Looked,
    Manifest,
    Program,
    Seen,
    failure,
    key_of,
    labels_of,
    lease_of,
    name_of,
    warning,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OLDEST: Final = (1, 30)
_KINDS: Final = {
    "queues.scheduling.run.ai": "v2",
    "podgroups.scheduling.run.ai": "v2alpha2",
    "bindrequests.scheduling.run.ai": "v1alpha2",
    "topologies.kai.scheduler": "v1alpha1",
}
_SLACK: Final = 5.0
"""Clock differences up to this many seconds are ignored."""
_ASLEEP: Final = 120.0
_OFTEN: Final = 3
"""From this many out-of-memory restarts on, a pod has a problem, even if it runs well now."""


def api_server(seen: Seen) -> Looked:
    """Check that kai supports the version of the API server."""
    version = text_of(seen.version, "gitVersion") or "an unknown version"
    # Some providers write the minor version as `30+`.
    numbers = [re.match(r"\d+", text_of(seen.version, part)) for part in ("major", "minor")]
    found = tuple(int(each[0]) for each in numbers if each)
    oldest = ".".join(map(str, _OLDEST))
    problems: list[Finding] = []
    if len(found) == len(_OLDEST) and found < _OLDEST:
        problems.append(
            failure(
                f"API server {version} is older than {oldest}",
                "upgrade the control plane: admission policies and resource claims need it",
                found=version,
                expected=f"{oldest} or newer",
            )
        )
    return Looked(well=f"API server {version}", findings=problems)


def own_rights(seen: Seen) -> Looked:
    """Check that the account of this client may read what complete answers need."""
    lacking = seen.missing.get("", ())
    if not seen.asked.get("") and "reviews" in seen.unread:
        unknown = f"what this account may read is not known: {seen.unread['reviews']}"
        return Looked(well="", findings=(warning(unknown, "kubectl auth can-i --list asks the same"),))
    said = [
        warning(
            f"this account may not {first_of([str(each) for each in lacking])}: answers of kai are not whole",
            "ask for a role with get and list on nodes, pods, namespaces, queues and podgroups.scheduling.run.ai",
            found=", ".join(map(str, lacking)),
        )
    ]
    return Looked(well="this account may read what kai's commands need", findings=said if lacking else ())


def definitions(seen: Seen) -> Looked:
    """Check that the kinds are defined, in the versions that kai reads and writes."""
    known = {name_of(each): each for each in seen.all("crds")}
    problems: list[Finding] = []
    for name, version in _KINDS.items():
        definition = known.get(name)
        served = [text_of(each, "name") for each in list_of(definition, "spec", "versions") if part_of(each, "served")]
        if definition is None:
            problems.append(
                failure(
                    f"kind {name} is not defined", "kubectl apply -k deploy/crds", about=f"crd/{name}", found="none"
                )
            )
        elif version not in served:
            found = ", ".join(served) or "none"
            problems.append(
                failure(
                    f"kind {name} is served as {found}, kai needs {version}",
                    "kubectl apply -k deploy/crds",
                    about=f"crd/{name}",
                    found=found,
                    expected=version,
                )
            )
    return Looked(well=f"{len(_KINDS)} kinds are defined in the right versions", findings=problems)


def programs(seen: Seen) -> Looked:
    """Check that each role runs somewhere and is ready."""
    found = seen.programs()
    if not found:
        finding = warning(
            "kai runs nowhere in this cluster", "kubectl apply -k deploy/    or helm install; see docs/install.md"
        )
        return Looked(well="", findings=[finding])
    running = {role for each in found for role in each.roles}
    problems = [
        failure(f"role {role} runs nowhere", f"kai run {role}: add it to a Deployment", about=f"role/{role}")
        for role in TOGETHER
        if role not in running
    ]
    for each in found:
        problems += _troubles(each)
    return Looked(well=f"{counted(len(found), 'pod')} of kai, all roles run", findings=problems)


def _troubles(program: Program) -> Iterator[Finding]:
    """Yield the problems of a pod of kai, in this order: out of memory, restarting, not ready."""
    where, count = f"{program.namespace}/{program.pod}", program.restarts
    who = f"pod {where} ({', '.join(program.roles)})"
    often = "once" if count == 1 else f"{count} times"
    kubectl = f"kubectl -n {program.namespace}"
    found = f"{counted(count, 'restart')}"
    if count and program.ended_by == "OOMKilled":
        mend = (
            f"{kubectl} set resources deploy {program.owner} --limits=memory=2Gi    how much it takes: docs/install.md"
        )
        severity = warning if program.is_ready and count < _OFTEN else failure
        yield severity(
            f"{who} was restarted {often}, the last time for want of memory (OOMKilled)",
            mend,
            about=f"pod/{where}",
            found=found,
        )
    elif program.waits_for == "CrashLoopBackOff":
        why = f", the last time with {program.ended_by}" if program.ended_by else ""
        yield failure(
            f"{who} ends again and again (CrashLoopBackOff): it was restarted {often}{why}",
            f"{kubectl} logs {program.pod} --previous",
            about=f"pod/{where}",
            found=found,
        )
    elif not program.is_ready:
        why = f": {program.waits_for}" if program.waits_for else ""
        help_text = f"{kubectl} describe pod {program.pod}    {kubectl} logs {program.pod}"
        yield warning(f"{who} is not ready{why}", help_text, about=f"pod/{where}")


def role_rights(seen: Seen) -> Looked:
    """Check that the accounts of roles have their rights."""
    problems = [
        failure(
            f"{account} lacks the right to {first_of([str(each) for each in lacking])}",
            "kubectl apply -k deploy/rights    (docs/security.md)",
            about=f"serviceaccount/{account}",
            found=", ".join(map(str, lacking)),
        )
        for account, lacking in sorted(seen.missing.items())
        if account and lacking
    ]
    roles = sorted({role for each in seen.programs() for role in each.roles})
    asked = sum(count for account, count in seen.asked.items() if account)
    well = f"rights complete for {', '.join(roles)}" if asked else "no account of kai to ask about"
    return Looked(well=well, findings=problems)


def one_scheduler(seen: Seen) -> Looked:
    """Check that each node pool has exactly one scheduler."""
    pools: dict[tuple[str, str], list[Program]] = {}
    for each in seen.programs():
        if "scheduler" in each.roles:
            pools.setdefault(each.pool, []).append(each)
    problems: list[Finding] = []
    for (name, pool), members in sorted(pools.items()):
        owners = sorted({f"{each.namespace}/{each.owner}" for each in members})
        where = f"node pool {pool}" if pool else "the nodes without a node pool"
        if len(owners) > 1:
            in_doubt = any(each.may_serve_another_pool for each in members)
            severity = warning if in_doubt else failure
            unless = ", unless a shard in --scheduler-conf says otherwise" if in_doubt else ""
            problems.append(
                severity(
                    f"{len(owners)} schedulers named {name} decide about {where}{unless}: {first_of(owners)}",
                    "give one of them another --partition-label-value, or scale it to 0",
                    found=", ".join(owners),
                    expected="one",
                )
            )
        elif len(members) > 1 and not all(each.elects for each in members):
            problems.append(
                failure(
                    f"{len(members)} replicas of {owners[0]} decide about {where} without electing a leader",
                    "add --leader-elect=true (deploy/overlays/ha), or one replica only",
                    found=f"{len(members)} replicas",
                )
            )
    return Looked(well=f"{counted(len(pools), 'node pool')}, one scheduler each", findings=problems)


def leases(seen: Seen) -> Looked:
    """Check that programs with leader election have a leader who renews the lease."""
    known = {key_of(each): each for each in seen.all("leases")}
    wanted: dict[str, list[Program]] = {}
    for each in seen.programs():
        if each.elects:
            wanted.setdefault(f"{each.namespace}/{lease_of(each)}", []).append(each)
    problems: list[Finding] = []
    for key, replicas in sorted(wanted.items()):
        program, lease = replicas[0], known.get(key)
        holder, age = text_of(lease, "spec", "holderIdentity"), _age(lease, seen.now)
        lasting = part_of(lease, "spec", "leaseDurationSeconds")
        if not holder:
            problems.append(
                warning(
                    f"no replica of {program.owner} holds lease {key}",
                    f"kubectl -n {program.namespace} logs {program.pod}",
                    about=f"lease/{key}",
                )
            )
        elif age is not None and isinstance(lasting, int) and age > lasting + _SLACK:
            problems.append(
                failure(
                    f"lease {key} was not renewed for {age:.0f}s; {holder} holds it",
                    f"kubectl -n {program.namespace} delete pod {holder.partition('_')[0]}    if its node is dead",
                    about=f"lease/{key}",
                    found=f"{age:.0f}s",
                    expected=f"at most {lasting}s",
                )
            )
        # An identity begins with the name of the pod, and ends in what tells two lives of it apart.
        elif not any(holder.startswith(each.pod) for each in replicas):
            problems.append(
                warning(
                    f"lease {key} is held by {holder}, which is no pod of {program.owner}: that one waits",
                    "stop that program: kubectl scale deploy NAME --replicas=0; D007 says whether it is KAI-Scheduler",
                    about=f"lease/{key}",
                    found=holder,
                )
            )
    well = f"{counted(len(wanted), 'lease')} held and fresh" if wanted else "no program elects a leader"
    return Looked(well=well, findings=problems)


def clocks(seen: Seen) -> Looked:
    """Check that clocks agree: leases carry the time of their holders."""
    ages = {key_of(each): age for each in seen.all("leases") if (age := _age(each, seen.now)) is not None}
    ahead = {key: -age for key, age in ages.items() if age < -_SLACK}
    newest = min(ages.values(), default=0.0)
    problems: list[Finding] = []
    drifts = {key_of(each): _drift(each) for each in seen.all("leases")}
    key = max(drifts, key=lambda each: abs(drifts[each]), default="")
    if key and abs(drifts[key]) > _SLACK:
        apart = f"{abs(drifts[key]):.0f}s {'ahead of' if drifts[key] > 0 else 'behind'}"
        problems.append(
            warning(
                f"the clock of the holder of lease {key} is {apart} the API server's",
                "set the clocks of all nodes by NTP: what kai writes and compares is wrong by as much",
                about=f"lease/{key}",
                found=apart,
                expected=f"at most {_SLACK:g}s",
            )
        )
    # If all holders are ahead, it is this machine that is behind.
    elif ages and len(ahead) == len(ages):
        problems.append(
            warning(
                f"the clock of this machine is {-max(ages.values()):.0f}s behind those of the cluster",
                "set it by NTP: ages that kai prints are wrong by as much",
            )
        )
    elif ahead:
        key = max(ahead, key=lambda each: ahead[each])
        problems.append(
            warning(
                f"lease {key} was renewed {ahead[key]:.0f}s in the future: the clock of its holder is ahead",
                "set the clocks of all nodes by NTP",
                about=f"lease/{key}",
                found=f"{ahead[key]:.0f}s",
                expected=f"at most {_SLACK:g}s",
            )
        )
    elif newest > _ASLEEP:
        problems.append(
            warning(
                f"no lease was renewed for {newest:.0f}s: the clock of this machine is ahead, or the cluster is asleep",
                "set it by NTP",
            )
        )
    return Looked(well=f"clocks agree ({counted(len(ages), 'lease')} looked at)", findings=problems)


def module(seen: Seen) -> Looked:
    """Check that the imported Python module ``kai`` is this one."""
    problems = [
        failure(
            f"the Python distribution {shown(seen.foreign_module)} has a module kai as well and may hide this one",
            f"pip uninstall {seen.foreign_module}    then pip install --force-reinstall kai-scheduler",
            found=seen.foreign_module,
        )
    ]
    return Looked(well="no foreign Python module called kai", findings=problems if seen.foreign_module else ())


# --- KAI-Scheduler -------------------------------------------------------------------------------------------------


def other_scheduler(seen: Seen) -> Looked:
    """Check that KAI-Scheduler's scheduler does not run beside kai's."""
    ours = {each.pool[1] for each in seen.programs() if "scheduler" in each.roles}
    problems: list[Finding] = []
    for each in seen.all("deployments"):
        replicas = part_of(each, "spec", "replicas")
        if not is_of_peer(each) or not name_of(each).startswith("kai-scheduler-") or replicas == 0:
            continue
        pool = _flags(each).get("partition-label-value", "")
        count = counted(replicas if isinstance(replicas, int) else 1, "replica")
        # Its operator has schedulers elect a leader only from two replicas on.
        lease = "" if replicas not in {None, 1} else ", which takes no lease"
        severity = failure if pool in ours else warning
        problems.append(
            severity(
                f"the scheduler of KAI-Scheduler runs ({name_of(each)}, {count}{lease})",
                _way_to_stop(seen, each),
                about=f"deployment/{key_of(each)}",
            )
        )
    return Looked(well="no scheduler of KAI-Scheduler runs", findings=problems)


def is_of_peer(deployment: Manifest) -> bool:
    """Return whether a Deployment is one of KAI-Scheduler's."""
    if labels_of(deployment).get(PART_OF) == "kai":
        return False
    images = [text_of(each, "image") for each in list_of(deployment, "spec", "template", "spec", "containers")]
    name = name_of(deployment)
    return (
        name == "kai-operator" or name.startswith("kai-scheduler-") or any("/kai-scheduler/" in each for each in images)
    )


def _way_to_stop(seen: Seen, deployment: Manifest) -> str:
    """Return the command that stops the scheduler: by the field of its Config, if this version has it."""
    namespace = text_of(deployment, "metadata", "namespace")
    config = next(iter(seen.all("configs")), None)
    crd = next((each for each in seen.all("crds") if name_of(each) == "configs.kai.scheduler"), None)
    schemas = [part_of(each, "schema", "openAPIV3Schema") for each in list_of(crd, "spec", "versions")]
    path = ("properties", "spec", "properties", "scheduler", "properties", "replicas")
    if config is not None and any(part_of(each, *path) is not None for each in schemas):
        patch = '{"spec": {"scheduler": {"replicas": 0}}}'
        field = "sets spec.scheduler.replicas"
        return f"kubectl patch config.kai.scheduler {name_of(config)} --type=merge -p '{patch}'    {field}"
    return f"kubectl -n {namespace} scale deploy kai-operator {name_of(deployment)} --replicas=0"


def _flags(deployment: Manifest) -> Mapping[str, str]:
    return dict(_words(deployment))


def _words(deployment: Manifest) -> Iterator[tuple[str, str]]:
    for container in list_of(deployment, "spec", "template", "spec", "containers"):
        for word in list_of(container, "args"):
            name, _, value = str(word).lstrip("-").partition("=")
            yield name, value


def _drift(lease: object) -> float:
    """Return how many seconds the clock of a lease's holder is ahead of the API server's, which timestamps each write.

    Return 0 if the server does not record it.
    """
    writes = list_of(lease, "metadata", "managedFields")
    try:
        renewed = values.instant(text_of(lease, "spec", "renewTime"))
        return renewed - max(
            values.instant(text_of(each, "time"))
            for each in writes
            if part_of(each, "fieldsV1", "f:spec", "f:renewTime") is not None
        )
    except (BadValue, ValueError):
        return 0.0


def _age(lease: object, now: float) -> float | None:
    try:
        return now - values.instant(text_of(lease, "spec", "renewTime")) + _drift(lease)
    except BadValue:
        return None
