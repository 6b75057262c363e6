from kai.cli.tables import Column, columns, cut_text, padded, shown_width, table, wrapped


def test_cells_stand_under_each_other():
    assert (
        columns([["A", "NUMBER", "B"], ["long name", "7", ""]], right={1}) == "A          NUMBER  B\nlong name       7"
    )


def test_colour_takes_no_room():
    assert shown_width("\x1b[32mabc\x1b[0m") == 3
    assert padded("\x1b[32mabc\x1b[0m", 5) == "\x1b[32mabc\x1b[0m  "
    assert padded("abc", 5, right=True) == "  abc"


HEADS = [Column(head="NAME"), Column(head="N", right=True, drop=1), Column(head="WHY", least=9, drop=2)]
ROWS = [["alpha", "1", "no node has room"], ["b", "22", ""]]


def test_a_table_without_limit_is_as_wide_as_cells():
    assert table(HEADS, ROWS) == "NAME    N  WHY\nalpha   1  no node has room\nb      22"


def test_a_text_is_cut_between_words():
    assert table(HEADS, ROWS, 23).splitlines()[1] == "alpha   1  no node …"


def test_columns_that_matter_least_go_first():
    assert table(HEADS, ROWS, 15) == "NAME    N\nalpha   1\nb      22"
    assert table(HEADS, ROWS, 8) == "NAME\nalpha\nb"


def test_what_is_drawn_gets_the_room_that_is_left():
    heads = [Column(head="A"), Column(head="B", least=3, most=10)]
    rows = [["x", lambda width: "#" * width]]
    assert table(heads, rows).splitlines()[1] == "x  ##########"
    assert table(heads, rows, 9).splitlines()[1] == "x  ######"


def test_equal_bars_are_drawn_once_and_alike_everywhere():
    rooms = []

    def drawn(room):
        rooms.append(room)
        return "#" * room

    heads = [*HEADS, Column(head="BAR", least=3, most=10, drop=1)]
    rows = [[*row, drawn] for row in [*ROWS, *ROWS, *ROWS]]
    for width in (0, 23, 30, 40):
        rooms.clear()
        head, *lines = table(heads, rows, width).splitlines()
        assert [head, *lines[:2]] == table(heads, rows[:2], width).splitlines()
        assert lines == lines[:2] * 3
        assert len(rooms) <= 2, "once for each of the two tables"


def test_a_single_long_word_is_cut_only_at_last():
    assert cut_text("abcdefgh", 5) == "abcd…"
    assert cut_text("ab cdefgh", 5) == "ab …"
    assert table([Column(head="A")], [["abcdefghijklmnop"]], 10) == "A\nabcdefghi…"


def test_lines_are_broken_where_they_may_be():
    assert wrapped("one two three", 8) == "one two\nthree"
    assert wrapped("one two three", 8, indent="  ") == "one two\n  three"
    assert wrapped("a b  c d", 4, between="  ") == "a b\nc d"
    assert wrapped("one two", 0) == "one two"
    assert wrapped("  one two three", 10, indent="  ") == "  one two\n  three"


def test_a_long_row_wraps_below_its_last_cell():
    rows = [["  a", "one two three four five six seven"], ["  bc", "eight"]]
    assert columns(rows) == "  a   one two three four five six seven\n  bc  eight"
    assert columns(rows, width=33) == "  a   one two three four five six\n      seven\n  bc  eight"
    assert columns(rows, width=20) == "  a\n      one two three\n      four five six\n      seven\n  bc  eight"


def test_a_column_comes_back_where_wider_ones_have_gone():
    heads = [Column(head="A"), Column(head="B", drop=2), Column(head="C", drop=1), Column(head="D", drop=3)]
    rows = [["a", "bb", "c" * 30, "dddddddd"]]
    shown = {width: table(heads, rows, width).splitlines()[0].split() for width in (8, 12, 17, 34, 40, 60)}
    assert shown == {
        8: ["A", "B"],
        12: ["A", "B"],
        17: ["A", "B", "D"],
        34: ["A", "C"],
        40: ["A", "B", "C"],
        60: ["A", "B", "C", "D"],
    }
