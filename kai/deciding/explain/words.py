"""Why a group waits, in one line of plain words: the dominant reason, with its code.

Several reasons can hold at once. The first in the order of ``kai.deciding.explain.codes`` is shown, because the others
do not matter as long as it holds.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kai.deciding.engine.cycle import CycleReport, Profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.policy import scores_of
from kai.deciding.engine.records import GroupRecord
from kai.deciding.engine.session import Session
from kai.deciding.explain import messages
from kai.deciding.explain.code_texts import (
    bound_text,
    delay_text,
    few_pods_text,
    held_text,
    owed_text,
    share_text,
    sub_groups_asked,
    tree_text,
)
from kai.deciding.explain.declared import ACTIONS, Declared, Takeable, gate_text, missing_queue, takeable
from kai.deciding.explain.matching import EmptyNodes, Matching
from kai.deciding.explain.phrases import alternatives, counted, listed, of_devices, plain, quantity
from kai.deciding.explain.recorded import (
    bounds,
    lacking_of,
    least_pods,
    missing_topology,
    no_room,
    refusal_words,
    refused_pods,
    said_of_nodes,
    short_leaves,
    spared,
    vacated_nodes,
)
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.model.axis import CPU, GPU, GPU_UNIT, MEMORY, NONE, GroupRow, PodRow, SubGroupRow
from kai.facts.model.groups import PodGroup, path_to
from kai.facts.model.pod import ACTIVE_ALLOCATED, ALIVE, COUNTED, ENDED, GpuKind, Status, within
from kai.facts.state.facts import gpus_by_memory, named_models
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Cause, Recorder
from kai.framework.verdict import Code, Reason

_NOTHING = GroupRecord()


class GroupReasons:
    """Explains why the groups of one cycle wait.

    Cost: plugins are asked what they would refuse on an empty cluster, once per shape, and only when needed.
    """

    def __init__(
        self, snapshot: Snapshot, profile: Profile, report: CycleReport, declared: Declared | None = None
    ) -> None:
        """Use the report of a finished cycle; ``declared`` has facts that the snapshot leaves out."""
        self._snapshot = snapshot
        self._profile = profile
        self._report = report
        self._declared = declared or Declared()

    def dominant(self, group: int) -> Reason[str]:
        """Return the dominant reason why pods of ``group`` wait."""
        return next(self._reasons(group))

    def all(self, group: int) -> tuple[Reason[str], ...]:
        """Return every reason that holds, the dominant one first, each code once."""
        found: dict[str, Reason[str]] = {}
        for words in self._reasons(group):
            found.setdefault(words.code, words)
        return tuple(found.values())

    def objections(self, pod: int) -> Mapping[str, Sequence[int]]:
        """Return the nodes that would refuse ``pod`` even if they were empty, by objection."""
        return self._matching.of(pod)[1]

    def takeable(self, group: int, cause: Cause) -> Takeable | None:
        """Return the groups that ``group`` could take from; None if it has no queue, or no such action runs."""
        runs = any(each.name == ACTIONS[cause] for each in self._profile.actions)
        return takeable(self._session, group, cause) if runs and self._snapshot.groups[group].queue_row >= 0 else None

    def _reasons(self, group: int) -> Iterator[Reason[str]]:
        """Yield all reasons why the group waits, dominant first; at least one."""
        facts = self._snapshot.groups[group]
        record = self._report.records.get(group, _NOTHING)
        pods = self._pods(group)
        if facts.held:
            # A held group was not considered at all, so nothing of what follows was found out about it.
            yield Reason(facts.held_code, facts.held)
            return
        yield from self._queue(facts)
        yield from self._tree(facts, pods)
        yield from self._readiness(group, facts, pods)
        held = self._held_nodes(pods)
        waiting = [pod for pod in pods if self._report.status[pod] == Status.PENDING]
        # Of a job that runs and wants more pods, the pods that wait are the question.
        if held and not (waiting and self._runs(pods)):
            yield Reason(Code.HELD_FOR_LEAVING, held_text(held, self._vacated))
        if not waiting:
            yield from self._gates(pods)
            yield from self._kept(pods)
            return
        # Pods that have promised places fit somewhere, so nothing can be impossible for them.
        vain = list(missing_topology(record.reasons)) or ([] if held else list(self._impossible(group, pods)))
        yield from vain
        if later := [reason for reason in record.reasons if reason.code is Code.WAITS_FOR_TURN]:
            # What follows was not tried in this cycle, and would only be a guess.
            yield Reason(Code.WAITS_FOR_TURN, messages.reason_text(later[0]), later[0].facts)
            return
        yield from bounds(record.reasons)
        yield from self._models(facts, waiting, record)
        # If no node is large enough, the reasons above have covered nodes that are too small.
        yield from (each for each in self._matches(waiting, record) if not (vain and each.facts.get("sized")))
        yield from self._unscored(waiting)
        yield from spared(record)
        yield from no_room(record, facts, sum(within(int(self._report.status[pod]), COUNTED) for pod in pods))
        yield from self._forbidden(record, facts, waiting)
        yield from self._owed_to_others(facts, waiting)
        yield from self._others(record, waiting)

    # ------------------------------------------------------------------ facts

    def _pods(self, group: int) -> list[int]:
        return [pod for pod in self._members[group] if within(int(self._snapshot.pod_status[pod]), ALIVE)]

    def _ended(self, group: int) -> Counter[str]:
        """Return how many members have ended, by the name of their sub-group."""
        snapshot, members = self._snapshot, self._members[group]
        return Counter(snapshot.pods[pod].subgroup for pod in members if within(int(snapshot.pod_status[pod]), ENDED))

    @cached_property
    def _session(self) -> Session:
        """A session without decisions, in which plugins are asked."""
        return Session(self._snapshot, self._profile, Recorder(), Silent())

    @cached_property
    def _members(self) -> list[list[int]]:
        """The pods of each group."""
        members: list[list[int]] = [[] for _ in self._snapshot.groups]
        for pod, group in enumerate(self._snapshot.pod_group.tolist()):
            if group >= 0:
                members[group].append(pod)
        return members

    @cached_property
    def _empty(self) -> EmptyNodes:
        return EmptyNodes(self._snapshot)

    @cached_property
    def _matching(self) -> Matching:
        return Matching(self._snapshot, lambda: self._session, self._empty)

    @cached_property
    def _parents(self) -> frozenset[int]:
        """The rows of queues that have children."""
        return frozenset(queue.parent for queue in self._snapshot.queues)

    def _held_nodes(self, pods: Sequence[int]) -> list[str]:
        held = [pod for pod in pods if self._report.status[pod] == Status.PIPELINED]
        return sorted({self._snapshot.nodes[int(self._report.node[pod])].name for pod in held})

    @cached_property
    def _vacated(self) -> frozenset[str]:
        """The nodes of pods that leave."""
        return vacated_nodes(self._snapshot, self._report)

    def _runs(self, pods: Sequence[int]) -> bool:
        return any(within(int(self._report.status[pod]), COUNTED) for pod in pods)

    # ------------------------------------------------------------------ before anything is tried

    def _queue(self, facts: PodGroup) -> Iterator[Reason[str]]:
        if facts.queue_row < 0:
            yield missing_queue(facts.queue, self._declared)
        elif facts.queue_row in self._parents:
            below = [queue for queue in self._snapshot.queues if queue.parent == facts.queue_row]
            choice = alternatives([queue.name for queue in below])
            text = f"{facts.queue} is not a leaf queue; submit to {choice}"
            yield Reason("QueueNotLeaf", text, {"queue": facts.queue, "leaves": tuple(queue.name for queue in below)})

    def _tree(self, facts: PodGroup, pods: Sequence[int]) -> Iterator[Reason[str]]:
        strangers = sorted({self._snapshot.pods[pod].subgroup for pod in pods if self._snapshot.pod_subgroup[pod] < 0})
        if facts.tree_error:
            yield Reason("SubGroupsInvalid", tree_text(facts.tree_error))
        elif strangers:
            text = f"pods of it name sub-group {', '.join(strangers)}, which it does not declare"
            yield Reason(Code.UNKNOWN_SUBGROUP, text, {"subgroups": tuple(strangers)})

    def _readiness(self, group: int, facts: PodGroup, pods: Sequence[int]) -> Iterator[Reason[str]]:
        gated = [self._snapshot.pods[pod].key for pod in pods if self._snapshot.pod_status[pod] == Status.GATED]
        refused = [self._snapshot.pods[pod] for pod in pods if self._snapshot.pods[pod].refused]
        needed = least_pods(facts)
        if refused:
            yield refused_pods(refused, len(pods))
        elif gated and (len(pods) - len(gated) < needed <= len(pods) or len(gated) == len(pods)):
            yield from self._gates(pods)
        elif asked := sub_groups_asked(facts):
            yield Reason(Code.NOT_READY, asked)
        elif short := short_leaves(facts, Counter(self._snapshot.pod_subgroup[pods].tolist())):
            ended = self._ended(group)
            text = "; ".join(few_pods_text(least, there, ended[name], name=name) for name, least, there in short)
            yield Reason(Code.NOT_READY, text, {"needed": needed, "existing": len(pods)})
        elif len(pods) < needed:
            text = few_pods_text(needed, len(pods), self._ended(group).total())
            yield Reason(Code.NOT_READY, text, {"needed": needed, "existing": len(pods)})

    def _gates(self, pods: Sequence[int]) -> Iterator[Reason[str]]:
        known, status = self._snapshot.pods, self._snapshot.pod_status
        # The scheduling gates of a refused pod are shown to this scheduler only.
        gated = [known[pod].key for pod in pods if status[pod] == Status.GATED and not known[pod].refused]
        if gated:
            names = {name for pod in gated for name in self._declared.gates.get(pod, ())}
            yield Reason("Gated", gate_text(gated, len(pods), self._declared), {"gates": tuple(sorted(names))})

    def _kept(self, pods: Sequence[int]) -> Iterator[Reason[str]]:
        """Yield where moved pods that have not come back will start again."""
        kept = [pod for pod in pods if self._snapshot.pods[pod].is_stand_in]
        if kept:
            nodes = sorted({self._snapshot.nodes[int(self._report.node[pod])].name for pod in kept})
            what = "1 pod starts" if len(kept) == 1 else f"{len(kept)} pods start"
            whose = "its place is" if len(kept) == 1 else "their places are"
            yield Reason("Moves", f"{what} again on {listed(nodes)}, where {whose} kept", {"nodes": tuple(nodes)})

    def _impossible(self, group: int, pods: Sequence[int]) -> Iterator[Reason[str]]:
        shapes = sorted({int(self._snapshot.pod_shape[pod]) for pod in pods})
        needed = least_pods(self._snapshot.groups[group])
        yield from self._empty.refusals(shapes, needed, self._required_level(group))

    def _required_level(self, group: int) -> str:
        """Return the node label whose value all pods of ``group`` must share; "" for none."""
        if self._snapshot.groups[group].subgroups[0].constraint is None:
            return ""
        root = SubGroupRow(int(self._session.facts.groups.first_subgroup[group]))
        asked = self._session.policy.together(GroupRow(group), root)
        return next((each.level for each in asked if each.level), "")

    # ------------------------------------------------------------------ models that are used up

    def _models(self, facts: PodGroup, waiting: Sequence[int], record: GroupRecord) -> Iterator[Reason[str]]:
        """Yield the limit of a model that keeps the next pods from nodes with room, or from all that match them."""
        named = named_models(self._snapshot)
        if not named or facts.queue_row < 0 or not self._session.policy.rules.limits:
            return
        next_pods = self.next_pods(facts, waiting)
        forbidden = {str(each.facts["model"]) for each in messages.models_used_up(record.reasons)}
        shape, models = int(self._snapshot.pod_shape[next_pods[0]]), self._session.facts.nodes.model
        # The first pod stands for all: pods of a gang mostly ask for the same.
        nodes = np.flatnonzero(self._matching.of(next_pods[0])[0])
        found = {
            int(model): self._model_excess(facts, named, shape, int(nodes[models[nodes] == model][0]), len(next_pods))
            for model in np.unique(models[nodes])
        }
        if forbidden or all(found.values()):
            for model, reason in found.items():
                if reason is not None and (not forbidden or named[model] in forbidden):
                    yield Reason(Code.OVER_MODEL_LIMIT, bound_text(reason), reason.facts)

    def _model_excess(self, facts: PodGroup, named: Sequence[str], shape: int, node: int, pods: int) -> Reason | None:
        """Return the limit of the model of ``node`` that a number of pods of ``shape`` would exceed."""
        tables = self._session.facts
        model = int(tables.nodes.model[node])
        amount = int(accepted_gpu(tables, shape, node)) * pods
        # From the queue's own end of the path: that is the limit that its users know.
        for row in reversed(path_to(self._snapshot.queues, facts.queue_row)) if model >= 0 and amount else ():
            limit, used = float(tables.queues.model_limit[row, model]), int(self._report.queue_models[row, model])
            if 0 <= limit < used + amount:
                queue = self._snapshot.queues[row]
                numbers = {"resource": "gpu", "model": named[model], "bound": limit, "used": used, "requested": amount}
                names = {"queue": queue.name, "queue_name": queue.name, "queue_row": row}
                return Reason(code=Code.OVER_MODEL_LIMIT, facts={**names, **numbers})
        return None

    def _owed_to_others(self, facts: PodGroup, waiting: Sequence[int]) -> Iterator[Reason[str]]:
        """Yield that all GPUs of the model which the next pods need are held within quotas of it."""
        deserved, named = self._report.models_deserved, named_models(self._snapshot)
        if deserved is None or facts.queue_row < 0:
            return
        pod, queues = self.next_pods(facts, waiting)[0], self._snapshot.queues
        found = np.unique(self._session.facts.nodes.model[self._matching.of(pod)[0]])
        model = int(found[0]) if len(found) == 1 else -1
        used, mine = self._report.queue_models[:, model], path_to(queues, facts.queue_row)
        holders = np.flatnonzero(self._session.facts.queues.leaf & (used > 0)).tolist() if model >= 0 else []
        # A queue that holds some, where its path parts from that of the waiting queue.
        givers = {next((row for row in path_to(queues, holder) if row not in mine), NONE) for holder in holders} - {
            NONE
        }
        if givers and all(used[row] <= deserved[row, model] for row in givers):
            own = queues[facts.queue_row]
            quota = own.models[named[model]].quota if named[model] in own.models else 0.0
            numbers = {
                "queue": own.name,
                "model": named[model],
                "used": int(used[facts.queue_row]),
                "quota": round(quota),
                "owed": int(deserved[facts.queue_row, model]),
            }
            yield Reason("ModelOwedToOthers", owed_text(numbers), numbers)

    # ------------------------------------------------------------------ nodes that never match

    def _matches(self, waiting: Sequence[int], record: GroupRecord) -> Iterator[Reason[str]]:
        for reason in record.reasons:
            refusals = reason.facts.get("refusals")
            if isinstance(refusals, tuple) and refusals:
                yield refusal_words([each for each in refusals if isinstance(each, Reason)])
        group = int(self._snapshot.pod_group[waiting[0]])
        # A group that stands needs no place for its minimum any more.
        needed = 0 if self._stands(group) else max(1, least_pods(self._snapshot.groups[group]))
        yield from self._matching.refusals(waiting, needed, self._required_level(group))

    def _stands(self, group: int) -> bool:
        """Return whether pods of ``group`` had a node before the cycle, or have one now."""
        rows = self._members[group]
        return self._runs(rows) or any(self._snapshot.pod_node[row] >= 0 for row in rows)

    def _unscored(self, waiting: Sequence[int]) -> Iterator[Reason[str]]:
        """Yield the plugin that excludes every node with room by scoring it NaN."""
        pod = waiting[0]
        request = self._snapshot.requests[int(self._snapshot.pod_shape[pod])]
        accepted, _ = self._matching.of(pod)
        roomy = np.flatnonzero(accepted & (self._report.idle >= request).all(axis=1)).astype(np.int64)
        if not len(roomy):
            return
        for plugin in self._session.policy.plugins:
            if plugin.node_score is None or not plugin.is_asked(int(self._snapshot.pod_shape[pod])):
                continue
            if np.isnan(scores_of(plugin, PodRow(pod), roomy)).all():
                nodes = [self._snapshot.nodes[node].name for node in roomy]
                text = f"plugin {plugin.name} scores the nodes that have room with NaN: {listed(nodes)}"
                yield Reason("NoScore", text, {"plugin": plugin.name, "nodes": tuple(nodes)})

    # ------------------------------------------------------------------ others are in the way

    def _forbidden(self, record: GroupRecord, facts: PodGroup, waiting: Sequence[int]) -> Iterator[Reason[str]]:
        if any(note.code is Code.NOT_ELIGIBLE for note in record.notes):
            numbers = self._share(facts, waiting)
            yield Reason(Code.NOT_ELIGIBLE, f"no room; {share_text(numbers)}", numbers)

    def _share(self, facts: PodGroup, waiting: Sequence[int]) -> dict[str, Any]:
        """Return the facts about the queue and the resource with which the next pods would exceed its fair share."""
        queue = facts.queue_row
        next_pods = self.next_pods(facts, waiting)
        asked = self._snapshot.requests[self._snapshot.pod_shape[next_pods]].sum(axis=0)
        asked[GPU] = asked @ self._snapshot.axis.gpu_weights()  # MIG slices count as GPUs
        by_memory = gpus_by_memory(self._snapshot, largest=False)
        asked[GPU] += round(by_memory[self._snapshot.pod_shape[next_pods]].sum())
        used, share = self._report.queue_used[queue], self._report.fair_share[queue]
        passed = [at for at in (GPU, CPU, MEMORY) if used[at] + asked[at] > share[at]]
        at = passed[0] if passed else GPU
        limit = self._snapshot.queues[queue].limit
        return {
            "queue": self._snapshot.queues[queue].name,
            "queue_row": queue,
            "resource": self._snapshot.axis.names[at],
            "used": int(used[at]),
            "requested": int(asked[at]),
            "fair_share": round(share[at]),
            "limit": round(limit.of(at)),
            "pods": len(next_pods),
            "more": len(next_pods) < len(waiting) or self._runs(self._members[self._snapshot.pod_group[waiting[0]]]),
        }

    def next_pods(self, facts: PodGroup, waiting: Sequence[int]) -> list[int]:
        """Return the next pods of ``waiting`` to place: all that are missing to the minimum, else one."""
        missing = {at: part.minimum or 0 for at, part in enumerate(facts.subgroups) if part.leaf}
        for pod in self._members[self._snapshot.pod_group[waiting[0]]]:
            leaf = int(self._snapshot.pod_subgroup[pod])
            if leaf in missing and within(int(self._report.status[pod]), ACTIVE_ALLOCATED):
                # Pods that are leaving no longer count: their places have to be filled anew.
                missing[leaf] -= 1
        found: list[int] = []
        for pod in waiting:
            leaf = int(self._snapshot.pod_subgroup[pod])
            if missing.get(leaf, 0) > 0:
                missing[leaf] -= 1
                found.append(pod)
        return found or list(waiting[:1])

    def _untried(self, waiting: Sequence[int]) -> Reason[str]:
        """Return why nothing was tried: if known, that an optional sub-group lacks pods."""
        group = int(self._snapshot.pod_group[waiting[0]])
        counts = Counter(self._snapshot.pod_subgroup[self._pods(group)].tolist())
        for leaf in sorted({int(self._snapshot.pod_subgroup[pod]) for pod in waiting} - {-1}):
            part, there = self._snapshot.groups[group].subgroups[leaf], counts[leaf]
            if part.minimum is not None and there < part.minimum:
                ended = self._ended(group)[part.name]
                return Reason(Code.NOT_READY, few_pods_text(part.minimum, there, ended, name=part.name))
        return Reason("NotTried", "no action has tried it in this cycle")

    def _others(self, record: GroupRecord, waiting: Sequence[int]) -> Iterator[Reason[str]]:
        for reason in record.reasons:
            if reason.code is Code.PREEMPTION_DELAY:
                yield Reason(Code.PREEMPTION_DELAY, delay_text(reason.facts), reason.facts)
        request = self._snapshot.requests[int(self._snapshot.pod_shape[waiting[0]])]
        gpus, shared = int(request[GPU]), self._snapshot.shapes[int(self._snapshot.pod_shape[waiting[0]])].gpu
        # No action left a word about it, so none came to it.
        if not record.reasons and not record.notes:
            yield self._untried(waiting)
            return
        said = self._kept_from(waiting[0], record)
        nodes = ", ".join(counted(count, text) for text, count in said.items())
        if (lacking := lacking_of(record)).keys() - {"GPUs"}:
            counts = ", ".join(f"{count} {'lacks' if count == 1 else 'lack'} {name}" for name, count in lacking.items())
            text = f"no node that it may use has all that it asks for: {counts}"
            yield Reason("NoRoom", f"{text}; {nodes}" if nodes else text, {"lacking": lacking, "refused": said})
        elif not lacking and nodes:
            yield Reason("NoRoom", f"no node takes it now: {nodes}", {"refused": said})
        elif gpus:
            # A node can be overbooked, and a negative remainder must not hide what is idle on others.
            idle = int(np.maximum(self._report.idle[:, GPU], 0).sum())
            asked, whole = quantity(gpus, "gpu"), ""
            if shared.kind is GpuKind.FRACTION:
                asked = f"{plain(gpus // shared.devices)} of {of_devices(shared.devices)}"
                whole = "whole GPU " if idle == GPU_UNIT else "whole GPUs "
            text, rest = f"no node that it may use has {asked} idle", f"; {nodes}" if nodes else ""
            facts = {"refused": said, "without_others": f"{text}{rest}"}
            yield Reason("NoRoom", f"{text}; {plain(idle)} {whole}idle in all{rest}", facts)
        elif shared.kind is GpuKind.MEMORY:
            text = f"no node that it may use has {shared.memory} MiB of {of_devices(shared.devices)} idle"
            yield Reason("NoRoom", f"{text}; {nodes}" if nodes else text, {"refused": said})
        else:
            text = "no node that it may use has enough idle"
            yield Reason("NoRoom", f"{text}; {nodes}" if nodes else text, {"refused": said})

    def _kept_from(self, pod: int, record: GroupRecord) -> Mapping[str, int]:
        """Return what excludes nodes with room for ``pod``: the number of nodes for each text.

        Objections of plugins because of other pods always count, because they were made about nodes that had room then.
        """
        request = self._snapshot.requests[int(self._snapshot.pod_shape[pod])]
        roomy = {int(node) for node in np.flatnonzero((self._report.idle >= request).all(axis=1))}
        refused = self._matching.of(pod)[1]
        found = {text: len(roomy.intersection(nodes)) for text, nodes in refused.items()}
        # A text that matching counts is not counted twice.
        found |= {text: count for text, count in said_of_nodes(record).items() if text not in refused}
        return {text: count for text, count in found.items() if count}
