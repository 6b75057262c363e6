"""Which rights kai has and never used: ``python -m tests.integration.rights FOLDER``, with audit logs below it.

``nox -s integration -- --basetemp=FOLDER`` leaves them there. What is listed is no fault by itself: some rights are for
what no test plays. ``override`` is no verb of a call: admission policies ask for it, and `test_policies.py`
has what they refuse without it. Each right has its reason in
`docs/security.md`, which `tests/unit/deploy/test_roles.py` compares with what is shipped.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.unit.deploy.rendering import DEPLOY, LASTING, of_kind, render

Right = tuple[str, str, str, str, str]
"""Role, namespace or "" for the cluster, group, resource with its subresource, verb."""


def shipped(folders: Iterable[Path] = (LASTING, DEPLOY)) -> set[tuple[Right, str]]:
    """Return each right that is shipped, with the one name that it is about; "" where it is about all."""
    manifests = [each for folder in folders for each in render(folder)]
    return {
        ((role["metadata"]["name"], role["metadata"].get("namespace", ""), group, resource, verb), name)
        for kind in ("ClusterRole", "Role")
        for role in of_kind(manifests, kind)
        for rule in role["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb != "override"
        for name in rule.get("resourceNames", ("",))
    }


def used(log: Iterable[str]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield namespace, group, resource, verb and name of each call of kai that an audit log has."""
    for line in log:
        event: dict[str, Any] = json.loads(line)
        ref = event.get("objectRef")
        if ref is None or not event.get("userAgent", "").startswith("kai/"):
            continue
        resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
        yield ref.get("namespace", ""), ref.get("apiGroup", ""), resource, event["verb"], ref.get("name", "")


def unused(calls: Iterable[tuple[str, str, str, str, str]]) -> list[str]:
    """Return the rights that none of these calls needed, in words."""
    found = set(calls)
    everywhere = {(group, resource, verb) for _, group, resource, verb, _ in found}
    there = {(where, group, resource, verb) for where, group, resource, verb, _ in found}
    named = {(group, resource, verb, name) for _, group, resource, verb, name in found}
    left = []
    for (role, where, group, resource, verb), name in sorted(shipped()):
        is_used = (where, group, resource, verb) in there if where else (group, resource, verb) in everywhere
        if not is_used or (name and (group, resource, verb, name) not in named):
            about = f" {name}" if name else ""
            left.append(f"{role}{f' in {where}' if where else ''}: {verb} {group or 'core'} {resource}{about}")
    return left


def main(folder: Path) -> int:
    """Print the rights that no audit log below a folder shows in use; 1 if there is no log."""
    logs = sorted(folder.rglob("audit.log"))
    calls: set[tuple[str, str, str, str, str]] = set()
    for log in logs:
        with log.open() as lines:
            calls.update(used(line for line in lines if line.endswith("\n")))
    left = unused(calls)
    sys.stdout.writelines(f"{each}\n" for each in left)
    sys.stdout.write(f"{len(left)} of {len(shipped())} rights were not used in {len(logs)} audit logs\n")
    return int(not logs)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
