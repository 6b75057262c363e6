"""A stage for tests: a clock that moves by what is waited for, keys at instants of that clock, frames that are kept."""

import attrs


@attrs.define
class ScriptedStage:
    """Time passes only while the player waits, or draws for ``draws_for`` seconds."""

    keys: list[tuple[float, str]] = attrs.field(factory=list)
    clock: float = 1000.0
    draws_for: float = 0.0
    frames: list = attrs.field(factory=list)
    began: float = 1000.0

    def now(self):
        return self.clock

    def wait(self, seconds):
        due = self.began + self.keys[0][0] if self.keys else float("inf")
        end = self.clock + seconds
        if due <= end:
            self.clock = max(self.clock, due)
            return self.keys.pop(0)[1]
        self.clock = end
        return ""

    def columns(self):
        return 80

    def draw(self, frame):
        self.clock += self.draws_for
        self.frames.append(frame)
