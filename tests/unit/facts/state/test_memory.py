from kai.facts.state.memory import Memory, even_steps


def test_an_answer_is_kept_for_identical_inputs():
    memory, made = Memory(), []

    def answer():
        made.append(len(made))
        return made[-1]

    nodes, equal = ["n"], ["n"]
    assert [memory.once("a", (nodes,), answer) for _ in range(3)] == [0, 0, 0]
    assert memory.once("a", (nodes, nodes), answer) == 1
    assert memory.once("a", (equal,), answer) == 2
    assert memory.once("b", (equal,), answer) == 3
    assert memory.fresh("b", (equal,), answer) == 4
    assert memory.once("b", (equal,), answer) == 4


def test_what_is_kept_can_be_recalled():
    memory = Memory()
    assert memory.recall("a") is None
    memory.keep("a", 1)
    assert memory.recall("a") == 1


def test_each_item_is_computed_once():
    memory, asked = Memory(), []
    one, two, three = object(), object(), object()

    def make(item):
        asked.append(item)
        return id(item)

    first = memory.each("numbers", (one, two), make)
    assert memory.each("numbers", (two, three, one), make) == (id(two), id(three), id(one))
    assert (first, asked) == ((id(one), id(two)), [one, two, three])


def test_the_very_same_items_have_the_very_same_answers():
    memory, items = Memory(), (object(), object())
    assert memory.each("numbers", items, id) is memory.each("numbers", items, id)


def test_each_item_is_recomputed_when_inputs_change():
    memory, items, asked = Memory(), (object(),), []
    for inputs in (("a",), ("b",), ("b",), ()):
        memory.each("numbers", items, asked.append, inputs)
    assert len(asked) == 3


def test_an_item_that_left_is_forgotten():
    memory, asked = Memory(), []
    item, other = object(), object()
    for items in ((item,), (other,), (item,)):
        memory.each("numbers", items, asked.append)
    assert asked == [item, other, item]


def test_even_steps_are_kept_and_begin_anew_for_others():
    memory = Memory()
    first = even_steps(memory, 2, 3)
    assert first.tolist() == [0, 2, 4]
    assert even_steps(memory, 2, 4).base is first.base
    assert even_steps(memory, 2, 100).tolist() == list(range(0, 200, 2))
    assert even_steps(memory, 3, 4).tolist() == [0, 3, 6, 9]
    assert first.tolist() == [0, 2, 4]
    assert even_steps(memory, 0, 2).tolist() == [0, 0]
