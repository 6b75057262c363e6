"""Small models of workload controllers: they create pods, replace evicted or crashed ones, and end with their work.

    arrive → pods wait → bound → enough run together: work → over → what comes after it begins
                ↑                     │ an eviction, a crash or a failed node interrupts: saved work stays
                └─────── made again ──┘

Start reading at ``arrive``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from math import inf, isnan, nan
from typing import TYPE_CHECKING, Final

import attrs

from kai.answers.offline.cluster_reaction import recreated
from kai.api import names
from kai.api.conventions.runtime_limits import Force, Limit, Policy, bound, queue_chain
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import GRACE_SECONDS, Pod
from kai.api.scheduling.pod_group import PodGroupCondition
from kai.api.scheduling.queue import Queue
from kai.history.facts import Ended
from kai.lab.virtual.running.embedded_cluster import EmbeddedCluster, held_gpus
from kai.lab.virtual.running.live_jobs import Calendar, Life, LiveJob, Slot, State, Task
from kai.lab.virtual.running.records import Ending, Loss, Records
from kai.lab.virtual.scenes.job_plans import Follow, JobPlan, Overlap, Replacement, Series, TaskPlan, identity_of
from kai.roles.scheduler.wakeups import starts_alone

if TYPE_CHECKING:
    from kai.api.kubernetes.meta import ObjectMeta
    from kai.api.scheduling.pod_group import PodGroup
    from kai.facts.state.snapshot import Snapshot
    from kai.framework.decisions import Bind

_FIRST_BACKOFF: Final = 10.0
_LONGEST_BACKOFF: Final = 360.0
"""Upper bound of the exponential back-off before a Job replaces a crashed pod. Source: the Job controller."""
_ENDED: Final = {
    Ending.DONE: Ended.DONE,
    Ending.FAILED: Ended.FAILED,
    Ending.TIME_LIMIT: Ended.TIME_LIMIT,
    Ending.TAKEN_BACK: Ended.DELETED,
}
"""What the history of usage says about the pods of a job that ends."""


@attrs.define(eq=False)
class Workloads:
    """All present jobs and their pods."""

    calendar: Calendar
    cluster: EmbeddedCluster
    records: Records
    grace: float = GRACE_SECONDS
    lives: dict[Key, Life] = attrs.field(factory=dict)
    jobs: dict[Key, LiveJob] = attrs.field(factory=dict)
    """By namespace and name of their groups."""
    waiting: int = 0
    """Number of waiting pods."""
    is_changed: bool = False
    """Whether something happened that a cycle should see."""
    has_independent_pods: bool = False
    """Whether pods were created that start without others."""
    left: dict[str, float] = attrs.field(factory=dict)
    """When a pod was last gone from each node."""
    note_end: Callable[[Pod, Ended], None] = lambda _pod, _why: None
    """Takes the reason for which a pod goes, before it is gone."""
    _latest: dict[str, LiveJob] = attrs.field(factory=dict)
    """The last run of each CronJob."""
    _put_off: dict[str, JobPlan] = attrs.field(factory=dict)
    """By CronJob: the run that waits for the previous one to end."""
    _held: list[JobPlan] = attrs.field(factory=list)
    """Jobs that their controllers create once others run or are complete."""
    _followed: dict[Key, LiveJob] = attrs.field(factory=dict)
    """Jobs that others wait for, by the group of their plan."""
    _members: Counter[Key] = attrs.field(factory=Counter)
    """Number of pods by group."""
    _chains: dict[str, tuple[Queue, ...]] = attrs.field(factory=dict)
    """Queues with their ancestors, by name."""

    # --- Arrivals --------------------------------------------------------------------------------------------------

    def arrive(self, plan: JobPlan) -> None:
        """Let a job arrive, with the tasks that its owner starts first."""
        if plan.series is not None and self._is_put_off(plan, plan.series):
            return
        if not all(map(self._is_reached, plan.follows)):
            self._held.append(plan)
            self.records.hold(plan)
            return
        now = self.calendar.now
        group = _born(plan.group, self.cluster.instant(now))
        job = LiveJob(plan=plan, number=self.records.arrive(plan, now), group=group, left=len(plan.tasks))
        self._add_group(group, job)
        job.limits = bound(group, self._chain(group.spec.queue))
        if plan.is_followed:
            self._followed[key_of(plan.group)] = job
        if plan.series is not None:
            self._latest[plan.series.name] = job
        most = plan.at_once or len(plan.tasks)
        job.blocked = [task for task in plan.tasks if task.after]
        first = [task for task in plan.tasks if not task.after]
        job.waiting = deque(first[most:])
        for task in first[:most]:
            if task.arrival > now:
                self.calendar.enter(task.arrival, partial(self._begin, job, task))
            else:
                self._begin(job, task)

    def _is_reached(self, follow: Follow) -> bool:
        """Return whether the jobs that a job follows run whole or are complete."""
        for key in follow.jobs:
            job = self._followed.get(key)
            if job is None or not (job.is_done or (not follow.is_over and job.runs_whole)):
                return False
        return True

    def _let_come(self) -> None:
        """Let the held jobs arrive whose conditions hold, within this instant."""
        come = [plan for plan in self._held if all(map(self._is_reached, plan.follows))]
        self._held = [plan for plan in self._held if plan not in come]
        for plan in come:
            # Through the calendar and not at once: it may be called while a job arrives.
            self.calendar.enter(self.calendar.now, partial(self.arrive, plan))

    def _is_put_off(self, plan: JobPlan, series: Series) -> bool:
        """Apply the concurrency policy of a CronJob; return whether this run has to wait for the previous one.

        Source: the CronJob controller, which starts the last run that it could not start once it can.
        """
        before = self._latest.get(series.name)
        if before is None or before.is_over or series.overlap is Overlap.ALLOW:
            return False
        if series.overlap is Overlap.REPLACE:
            self._give_up(before, Ending.TAKEN_BACK)
            return False
        self.records.put_off[plan.owner] += 1
        self.records.missed[plan.owner] += series.name in self._put_off
        self._put_off[series.name] = plan
        return True

    def _come_late(self, series: Series) -> None:
        """Start the run that waited for the previous one, unless its starting deadline has passed."""
        plan = self._put_off.pop(series.name, None)
        if plan is None:
            return
        if self.calendar.now - plan.arrival <= series.deadline:
            self.arrive(plan)
        else:
            self.records.missed[plan.owner] += 1

    def _begin(self, job: LiveJob, plan: TaskPlan) -> None:
        if job.is_over:
            return
        task = Task(job=job, plan=plan, idle_since=self.calendar.now, has_late=not plan.late)
        task.slots = tuple(Slot(task=task, plan=each) for each in plan.pods)
        job.tasks.append(task)
        if plan.after:
            self._come_later(task)
        for slot in task.open_slots:
            self._fill(slot)
        if plan.leaves < inf:
            self.calendar.enter(plan.leaves, partial(self._take_back, task))
        self._settle(task)

    def _take_back(self, task: Task) -> None:
        """Scale a task down: waiting pods are deleted immediately, others within their grace period."""
        if task.is_over:
            return
        self._interrupt(task, None)
        task.is_over = True
        for life in self._lives_of(task):
            self._let_go(life, Ended.DELETED)
        self._task_is_over(task, Ending.TAKEN_BACK)

    # --- Decisions -------------------------------------------------------------------------------------------------

    def bind(self, life: Life, decision: Bind, snapshot: Snapshot, cycle: int) -> None:
        """Bind a pod, which runs immediately."""
        self.run(life, self.cluster.bind(life.pod, decision, snapshot, cycle), held_gpus(decision, snapshot))

    def run(self, life: Life, bound: Pod, gpus: float) -> None:
        """Start a pod that is bound and holds ``gpus`` GPUs."""
        life.pod = bound
        self._runs(life, gpus)
        self._settle(life.slot.task)

    def evict(self, life: Life, why: Ended) -> None:
        """Evict a pod; unsaved work of its task is lost."""
        slot, task = life.slot, life.slot.task
        self._stop(life)
        self._settle(task, Loss.EVICTION)
        self._let_go(life, why)
        # A StatefulSet reuses the name of a pod, so its new pod is created only after the old one is gone: `_gone`.
        if slot.life is None and not task.is_over and task.job.plan.replacement is not Replacement.SAME_NAME:
            self._fill(slot)

    def lose(self, life: Life) -> None:
        """Remove a pod whose node is gone."""
        slot, task = life.slot, life.slot.task
        self._stop(life)
        self._settle(task, Loss.NODE)
        self.note_end(life.pod, Ended.NODE)
        self._end(life)
        if slot.life is None and not task.is_over:
            self._fill(slot)

    # --- Work ------------------------------------------------------------------------------------------------------

    def _settle(self, task: Task, loss: Loss | None = None) -> None:
        """Start the work of a task when enough of its pods run, and stop it when they no longer do."""
        if not task.has_late and not task.is_over and task.running == len(task.open_slots):
            task.has_late = True
            self._come_later(task)
            for slot in task.slots[-task.plan.late :]:
                self._fill(slot)
        if task.is_complete and not task.runs and not task.is_over:
            self._start(task)
        elif not task.is_complete and task.runs:
            self._interrupt(task, loss)
        if self._held:
            self._let_come()

    def _start(self, task: Task) -> None:
        now, job = self.calendar.now, task.job
        behaviour = job.plan.behaviour
        task.since = now
        task.run += 1
        self.records.later.pop(task.plan, None)
        self.records.start(job.number, now, now - task.idle_since)
        self._count(job)
        # Each event carries the number of this start, so that it is ignored after an interruption.
        if behaviour.duration is not None:
            end = now + behaviour.startup + behaviour.duration - task.progress
            self.calendar.enter(end, partial(self._finish, task, task.run))
        if behaviour.fails_at is not None:
            self.calendar.enter(now + behaviour.fails_at, partial(self._crash, task, task.run))

    def _interrupt(self, task: Task, loss: Loss | None) -> None:
        """Stop the work of a task; only saved work remains. Lost work counts for the GPUs that it held."""
        if not task.runs:
            return
        now, behaviour = self.calendar.now, task.job.plan.behaviour
        work, warm = task.work_at(now), min(now - task.since, behaviour.startup)
        # Work without an end, such as serving, has no progress to lose; only its warm-up is lost.
        kept = work if behaviour.duration is None else max(task.progress, behaviour.saved(work))
        task.progress, task.since, task.idle_since = kept, nan, now
        self._count(task.job)
        if loss is not None:
            held = sum(life.gpus for life in self._lives_of(task) if life.state is State.RUNNING)
            self.records.lose(task.job.number, (work - kept + warm) * (held + task.gone_at(now)), loss)

    def _finish(self, task: Task, run: int) -> None:
        """Complete a task, unless it was interrupted since."""
        if task.run != run or not task.runs:
            return
        task.is_over, task.since = True, nan
        self._count(task.job)
        self._end_all(task, Ended.DONE)
        self._task_is_over(task, Ending.DONE)

    def _crash(self, task: Task, run: int) -> None:
        """Crash all pods of a task, unless it was interrupted since."""
        if task.run != run or not task.runs:
            return
        job = task.job
        self._interrupt(task, Loss.CRASH)
        self._end_all(task, Ended.FAILED)
        task.has_late = not task.plan.late
        job.failures += 1
        if job.failures > job.plan.behaviour.restarts:
            self._give_up(job, Ending.FAILED)
            return
        delay = min(_FIRST_BACKOFF * 2 ** (job.failures - 1), _LONGEST_BACKOFF)
        self.calendar.enter(self.calendar.now + delay, partial(self._fill_again, task))

    # --- Limits of run times ---------------------------------------------------------------------------------------

    def _count(self, job: LiveJob) -> None:
        """Start the clock of a job when its first task runs, and stop it when none does."""
        if not job.limits.limits:
            return  # nearly all jobs, and a job may have very many tasks
        now = self.calendar.now
        runs = any(task.runs for task in job.tasks)
        if not runs and not isnan(job.since):
            job.consumed, job.since = job.consumed + now - job.since, nan
        # The end is entered at each start anew; `run` makes the events of earlier starts void.
        elif runs and isnan(job.since):
            job.since = now
            job.run += 1
            end = job.limits.end(now, job.consumed)
            if end is not None:
                self.calendar.enter(end.at, partial(self._reach_limit, job, job.run, end.limit))

    def _reach_limit(self, job: LiveJob, run: int, limit: Limit) -> None:
        """End a job at a limit, unless that run is over; a job that requeues waits until its delay has passed."""
        if job.is_over or job.run != run or isnan(job.since):
            return
        if limit.force is not Force.KAI or job.limits.policy is not Policy.REQUEUE:
            self._give_up(job, Ending.TIME_LIMIT)
            return
        self._mark(job, "True")
        # A list, because evictions change what it is made from.
        for life in [life for task in job.tasks for life in self._lives_of(task) if life.state is State.RUNNING]:
            self.evict(life, Ended.TIME_LIMIT)
        job.consumed = 0.0
        self.calendar.enter(self.calendar.now + job.limits.requeue_delay, partial(self._mark, job, "False"))

    def _mark(self, job: LiveJob, status: str) -> None:
        """Write on the group of a job whether it has reached its limit, so that cycles try none of its pods."""
        condition = PodGroupCondition(type=names.TIME_LIMIT, status=status, reason=names.TIME_LIMIT)
        job.group = attrs.evolve(job.group, status=attrs.evolve(job.group.status, conditions=(condition,)))
        if not job.is_over:
            self.cluster.groups.put(job.group)
            self.is_changed = True

    def _chain(self, name: str) -> tuple[Queue, ...]:
        """Return a queue and its ancestors. Queues do not change while time passes."""
        if name not in self._chains:
            queues = {each.metadata.name: each for each in self.cluster.rest.queues}
            self._chains[name] = queue_chain(name, queues.get)
        return self._chains[name]

    @staticmethod
    def _lives_of(task: Task) -> list[Life]:
        return [slot.life for slot in task.slots if slot.life is not None]

    def _end_all(self, task: Task, why: Ended) -> None:
        """End all pods of a task."""
        for life in self._lives_of(task):
            self.note_end(life.pod, why)
            self._stop(life)
            self._end(life)

    def _fill_again(self, task: Task) -> None:
        if task.is_over:
            return
        for slot in task.open_slots:
            if slot.life is None:
                self._fill(slot)

    def _give_up(self, job: LiveJob, ending: Ending) -> None:
        """End a job before its work is done."""
        for task in job.tasks:
            if not task.is_over:
                self._interrupt(task, None)
                task.is_over = True
                for life in self._lives_of(task):
                    self._let_go(life, _ENDED[ending])
        job.waiting.clear()
        job.blocked.clear()
        self._job_is_over(job, ending)

    def _task_is_over(self, task: Task, ending: Ending) -> None:
        job = task.job
        job.left -= 1
        if job.blocked:
            self._begin_after(job, task)
        if job.waiting and not job.is_over:
            self._begin(job, job.waiting.popleft())
        if not job.left and not job.is_over:
            self._job_is_over(job, ending)

    def _begin_after(self, job: LiveJob, task: Task) -> None:
        """Begin the tasks whose last open dependency was this one."""
        job.done.add(job.plan.tasks.index(task.plan))
        begun = [each for each in job.blocked if job.done.issuperset(each.after)]
        job.blocked = [each for each in job.blocked if each not in begun]
        for each in begun:
            self._begin(job, each)

    def _job_is_over(self, job: LiveJob, ending: Ending) -> None:
        job.is_over, job.is_done = True, ending is Ending.DONE
        if self._held:
            self._let_come()
        self.records.end(job.number, self.calendar.now, ending)
        self._drop_group(key_of(job.group), job)
        if job.plan.series is not None:
            self._come_late(job.plan.series)

    # --- Pods ------------------------------------------------------------------------------------------------------

    def _fill(self, slot: Slot) -> None:
        """Create a pod for a slot: the first as written, each later one as its owner recreates it."""
        job, plan = slot.task.job, slot.plan.pod
        slot.lives += 1
        pod = plan if slot.lives == 1 else self._made_again(slot, plan)
        metadata = attrs.evolve(pod.metadata, creation_timestamp=self.cluster.instant(self.calendar.now))
        life = Life(slot=slot, pod=self.cluster.add(attrs.evolve(pod, metadata=metadata)), group=job.group)
        slot.life = life
        self.lives[life.key] = life
        self._members[key_of(job.group)] += 1
        self.records.wait(job.number, slot.plan.gpus, self.calendar.now)
        self.waiting += 1
        self.is_changed = True
        self.has_independent_pods |= starts_alone(job.group)
        if pod.spec.node_name:
            self._runs(life, slot.plan.gpus)

    def _made_again(self, slot: Slot, plan: Pod) -> Pod:
        job, number = slot.task.job, slot.lives - 1
        pod, metadata = recreated(plan), plan.metadata
        name, annotations = metadata.name, dict(pod.metadata.annotations)
        if job.plan.replacement is not Replacement.SAME_NAME:
            name = f"{name}-r{number}"
        if job.plan.replacement is Replacement.NEW_GROUP:
            group = job.plan.group
            renamed = attrs.evolve(
                group.metadata, name=f"{group.metadata.name}-r{number}", uid=f"{identity_of(group)}-r{number}"
            )
            job.group = _born(attrs.evolve(group, metadata=renamed), self.cluster.instant(self.calendar.now))
            self._add_group(job.group, job)
            annotations[names.POD_GROUP] = job.group.metadata.name
        fresh = attrs.evolve(pod.metadata, name=name, uid=f"{identity_of(plan)}-r{number}", annotations=annotations)
        return attrs.evolve(pod, metadata=fresh)

    def _runs(self, life: Life, gpus: float) -> None:
        """Run a pod on its node."""
        self.waiting -= 1
        slot, now, node = life.slot, self.calendar.now, life.pod.spec.node_name
        life.state, life.node, life.gpus, life.since = State.RUNNING, node, gpus, now
        slot.task.running += 1
        self.records.bind(slot.task.job.number, slot.plan.gpus, gpus, node, now)
        self.is_changed = True

    def _stop(self, life: Life) -> None:
        """Stop counting a running pod for its task."""
        if life.state is State.RUNNING:
            life.slot.task.running -= 1
            life.slot.task.let_go(life.gpus, self.calendar.now)
            life.state = State.LEAVING
            life.slot.life = None

    def _let_go(self, life: Life, why: Ended) -> None:
        """Delete a pod: immediately if it waits, else after its grace period."""
        if life.state is State.WAITING:
            self._end(life)
            return
        self.note_end(life.pod, why)
        self._stop(life)
        life.pod = self.cluster.terminate(life.pod, self.calendar.now)
        self.calendar.enter(self.calendar.now + self.grace, partial(self._gone, life))
        self.is_changed = True

    def _gone(self, life: Life) -> None:
        """Remove a pod after its grace period; its owner may have waited for its name."""
        if self.lives.get(life.key) is not life:
            return
        self._end(life)
        slot = life.slot
        if slot.life is None and not slot.task.is_over and not slot.task.job.is_over:
            self._fill(slot)

    def _end(self, life: Life) -> None:
        """Remove a pod from the cluster."""
        job = life.slot.task.job
        if life.state is State.WAITING:
            self.waiting -= 1
            self.records.give_up(job.number, life.slot.plan.gpus, self.calendar.now)
        else:
            self.records.release(job.number, life.node, life.since, life.gpus, self.calendar.now)
            self.left[life.node] = self.calendar.now
        if life.slot.life is life:
            life.slot.life = None
        del self.lives[life.key]
        self.cluster.remove(life.pod)
        group = key_of(life.group)
        self._members[group] -= 1
        self._drop_group(group, job)
        self.is_changed = True

    # --- Groups ----------------------------------------------------------------------------------------------------

    def stamp(self, job: LiveJob, key: str, instant: float) -> None:
        """Write an instant on the group of a job, or remove it."""
        job.group = self.cluster.stamp(job.group, key, instant)
        self.is_changed = True

    def _add_group(self, group: PodGroup, job: LiveJob) -> None:
        self.jobs[key_of(group)] = job
        self.cluster.groups.put(group)

    def _come_later(self, task: Task) -> None:
        """Record that later pods were created, and switch the group to the spec that includes them."""
        job, group = task.job, task.plan.group
        self.records.come_later(job.number, task.plan)
        if group is not None:
            job.group = attrs.evolve(job.group, spec=group.spec)
            self.cluster.groups.put(job.group)
            self.is_changed = True

    def _drop_group(self, key: Key, job: LiveJob) -> None:
        """Remove a group that has no pods and gets none."""
        if not self._members[key] and (job.is_over or key != key_of(job.group)):
            del self._members[key]
            self.jobs.pop(key, None)
            self.cluster.groups.remove(key)
            if job.is_over:
                job.let_go()


def _born(group: PodGroup, instant: float) -> PodGroup:
    metadata: ObjectMeta = attrs.evolve(group.metadata, creation_timestamp=instant)
    return attrs.evolve(group, metadata=metadata)
