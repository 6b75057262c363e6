"""Words that nothing may ever print: one for each place in which a secret may lie, and where they are looked for."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from tests.integration.client import Manifest
from tests.integration.together import an_object

CONTAINERS = ("containers", "initContainers")
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SECRETS: Mapping[str, tuple[str, ...]] = {
    "Opaque": ("password", "api-key", "connection"),
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "bootstrap.kubernetes.io/token": ("token-id", "token-secret"),
}


@attrs.define
class Canaries:
    """Hands out words, each for one place."""

    words: dict[str, str] = attrs.field(factory=dict)
    """The words by their places."""

    def __call__(self, place: str) -> str:
        """Return the word of a place; it is there from now on."""
        assert place not in self.words
        return self.words.setdefault(place, f"cnry{hashlib.sha256(place.encode()).hexdigest()[:20]}")

    def found(self, told: Mapping[str, str], *, but: Iterable[str] = ()) -> list[str]:
        """Return which words stand in which texts, plain or as base64; places that begin with ``but`` do not count."""
        return [
            f"{place} in {where}"
            for place, word in self.words.items()
            if not place.startswith(tuple(but))
            for where, text in told.items()
            if any(form in text for form in forms(word))
        ]


def forms(word: str) -> Iterator[str]:
    """Yield a word as it is, and what it has in common in base64 wherever it begins."""
    yield word
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + word.encode()).decode()
        yield whole[4 if before else 0 : -4]


def of_a_pod(canary: Callable[[str], str], pod: Manifest) -> Manifest:
    """Put a word wherever people leave secrets in a pod, and return it."""
    name, spec = pod["metadata"]["name"], pod["spec"]

    def word(place: str) -> str:
        return canary(f"pod {name}: {place}")

    pod["metadata"]["annotations"] = {
        APPLIED: json.dumps({"spec": {"containers": [{"env": [{"value": word("applied")}]}]}}),
        "team.example/password": canary(f"annotation of pod {name}"),
    }
    spec["initContainers"] = [{"name": "init", "image": "x"}]
    for kind in CONTAINERS:
        container: dict[str, Any] = spec[kind][0]
        container["env"] = [{"name": each, "value": word(f"{kind} env {each}")} for each in ("PASSWORD", "AWS_KEY")]
        container["env"].append({"name": "PROXY", "value": f"http://user:{word(f'{kind} env PROXY')}@proxy:3128"})
        container["args"] = [f"--password={word(f'{kind} args')}"]
        container["command"] = ["sh", "-c", f"login {word(f'{kind} command')}"]
        container["workingDir"] = f"/{word(f'{kind} workingDir')}"
    header = {"name": "Authorization", "value": f"Bearer {word('header of a probe')}"}
    first = spec["containers"][0]
    first["readinessProbe"] = {
        "httpGet": {"port": 80, "path": f"/?t={word('query of a probe')}", "httpHeaders": [header]}
    }
    first["lifecycle"] = {"preStop": {"exec": {"command": ["logout", word("lifecycle")]}}}
    csi = {"driver": "x.example", "volumeAttributes": {"token": word("attribute of a volume")}}
    spec["volumes"] = [{"name": "v", "csi": csi}]
    return pod


def of_a_namespace(canary: Callable[[str], str], space: str) -> Iterator[Manifest]:
    """Yield objects with words in a namespace: Secrets of four types, config maps, a service account, a Job."""
    for kind, keys in SECRETS.items():
        name = kind.replace("/", "-").replace(".", "-").lower()
        words = {key: canary(f"Secret {kind}: {key}") for key in keys}
        yield an_object("v1", "Secret", name, space, type=kind, stringData=words)
    auths = {"auths": {"r.example": {"auth": base64.b64encode(canary("Secret of a registry").encode()).decode()}}}
    pulling = {".dockerconfigjson": json.dumps(auths)}
    yield an_object("v1", "Secret", "pull", space, type="kubernetes.io/dockerconfigjson", stringData=pulling)
    for number in range(4):
        data = {key: canary(f"ConfigMap {number}: {key}") for key in ("password", "file.ini")}
        yield an_object("v1", "ConfigMap", f"settings-{number}", space, data=data)
    notes = {"team.example/token": canary("annotation of a ServiceAccount")}
    yield an_object("v1", "ServiceAccount", "worker", space, metadata={"annotations": notes})


def of_an_owner(canary: Callable[[str], str], space: str) -> Manifest:
    """Return a Job whose template has words; the pod grouper reads it.

    It names a controller of its own, since the one of Kubernetes takes the owner off pods that it did not make.
    """
    environment = [{"name": "PASSWORD", "value": canary("env of a Job's template")}]
    container = {"name": "main", "image": "x", "env": environment, "args": [canary("args of a Job's template")]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never", "schedulerName": "kai-scheduler"}}
    notes = {APPLIED: canary("applied: a Job"), "team.example/key": canary("annotation of a Job")}
    spec = {"template": template, "managedBy": "example.com/canaries"}
    return an_object("batch/v1", "Job", "owner", space, metadata={"annotations": notes}, spec=spec)
