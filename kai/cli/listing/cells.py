"""A GPU as one cell of a map: a letter for the queue, a block for how much of it is granted."""

from collections.abc import Iterable, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING

from kai.cli.console import Console
from kai.cli.tables import wrapped

if TYPE_CHECKING:
    from kai.simulation.outcomes.gpu_slots import NodeSlots, Slot, User
    from kai.simulation.outcomes.mig_slices import Slices

WIDTH = 3
"""Places from one GPU to the next."""
HEAD = "GPU "
_BLOCKS = ((750, "█"), (500, "▆"), (250, "▄"), (0, "▂"))
_PARTS = {250: "¼", 500: "½", 750: "¾"}
_STRANGER = "?"
_COLORS = {"used": "green", "shared": "green", "held": "cyan", "leaving": "yellow", "unhealthy": "red"}
_SIGNS = "s▄ partly granted   · free   ○ held   × leaving   ! unhealthy"


def letters_of(nodes: "Iterable[NodeSlots]") -> dict[str, str]:
    """Return a letter for each queue that has a GPU."""
    return letters_for(user.queue for node in nodes for slot in node.slots for user in slot.users if user.queue)


def letters_for(queues: Iterable[str]) -> dict[str, str]:
    """Return a letter for each queue: its own first one where that is free, else another of its own."""
    found: dict[str, str] = {}
    for queue in sorted(set(queues)):
        own = [char for char in queue.upper() if char in ascii_uppercase]
        taken = set(found.values())
        found[queue] = next((char for char in [*own, *ascii_uppercase] if char not in taken), _STRANGER)
    return found


def cells(node: "NodeSlots", letters: dict[str, str], console: Console) -> str:
    """Return the GPUs of a node, one cell each."""
    drawn = [console.styled(_cell(slot, letters), fg=_COLORS.get(slot.state)) for slot in node.slots]
    return " " * len(HEAD) + " ".join(drawn)


def head(count: int) -> str:
    """Return the numbers of so many GPUs above their cells."""
    return HEAD + "".join(f"{number:<{WIDTH}}" for number in range(count)).rstrip()


def _cell(slot: "Slot", letters: dict[str, str]) -> str:
    if not slot.users:
        return "! " if slot.state == "unhealthy" else "· "
    present = [user for user in slot.users if user.state != "held"] or slot.users
    largest = max(present, key=lambda user: user.share)
    letter = letters.get(largest.queue, _STRANGER)
    if slot.state == "held":
        return f"{letter}○"
    if slot.state == "leaving":
        return f"{letter}×"
    block = next(sign for least, sign in _BLOCKS if slot.granted > least or least == 0)
    return f"{letter.lower() if slot.state == 'shared' else letter}{block}"


def shares(node: "NodeSlots") -> str:
    """Return what the shared GPUs of a node are divided into: ``2-4: ½+½   5: ¼+¼``."""
    texts = ["+".join(map(_part, slot.users)) if slot.state == "shared" else "" for slot in node.slots]
    out, at = [], 0
    while at < len(texts):
        end = at
        while end + 1 < len(texts) and texts[end + 1] == texts[at]:
            end += 1
        if texts[at]:
            out.append(f"{at}: {texts[at]}" if end == at else f"{at}-{end}: {texts[at]}")
        at = end + 1
    return "   ".join(out) or "-"


def _part(user: "User") -> str:
    text = _PARTS.get(user.share) or f"{user.share / 1000:g}"
    return f"{text}×" if user.state == "leaving" else f"{text}○" if user.state == "held" else text


def slices(node: "NodeSlots") -> str:
    """Return how many MIG slices of each profile are in use: ``1g.10gb 5 of 7   2g.20gb 3 of 3, 1×``."""
    return "   ".join(map(_profile, node.slices)) or "-"


def _profile(found: "Slices") -> str:
    signs = [(found.count("held"), "○"), (found.count("leaving"), "×")]
    marks = "".join(f", {count}{sign}" for count, sign in signs if count)
    return f"{found.profile} {found.in_use} of {found.total}{marks}"


def legend(letters: dict[str, str], nodes: "Sequence[NodeSlots]", width: int = 0) -> str:
    """Return what letters and signs mean, on lines of at most ``width`` places."""
    named = "  ".join(f"{letter} {queue}" for queue, letter in letters.items())
    strangers = any(not user.queue for node in nodes for slot in node.slots for user in slot.users)
    parts = [named, f"{_STRANGER} other pods" if strangers else "", _SIGNS]
    if 0 < width < len(named):
        signs = "   ".join(part for part in parts[1:] if part)
        return f"{wrapped(named, width, between='  ')}\n{wrapped(signs, width, between='   ')}"
    return wrapped("   ".join(part for part in parts if part), width, between="   ")
