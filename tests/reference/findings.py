"""The codes of findings, each under a heading of its own."""

from kai.manifests import CODES

_SECTIONS = {
    "T": "Texts",
    "F": "Fields",
    "Q": "Queues",
    "J": "Jobs",
    "W": "Admission webhooks",
    "C": "Configurations of the scheduler",
    "S": "Scenarios",
    "A": "Annotations of simulations",
    "K": "Cluster files of simulations",
    "R": "Traces",
}


def findings(words: str, before: str) -> str:
    """Return every code with its severity, its title and its text."""
    lines: list[str] = []
    for letter, section in _SECTIONS.items():
        lines += [f"## {section}", ""]
        for name, code in CODES.items():
            if name.startswith(letter):
                lines += [f"### {name}", "", f"*{code.severity}:* {code.title}.", "", code.text, ""]
    return "\n".join(lines)
