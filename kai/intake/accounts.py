"""Numbers of accounts: a queue in a node pool, on which pods are bound."""

from typing import TypeAlias

Account: TypeAlias = tuple[str, str]
"""Name of a queue, and of a node pool."""


class Accounts:
    """All accounts that pods or groups name."""

    def __init__(self) -> None:
        self._numbers: dict[Account, int] = {}
        self._accounts: list[Account] = []

    def __len__(self) -> int:
        return len(self._accounts)

    def __getitem__(self, number: int) -> Account:
        """Return the account with a number."""
        return self._accounts[number]

    def of(self, queue: str, pool: str) -> int:
        """Return the number of an account."""
        account = (queue, pool)
        known = self._numbers.get(account)
        if known is None:
            known = self._numbers[account] = len(self._accounts)
            self._accounts.append(account)
        return known
