"""The codes of findings, each under a heading of its own."""

from kai.manifests import CODES
from kai.manifests.codes import MEANINGS

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
    """Return what findings mean, a table of all codes, then each code with its text."""
    lines = [f"- **{name}**: {text}" for name, text in MEANINGS.items()]
    lines += ["", "| code | | means | what is found |", "|---|---|---|---|"]
    lines += [
        f"| [{name}](#{name.lower()}) | {code.severity} | {code.meaning} | {code.title} |"
        for name, code in CODES.items()
    ]
    lines.append("")
    for letter, section in _SECTIONS.items():
        lines += [f"## {section}", ""]
        for name, code in CODES.items():
            if name.startswith(letter):
                lines += [f"### {name}", "", f"*{code.severity}, {code.meaning}:* {code.title}.", "", code.text, ""]
    return "\n".join(lines)
