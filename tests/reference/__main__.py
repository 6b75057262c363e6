"""Write the generated parts of the documentation: ``python -m tests.reference``."""

from tests.reference.marks import DOCS, filled, pages
from tests.reference.parts import PARTS

if __name__ == "__main__":
    for path in pages():
        before = path.read_text(encoding="utf-8")
        after = filled(before, PARTS)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(path.relative_to(DOCS.parent))  # noqa: T201 - a program for people
