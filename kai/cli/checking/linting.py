"""Files to findings: all manifests together as one input, each configuration and each scenario by itself.

Semantic errors of a scenario are reported in the terms of its own form. The short form has ``groups.train.minimum``
where objects have ``minMember``; a message with the wrong term would send its reader to a field that does not exist.
"""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kai.answers.cases.case import Case, low_limits
from kai.answers.cases.files import SUFFIXES, files_below
from kai.api import names
from kai.api.codec import structuring
from kai.api.fields import EMPTY
from kai.api.kinds import key_of
from kai.api.scheduling.pod_group import PodGroup, SubGroup
from kai.basics.errors import ConfigError, InputError
from kai.basics.parsing import mapping_of
from kai.basics.trees import is_below_itself
from kai.basics.wording import counted
from kai.cli.running.configuring import load_setup
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.configuration.registry import Registry
from kai.intake.groups import fault_of_tree
from kai.lab.scenarios.scenario import is_scenario, read_scenario
from kai.lab.scenarios.shorthand import is_short
from kai.lab.sources.archive import is_archive
from kai.lab.sources.judging import findings_of
from kai.lab.sources.loading import read_case
from kai.lab.traces.columns import node_format_of
from kai.lab.traces.rows import read_rows
from kai.lab.traces.trace_reading import read_nodes, read_trace
from kai.lab.virtual.scenes.cluster_file import KEYS as CLUSTER_KEYS
from kai.lab.virtual.scenes.cluster_file import read_cluster_file
from kai.lab.virtual.scenes.file_kinds import is_trace
from kai.manifests import Document, Finding, RefusedError, Surroundings, documents_of, open_text, read
from kai.manifests.adoption import NONE, Adoption, adopted_documents
from kai.manifests.findings import Text
from kai.manifests.gpus import Claims
from kai.manifests.manifest_reading import Reading


@attrs.frozen(kw_only=True)
class _Form:
    """The names of the fields of queues and groups in one form."""

    queue: str
    group: str
    parent: str
    limit: str
    queue_of_group: str
    minimum_of_group: str
    minimum: str
    subgroup: str
    parts: str
    minimum_of_parts: str
    part_of_parts: str


_SHORT: Final = _Form(
    queue="queues.{name}",
    group="groups.{name}",
    parent=".parent",
    limit=".limit",
    queue_of_group=".queue",
    minimum_of_group=".minimum",
    minimum=".minimum",
    subgroup=".subgroups.{name}",
    parts=".subgroups",
    minimum_of_parts=".minimum",
    part_of_parts=".minimum_subgroups",
)
_OBJECTS: Final = _Form(
    queue="queue {name}",
    group="podgroup {namespace}/{name}",
    parent=": spec.parentQueue",
    limit=": spec.resources",
    queue_of_group=": spec.queue",
    minimum_of_group=": spec.minMember",
    minimum=".minMember",
    subgroup=": spec.subGroups[{at}]",
    parts=": spec.subGroups",
    minimum_of_parts=": spec.minSubGroup",
    part_of_parts=".minSubGroup",
)


def doubts(case: Case, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the queues and the groups of a scenario; ``document`` is its source."""
    # Objects may stand beside queues and groups in the short form, under cluster.objects.
    short_queues, short_groups = (_keys(document, key) if is_short(document) else () for key in ("queues", "groups"))
    yield from _of_queues(case, short_queues)
    parents = {queue.metadata.name: queue.spec.parent_queue for queue in case.objects.queues}
    pods: Counter[tuple[str, str, str]] = Counter()
    for pod in case.objects.pods:
        owner = pod.metadata.annotations.get(names.POD_GROUP, "")
        pods[pod.metadata.namespace, owner, pod.metadata.labels.get(names.SUBGROUP, "")] += 1
    for group in case.objects.pod_groups:
        form = _SHORT if group.metadata.name in short_groups else _OBJECTS
        place = form.group.format(name=group.metadata.name, namespace=group.metadata.namespace)
        of_queue = place + form.queue_of_group
        if group.spec.queue not in parents:
            yield f"{of_queue}: queue {group.spec.queue} does not exist"
        elif group.spec.queue in parents.values():
            yield f"{of_queue}: queue {group.spec.queue} has children; only a leaf queue can run jobs"
        if form is not _SHORT or group.metadata.name not in mapping_of(document, "expect"):
            yield from _of_gang(group, place, form, pods)  # with an expectation, an odd gang is deliberate


def _keys(document: Mapping[str, Any], key: str) -> Collection[str]:
    return mapping_of(document, key).keys()


def _of_queues(case: Case, short: Collection[str]) -> Iterator[str]:
    parents = {queue.metadata.name: queue.spec.parent_queue for queue in case.objects.queues}
    for name, parent in parents.items():
        form = _SHORT if name in short else _OBJECTS
        field = form.queue.format(name=name) + form.parent
        if parent and parent not in parents:
            yield f"{field}: queue {parent} does not exist"
        if is_below_itself(name, parents):
            yield f"{field}: queue {name} is its own ancestor"
    for name, text in low_limits(case.objects):
        form = _SHORT if name in short else _OBJECTS
        yield f"{form.queue.format(name=name)}{form.limit}: {text}"


def _of_gang(group: PodGroup, place: str, form: _Form, pods: Mapping[tuple[str, str, str], int]) -> Iterator[str]:
    """Yield groups, and parts of them, that require more pods or parts than they have."""
    key = key_of(group)
    parts = group.spec.sub_groups
    least = group.spec.min_member
    if not parts:
        there = pods.get((*key, ""), 0)
        # A group without any pod is no mistake: its controller creates the pods later.
        if least is not None and least > there > 0:
            yield f"{place}{form.minimum_of_group}: found {least}, expected at most {there}, the number of its pods"
        return
    yield from _of_tree(group, place, form)
    if not any(pods.get((*key, part.name)) for part in parts):
        return  # none of its pods is there yet
    inner = {part.parent for part in parts}
    for at, part in enumerate(parts):
        there = pods.get((*key, part.name), 0)
        if part.name not in inner and part.min_member is not None and part.min_member > there:
            field = f"{place}{form.subgroup.format(name=part.name, at=at)}{form.minimum}"
            yield f"{field}: found {part.min_member}, expected at most {there}, the number of its pods"


def _of_tree(group: PodGroup, place: str, form: _Form) -> Iterator[str]:
    """Yield faults of the tree of parts, and parts that require more children than they have."""
    parts: tuple[SubGroup, ...] = group.spec.sub_groups
    fault = fault_of_tree(group.spec)
    # A parent that is missing is reported below, at its own part and in the terms of the form.
    if fault.startswith("spec.subGroups: ") and "found parent" not in fault:
        yield f"{place}{form.parts}: {fault.rpartition(': ')[2]}"
        return
    known = {part.name for part in parts}
    children = Counter(part.parent or "" for part in parts)
    for at, part in enumerate(parts):
        field = place + form.subgroup.format(name=part.name, at=at)
        if part.parent and part.parent not in known:
            yield f"{field}.parent: found {part.parent}, expected the name of a sub-group"
        asked = part.min_sub_group
        if asked is not None and part.name in children and asked > children[part.name]:
            there = children[part.name]
            yield f"{field}{form.part_of_parts}: found {asked}, expected at most {there}, the number of its sub-groups"
    asked = group.spec.min_sub_group
    if asked is not None and asked > children[""] > 0:
        field = place + form.minimum_of_parts
        yield f"{field}: found {asked}, expected at most {children['']}, the number of its sub-groups"


_CONFIGURES: Final = frozenset({"plugins", "with", "actions", "tiers", "parameters", "queueDepthPerAction"})
_CONFIGURES_A_CASE: Final = frozenset({"run", "actions", "plugins", "with", "config"})
"""Keys of a scenario that set how it is decided."""
_NEAR: Final = 0.8
_DOTTED: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_KEY: Final = re.compile(r"found (?:key )?'([\w-]+)'")
_SUBJECT: Final = re.compile(r"(node|pod|podgroup|queue) (?:default/)?([\w.-]+):")
_WRITTEN: Final = {"node": ("cluster", "nodes"), "pod": ("groups",), "podgroup": ("groups",), "queue": ("queues",)}
"""The place in a scenario of the kinds that messages name."""
UNREADABLE: Final = ("T001", "T005")


@attrs.frozen(kw_only=True)
class Linted:
    """The files that were read, and the findings."""

    findings: tuple[Finding, ...]
    reading: Reading | None = None
    others: Mapping[str, int] = EMPTY
    """Number of files of each other sort."""
    notes: tuple[str, ...] = ()
    """Notes about workloads adopted from other schedulers."""

    @property
    def is_unreadable(self) -> bool:
        """Whether some file could not be read."""
        return any(finding.code in UNREADABLE for finding in self.findings)


def lint_paths(paths: Iterable[str], standard_input: bytes, adoption: Adoption = NONE) -> Linted:
    """Lint files and folders; - is standard input.

    A configuration among them sets the name of kai's scheduler; ``adoption`` sets whose pods it adopts.
    """
    work = _Linting(adoption=adoption)
    for path in paths:
        work.path = path
        if path == "-":
            work.take(standard_input, path)
        else:
            work.take_path(Path(path), path)
    return work.finish()


def summary(linted: Linted) -> str:
    """Return what was read: jobs, pods and GPUs first."""
    reading = linted.reading
    jobs = [job for job in reading.expansion.jobs if job.pods] if reading else []
    pods = [pod for job in jobs for pod in job.pods]
    parts: list[str] = []
    if jobs:
        claims = Claims.of([document.manifest for document in reading.documents] if reading else [])
        gpus = sum(map(claims.gpus_with, pods))
        parts += [counted(len(jobs), "job"), counted(len(pods), "pod"), counted(gpus, "GPU")]
    least = jobs[0].group.get("spec", {}).get("minMember", 1) if len(jobs) == 1 else 1
    if isinstance(least, int) and least > 1:
        parts.append(f"gang of {least}")
    read = [document.manifest for document in reading.documents] if reading else []
    known = [structuring.kind_of(each) for each in read if isinstance(each.get("kind"), str)]
    kinds = [each.kind for each in known if each is not None]
    parts += [counted(kinds.count(kind), kind.lower()) for kind in ("Queue", "Node") if kind in kinds]
    if not parts and read:
        parts.append(counted(len(read), "object"))
    parts += [counted(number, noun) for noun, number in linted.others.items()]
    return ", ".join(parts)


@attrs.define
class _Linting:
    adoption: Adoption = NONE
    documents: list[Document] = attrs.field(factory=list)
    findings: list[Finding] = attrs.field(factory=list)
    others: Counter[str] = attrs.field(factory=Counter)
    path: str = ""
    """The present path, as it stands on the command line."""
    notes: tuple[str, ...] = ()
    given: dict[str, str] = attrs.field(factory=dict)
    """The command-line path that each text was found under, by name of the text."""

    def take_path(self, place: Path, name: str) -> None:
        """Lint a file, or all files of a folder."""
        if not name:
            self._unreadable('""', "an empty path names no file or folder")
            return
        if place.is_dir():
            try:
                files = files_below(place)
            except OSError as error:
                self._unreadable(str(error.filename or name), error.strerror or str(error))
                return
            if not files:
                self._unreadable(name, f"no file ends in {', '.join(SUFFIXES)}")
            for file in files:
                self.take_path(file, str(file))
            return
        try:
            text = place.read_bytes()
            if is_archive(place):
                read_case(name)
                return
            # The name alone does not decide: a folder of manifests may have a file that is named like a trace.
            if is_trace(name) and not _holds_manifests(text, name):
                self._trace(name)
                return
        except OSError as error:
            why = "no such file or folder" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
            self._unreadable(name, why)
        except RefusedError as error:
            self.findings += error.findings
        except (ConfigError, InputError) as error:
            self.findings += [Finding(code="T001", message=_said(each, name), file=name) for each in error.messages]
        else:
            self.take(text, name)

    def take(self, text: bytes, name: str) -> None:
        """Lint one text."""
        self.given.setdefault(name, self.path)
        try:
            source, values = open_text(text, name)
            if not values:
                self._unreadable(name, "it holds nothing")
            elif len(values) == 1 and _is_configuration(values[0]):
                self._configure(source, name)
            elif len(values) == 1 and is_scenario(values[0]):
                self._scenario(source, values[0])
            # One document suffices: the others of a cluster file are manifests.
            elif any(_is_cluster_file(value) for value in values):
                self.others["cluster file"] += 1
                read_cluster_file(text, name)
            else:
                found = documents_of(source, values)
                self.documents += found
                if not found:
                    self._unreadable(name, "it holds a list without items")
        except RefusedError as error:
            self.findings += error.findings

    def finish(self) -> Linted:
        """Lint all collected manifests together."""
        # Only now: a configuration that is read after the manifests may set the name of the scheduler.
        documents, _, self.notes = adopted_documents(self.documents, self.adoption)
        around = Surroundings(scheduler_name=self.adoption.ours, operators=self.adoption.operators)
        reading = read(documents, around) if documents else None
        found = list(self.findings)
        if reading is not None:
            found += findings_of(reading)
        found = [self._with_clusters(each) if each.code == "T004" else each for each in found]
        return Linted(findings=tuple(found), reading=reading, others=dict(self.others), notes=self.notes)

    def _with_clusters(self, finding: Finding) -> Finding:
        """Return a finding about a second definition, with advice to lint each cluster separately if the paths differ.

        Paths are linted together, since a job in one may name a queue in another. Paths of two different clusters
        look the same from here.
        """
        first = self.given.get(finding.found.rpartition(":")[0])
        second = self.given.get(finding.file)
        if first is None or second is None or first == second:
            return finding
        # Advice only: one cluster may well be spread over two paths, and then the second definition is the mistake.
        way = f"two clusters are checked by two commands: kai lint {first}, kai lint {second}"
        return attrs.evolve(finding, help=f"{first} and {second} are looked at together, as one cluster; {way}")

    def _configure(self, source: Text, name: str) -> None:
        self.others["configuration"] += 1
        try:
            registry = Registry.installed()
            setup = load_setup(name, registry)
            configuration = setup.configuration
            if "scheduler_name" in setup.said:
                self.adoption = attrs.evolve(self.adoption, ours=configuration.parameters.scheduler_name)
            make_profile(configuration, registry)
            for note in configuration.notes:
                said = _said(note, name)
                self.findings.append(_placed(Finding(code="C002", message=said, file=name), source))
        except ConfigError as error:
            for message, hint in zip(error.messages, error.helps, strict=True):
                said = _said(message, name)
                self.findings.append(_placed(Finding(code="C001", message=said, file=name, hint=hint), source))

    def _scenario(self, source: Text, value: Mapping[str, Any]) -> None:
        self.others["scenario"] += 1
        try:
            case = read_scenario(value, source.name)
            messages = tuple(doubts(case, value)) if isinstance(case, Case) else ()
            if isinstance(case, Case) and _CONFIGURES_A_CASE & value.keys():
                make_profile(case.configuration, Registry.installed())
        except (ConfigError, InputError) as error:
            messages = error.messages
        for message in messages:
            said = _said(message, source.name)
            self.findings.append(_placed(Finding(code="S001", message=said, file=source.name), source))

    def _trace(self, name: str) -> None:
        """Lint a trace of jobs or of nodes."""
        self.others["trace"] += 1
        columns, _, _ = read_rows(name)
        if node_format_of(columns) is None:
            read_trace(name)
        else:
            read_nodes(name)

    def _unreadable(self, name: str, why: str) -> None:
        self.findings.append(Finding(code="T005", message=why, file=name))


def _is_cluster_file(value: object) -> bool:
    """Return whether a document describes a cluster over virtual time."""
    return (
        isinstance(value, Mapping)
        and "apiVersion" not in value
        and "kind" not in value
        and any(key in value for key in CLUSTER_KEYS)
    )


def _holds_manifests(text: bytes, name: str) -> bool:
    """Return whether a file named like a trace holds manifests; a table is no mapping, and a log has jobs."""
    try:
        _, values = open_text(text, name)
    except RefusedError:
        return False
    return bool(values) and all(isinstance(value, Mapping) and "jobs" not in value for value in values)


def _is_configuration(value: object) -> bool:
    """Return whether a document configures the scheduler: a file of kai or of KAI-Scheduler, or a SchedulingShard."""
    if not isinstance(value, Mapping):
        return False
    if value.get("kind") == "SchedulingShard":
        return True
    # Scenarios have keys such as plugins as well, beside cluster or objects.
    if {"apiVersion", "kind", "cluster", "objects"} & value.keys():
        return False
    # A misspelt key counts too, so that its message names the right key instead of another kind of file.
    return any(difflib.get_close_matches(str(key), _CONFIGURES, n=1, cutoff=_NEAR) for key in value)


def _placed(finding: Finding, source: Text) -> Finding:
    """Return a finding with the position of the field that its message names, if the text has that field."""
    for words in _paths_in(finding.message):
        place = source.locate(0, words, at_key=True)
        # For an absent path the text has the place of the nearest key above it, which need not be what is wrong.
        if place.line and source.has(0, words):
            return attrs.evolve(
                finding,
                line=place.line,
                column=place.column,
                width=place.width,
                excerpt=source.lines(place.line, place.line),
            )
    return finding


def _paths_in(message: str) -> Iterator[tuple[str, ...]]:
    """Yield possible paths of keys in a message, the longest first."""
    found = [tuple(match.split(".")) for match in _DOTTED.findall(message)]
    subject = _SUBJECT.match(message)
    if subject is not None:
        # Pods of the short form have the name of their group and a number; the file has the group only.
        yield _WRITTEN[subject[1]] + (subject[2].rpartition("-")[0] if subject[1] == "pod" else subject[2],)
    key = _KEY.search(message)
    if key is not None and found:
        yield (*found[0], key[1])
        yield (key[1],)
    yield from sorted(dict.fromkeys(found), key=len, reverse=True)


def _said(message: str, name: str) -> str:
    return " ".join(message.split()).removeprefix(f"{name}: ").removeprefix(f"{name}:")
