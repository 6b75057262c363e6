"""What says what of a job that waits, as the scenes have it that a test asks all voices about."""

from tests.reference.marks import table
from tests.truth.scenes import SCENES, Scene

_HEAD = (
    "`kai why`, `kai jobs`, the service",
    "the pod's `PodScheduled`",
    "the group's condition",
    "events",
    "`kai_pending_pods`",
    "`kai doctor`",
)
_ORDER = ("Pod", "PodGroup")
_CALLED = {"Pod": "pod", "PodGroup": "group"}


def voices(_: str, __: str) -> str:
    """Return a table with a row for each code, and a column for each place that says why a job waits."""
    return table(_HEAD, [_row(code, scene) for code, scene in SCENES.items()])


def _row(code: str, scene: Scene) -> tuple[str, ...]:
    wire = (scene.wire or code).strip()
    by_reason: dict[str, list[str]] = {}
    for kind, reason in sorted(scene.events, key=lambda event: _ORDER.index(event[0])):
        by_reason.setdefault(reason, []).append(_CALLED[kind])
    events = "; ".join(f"`{reason}` on {' and '.join(kinds)}" for reason, kinds in by_reason.items())
    if code == "BindRefused":
        events = "`BindingError` on pod, of the binder: one that counts"
    elif code == "HeldForLeaving":
        events = "`Pipelined` on pod, once"
    metric = scene.metric or wire
    return (f"`{code}`", _code(scene.pod), _code(wire), events, _code(metric), scene.doctor)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
