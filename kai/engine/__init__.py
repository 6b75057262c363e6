"""The engine: worlds, sessions, statements, cycles; what actions import. Start reading at ``cycle``."""

from kai.engine.cycle import run_cycle
from kai.engine.profile import Action, Profile
from kai.engine.report import CycleReport
from kai.engine.session import Session

__all__ = ["Action", "CycleReport", "Profile", "Session", "run_cycle"]
