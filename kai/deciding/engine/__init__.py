"""The engine: worlds, sessions, statements, cycles; what actions import. Start reading at ``cycle``."""

from kai.deciding.engine.cycle import Action, CycleReport, Profile, run_cycle
from kai.deciding.engine.session import Session

__all__ = ["Action", "CycleReport", "Profile", "Session", "run_cycle"]
