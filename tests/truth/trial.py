"""One cluster, what kai decided and told of it, and the same cluster with something changed."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any

import attrs

from kai.answers.documents.document import as_json
from kai.answers.documents.explanations import ExplanationItem
from kai.answers.offline.run import Outcome, simulate
from kai.answers.outcomes.overview import Job, Overview, overview
from kai.answers.why.explanation import Explained, explained
from kai.lab.scenarios.scenario import read_scenario, read_short
from tests.generate.features import Chosen, parse_features
from tests.generate.scenario import generate

ALL = parse_features("all")
Object = Mapping[str, Any]
Document = Mapping[str, Any]


@attrs.define(slots=False)
class Trial:
    """A scenario of manifests, decided once."""

    document: Document
    """A scenario in the long form; what is under ``short`` is of the short form, in place of its configuration."""

    @classmethod
    def of_seed(cls, seed: int, chosen: Chosen = ALL) -> "Trial":
        """Return the random cluster of a seed, with one cycle."""
        return cls({**generate(seed, chosen), "cycles": 1, "stableCycles": 0})

    @cached_property
    def outcome(self) -> Outcome:
        """What was decided."""
        name, short = str(self.document["name"]), self.document.get("short")
        if short is None:
            return simulate(read_scenario(self.document, name))
        return simulate(read_short({"about": name, "cluster": {"objects": self.document["objects"]}, **short}, name))

    @cached_property
    def seen(self) -> Overview:
        """What tables show of it."""
        return overview(self.outcome)

    @cached_property
    def told(self) -> Explained:
        """What is told of the jobs that wait."""
        return explained(self.outcome, self.seen)

    @cached_property
    def items(self) -> Sequence[Mapping[str, Any]]:
        """The same as documents say it, without the jobs that are alike."""
        return [as_json(ExplanationItem.of(fold)) for fold in self.told.folds]

    @cached_property
    def jobs(self) -> Mapping[str, Job]:
        """All jobs by name."""
        return {job.name: job for job in self.seen.jobs}

    def objects(self, kind: str) -> list[Object]:
        """Return the objects of a kind."""
        return [each for each in self.document["objects"] if each["kind"] == kind]

    # ------------------------------------------------------------------ changes

    @cached_property
    def _made(self) -> dict[str, "Trial"]:
        return {}

    def once(self, what: str, make: Callable[[], "Trial"]) -> "Trial":
        """Return the trial with a change that several claims ask for: it is made, and decided, once."""
        if what not in self._made:
            self._made[what] = make()
        return self._made[what]

    def changed(self, change: Callable[[Object], Object | None]) -> "Trial":
        """Return the trial with each object as ``change`` leaves it; None takes it away."""
        objects = [new for each in self.document["objects"] if (new := change(each)) is not None]
        return Trial({**self.document, "objects": objects})

    def without_pods_of_others(self, job: str) -> "Trial":
        """Return the trial in which no other job has a pod."""
        return self.once(f"alone {job}", lambda: self._alone(job))

    def _alone(self, job: str) -> "Trial":
        gone = {
            pod["metadata"]["name"] for pod in self.objects("Pod") if group_of(pod) is not None and group_of(pod) != job
        }

        def left(obj: Object) -> Object | None:
            name = obj["spec"]["podName"] if obj["kind"] == "BindRequest" else obj["metadata"]["name"]
            return None if obj["kind"] in {"Pod", "BindRequest"} and name in gone else obj

        return self.changed(left)

    def with_bound(self, queue: str, bound: str, resource: str, amount: float) -> "Trial":
        """Return the trial in which a queue has another quota or limit, in the units of queues."""

        def raised(obj: Object) -> Object:
            if obj["kind"] != "Queue" or obj["metadata"]["name"] != queue:
                return obj
            new = deepcopy(dict(obj))
            new["spec"].setdefault("resources", {}).setdefault(resource, {})[bound] = amount
            return new

        return self.once(f"{bound} {amount} of {resource} for {queue}", lambda: self.changed(raised))

    def patched(self, patches: Sequence[Mapping[str, Any]]) -> "Trial":
        """Return the trial with JSON patches applied, as a document of kai lists them.

        Raises: KeyError for a patch of an object that is not there.
        """
        left = {(each["kind"], each["name"]): each["patch"] for each in patches}

        def change(obj: Object) -> Object | None:
            operations = left.pop((obj["kind"], obj["metadata"]["name"]), None)
            return obj if operations is None else patched(obj, operations)

        found = self.changed(change)
        if left:
            raise KeyError(*left)
        return found


def patched(obj: Object, operations: Sequence[Mapping[str, Any]]) -> Object | None:
    """Return an object as a JSON patch (RFC 6902) leaves it."""
    new: Any = deepcopy(dict(obj))
    for each in operations:
        path = [part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:]]
        if not path:
            return None
        at = new
        for part in path[:-1]:
            at = at[int(part)] if isinstance(at, list) else at[part]
        key = path[-1]
        match each["op"], at:
            case "add", list():
                at.insert(len(at) if key == "-" else int(key), each["value"])
            case "remove", list():
                del at[int(key)]
            case "replace", list():
                at[int(key)] = each["value"]
            case "remove", _:
                del at[key]
            case _:
                at[key] = each["value"]
    return dict(new)


def group_of(pod: Object) -> str | None:
    """Return the name of the group of a pod."""
    name = pod["metadata"].get("annotations", {}).get("pod-group-name")
    return None if name is None else str(name)
