"""How often one case may be decided. Values only: the help of commands reads them without what decides."""

from typing import Final

MOST_CYCLES: Final = 1_000
"""Each cycle is kept for as long as its outcome is: half a megabyte where fifty jobs change."""
