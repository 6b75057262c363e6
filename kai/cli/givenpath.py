"""Paths as they are typed: an empty one is a slip, and whether a file can be read is for reading it to say."""

import click


class GivenPath(click.Path):
    """A path of an option or an argument; one of a variable that is not set is no path."""

    def __init__(self, *, allow_dash: bool = False, dir_okay: bool = True) -> None:
        """Leave it to the reader of the file to say that it may not be read: that is wrong input, not wrong usage."""
        super().__init__(readable=False, allow_dash=allow_dash, dir_okay=dir_okay)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path; an empty one is wrong usage."""
        if value in {"", b""}:
            self.fail("found an empty path, expected a file or a folder", param, ctx)
        return str(super().convert(value, param, ctx))  # type: ignore[arg-type]  # a path of any sort
