"""A profile as a flame graph: a box for every function, as wide as the time in it and what it calls."""

from collections.abc import Iterator
from typing import Final

from attrs import Factory, define

from benchmarks.charts.svg import MUTED, duration, picture, tag, text, titled
from benchmarks.sampling import Profile

WIDTH = 1150.0
_ROW = 19.0
_TOP = 34.0
_NARROWEST = 0.7
_LETTER = 6.3

_COLOURS: Final = (
    ("kai.facts.kernels", "#e8a33d"),
    ("kai.actions", "#d97b5a"),
    ("kai.plugins", "#c98fb0"),
    ("kai.framework", "#dcae6a"),
    ("kai.facts.state", "#b7c47b"),
    ("kai.intake", "#7fb2d9"),
    ("kai.api", "#86c2a0"),
    ("kai.roles.scheduler", "#86c2a0"),
    ("kai.cluster", "#86c2a0"),
    ("kai", "#c3b28a"),
)
_OTHER: Final = "#c9ced6"


@define
class _Frame:
    """A function under one chain of callers."""

    name: str
    weight: float = 0.0
    callees: dict[str, "_Frame"] = Factory(dict)

    def depth(self) -> int:
        """Return how many frames lie one upon the other."""
        return 1 + max((callee.depth() for callee in self.callees.values()), default=0)


def flame(profile: Profile) -> str:
    """Draw where processor time went; callees hang beneath their caller, and brothers are sorted by name."""
    root = _Frame("all")
    for stack in profile.stacks:
        frame = root
        frame.weight += stack.cpu_ms
        for name in stack.frames:
            frame = frame.callees.setdefault(name, _Frame(name))
            frame.weight += stack.cpu_ms
    total = root.weight or 1.0
    rows = (callee.depth() for callee in root.callees.values())
    heading = f"{profile.workload}: {duration(total / profile.cycles)} of processor time in a warm cycle"
    return picture(
        WIDTH,
        _TOP + _ROW * max(rows, default=1) + 8,
        text((0, 18), heading, size=13, font_weight=600),
        text(
            (WIDTH, 18),
            f"{profile.samples:,} samples in {profile.cycles} cycles",
            size=11,
            fill=MUTED,
            text_anchor="end",
        ),
        *_boxes(root, 0.0, WIDTH / total, 0, profile),
        label=f"Flame graph of {profile.workload}",
    )


def _boxes(frame: _Frame, x: float, scale: float, depth: int, profile: Profile) -> Iterator[str]:
    for callee in sorted(frame.callees.values(), key=lambda each: each.name):
        width = callee.weight * scale
        if width >= _NARROWEST:
            yield _box(callee, x, width, _TOP + depth * _ROW, profile)
            yield from _boxes(callee, x, scale, depth + 1, profile)
        x += width


def _box(frame: _Frame, x: float, width: float, y: float, profile: Profile) -> str:
    shape = tag("rect", x=x, y=y, width=max(width - 0.7, 0.3), height=_ROW - 1.5, rx=1.5, fill=_colour(frame.name))
    share = frame.weight / sum(stack.cpu_ms for stack in profile.stacks)
    title = f"{frame.name}: {duration(frame.weight / profile.cycles)} a cycle, {share:.1%}"
    letters = int((width - 6) / _LETTER)
    if letters < 3:
        return titled(shape, title=title)
    name = _short(frame.name)
    shown = name if len(name) <= letters else f"{name[: letters - 1]}…"
    return titled(shape, text((x + 3, y + 13), shown, size=10.5, fill="#1c2430"), title=title)


def _colour(name: str) -> str:
    return next((colour for prefix, colour in _COLOURS if name.startswith(f"{prefix}.")), _OTHER)


def _short(name: str) -> str:
    """Leave out packages: ``kai.intake.snapshot:Intake.take`` is ``snapshot.Intake.take``."""
    module, _, function = name.partition(":")
    return f"{module.rpartition('.')[2]}.{function}" if function else name
