"""The check of who may use queues: whether permissions that queues give are asked for, and jobs keep to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kai.api import names
from kai.api.conventions.queue_access import Admits
from kai.doctor.findings import Finding, Looked, failure, warning
from kai.doctor.seen import Seen, annotations_of, key_of, labels_of, name_of
from kai.lenient import text_of
from kai.wording import counted, first_of

_FLAG: Final = "queue-access"
_KEYS: Final = (names.ALLOWED_NAMESPACES, names.ALLOWED_NAMESPACE_LABELS)


def queue_access(seen: Seen) -> Looked:
    """Whether jobs are in queues that allow their namespaces, where a scheduler requires it."""
    said = {
        name_of(each): {key: str(value) for key, value in annotations_of(each).items()} for each in seen.all("queues")
    }
    required = [each for each in seen.programs() if each.flags.get(_FLAG) == "required"]
    if not required:
        return Looked(well="each namespace may use each queue", findings=_not_asked_for(said))
    admitting = {name: Admits.of(annotations) for name, annotations in said.items()}
    labels = {name_of(each): labels_of(each) for each in seen.all("namespaces")}
    refused: dict[str, list[str]] = {}
    for each in seen.all("podgroups"):
        queue, namespace = text_of(each, "spec", "queue"), text_of(each, "metadata", "namespace")
        if queue in admitting and not admitting[queue].admits(namespace, labels.get(namespace, {})):
            refused.setdefault(queue, []).append(key_of(each))
    problems = [
        failure(
            f"queue {queue} does not allow the namespaces of {counted(len(groups), 'job')}: {first_of(groups)}",
            f"kubectl annotate queue {queue} {names.ALLOWED_NAMESPACES}=NAMESPACE    or use another queue",
            about=f"queue/{queue}",
            found=first_of(groups),
        )
        for queue, groups in sorted(refused.items())
    ]
    well = f"{counted(len(said), 'queue')}: each allows the namespaces of its jobs"
    return Looked(well=well, findings=problems)


def _not_asked_for(said: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Return that queues say who may use them and no scheduler asks."""
    saying = sorted(name for name, annotations in said.items() if any(key in annotations for key in _KEYS))
    if not saying:
        return []
    told = f"{counted(len(saying), 'queue')} ({first_of(saying)}) allow namespaces, and no scheduler requires it"
    help_text = f"kai run --{_FLAG}=required    deploy/components/queue-access; see docs/tenancy.md"
    return [warning(told, help_text, found=first_of(saying))]
