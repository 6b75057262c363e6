"""Budgets that the engine has by itself."""

from kai.deciding.engine.host import BudgetAnswer, Repeating, Unlimited


class Told(Unlimited):
    """Notes what it is told, and always says to stop."""

    def __init__(self):
        self.notes = []

    def begin_action(self, action):
        self.notes.append(action)

    def go_on(self):
        return BudgetAnswer.STOP

    def begin_group(self):
        return BudgetAnswer.STOP

    def begin_generator(self, generator):
        self.notes.append(generator)

    def grant(self):
        return BudgetAnswer.STOP

    def pass_over(self):
        return BudgetAnswer.STOP


def test_a_repeated_search_gets_the_recorded_budget_answers():
    inner = Told()
    budget = Repeating(inner, [BudgetAnswer.GO, BudgetAnswer.NEXT_GENERATOR])
    assert budget.begin_group() is BudgetAnswer.GO
    budget.begin_generator("known")
    assert [budget.grant(), budget.grant()] == [BudgetAnswer.GO, BudgetAnswer.NEXT_GENERATOR]
    assert inner.notes == []


def test_what_was_not_answered_yet_is_asked():
    inner = Told()
    budget = Repeating(inner, [])
    budget.begin_action("reclaim")
    budget.begin_generator("new")
    assert inner.notes == ["reclaim", "new"]
    answers = [budget.go_on(), budget.begin_group(), budget.grant(), budget.pass_over()]
    assert set(answers) == {BudgetAnswer.STOP}
