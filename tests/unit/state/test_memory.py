from kai.state.memory import Memory


def test_an_answer_is_kept_for_as_long_as_its_inputs_are_the_very_same_objects():
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
