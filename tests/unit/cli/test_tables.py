from kai.cli.tables import columns, padded, shown_width


def test_cells_stand_under_each_other():
    assert (
        columns([["A", "NUMBER", "B"], ["long name", "7", ""]], right={1}) == "A          NUMBER  B\nlong name       7"
    )


def test_colour_takes_no_room():
    assert shown_width("\x1b[32mabc\x1b[0m") == 3
    assert padded("\x1b[32mabc\x1b[0m", 5) == "\x1b[32mabc\x1b[0m  "
    assert padded("abc", 5, right=True) == "  abc"
