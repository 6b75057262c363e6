"""The query language of Karta: the part of jq that reads a value and neither writes nor recurses.

``parse`` turns an expression into a tree, which ``kai.roles.podgrouper.karta.evaluate`` runs. Unsupported forms of jq
(``def``, ``foreach``, ``label``, destructuring) are distinguished from errors, so that an expression that is never
evaluated does not invalidate its Karta.
"""

import re
from collections.abc import Mapping

from kai.basics.errors import InputError
from kai.roles.podgrouper.karta.values import (
    Array,
    Attempt,
    Binary,
    Binding,
    Call,
    Choice,
    Descent,
    Identity,
    Index,
    Iterate,
    Literal,
    Negation,
    Query,
    Reduction,
    Slice,
    Table,
    Text,
    Variable,
    nodes,
)  # fmt: skip


class QuerySyntaxError(InputError):
    """An expression is not valid jq."""


class UnsupportedSyntaxError(QuerySyntaxError):
    """An expression is valid jq in a form that is not evaluated here."""


LONGEST = 2000
MOST_NODES = 200
DEEPEST = 60
"""More than in any expression that is run for a pod; these bound the stack depth of parsing and evaluation."""

WRITING = frozenset({"=", "|=", "+=", "-=", "*=", "/=", "%=", "//="})
FORBIDDEN = frozenset({"del", "range", "paths", "recurse", "walk", "repeat"})
"""Functions that write, or whose output is unbounded."""

_RIGHT, _LEFT, _NONE = "right", "left", "none"
# The table of precedence in the grammar of jq. Comparisons and assignments do not associate there: `1 == 1 == 1` is an
# error, and not true.
_STRENGTH: Mapping[str, tuple[int, str]] = {
    "|": (1, _RIGHT),
    ",": (2, _LEFT),
    "//": (3, _RIGHT),
    **dict.fromkeys(WRITING, (4, _NONE)),
    "or": (5, _LEFT),
    "and": (6, _LEFT),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), (7, _NONE)),
    "+": (8, _LEFT),
    "-": (8, _LEFT),
    "*": (9, _LEFT),
    "/": (9, _LEFT),
    "%": (9, _LEFT),
}
_ABOVE_COMMA = 3
_ABOVE_ALL = 10

# The first alternative that matches wins. So a longer mark stands before its beginning: `//=` is no `//` with an `=`
# after it.
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
    |(?P<field>\.[A-Za-z_][A-Za-z0-9_]*)
    |(?P<variable>\$[A-Za-z_][A-Za-z0-9_]*)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<format>@[A-Za-z0-9]+)
    |(?P<mark>\.\.|\?//=?|//=|\|=|\+=|-=|\*=|/=|%=|==|!=|<=|>=|//|[.|,<>=+*/%\-?:;()\[\]{}"])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_UNSUPPORTED_WORDS = frozenset({"def", "foreach", "label", "break", "import", "include"})
_CONSTANTS: Mapping[str, object] = {"true": True, "false": False, "null": None}
_CLOSERS = frozenset({"then", "else", "elif", "end", "catch", "as"})


def parse(expression: str) -> Query:
    """Return the tree of ``expression``; an empty one means ``.``, as in the peer's evaluator.

    Raises: QuerySyntaxError.
    """
    if len(expression) > LONGEST:
        raise UnsupportedSyntaxError.about(
            "expression", "length", found=len(expression), wanted=f"at most {LONGEST} characters"
        )
    parser = _Parser(expression)
    parser.skip_space()
    if parser.is_done():
        return Identity()
    tree = parser.query()
    if not parser.is_done():
        raise parser.problem("the end")
    return tree


def check_reads_only(tree: Query) -> None:
    """Refuse a tree that writes or has unbounded output.

    Raises: QuerySyntaxError.
    """
    for node in nodes(tree):
        if isinstance(node, Descent):
            raise QuerySyntaxError("`..` has no bound and is not allowed")
        if isinstance(node, Binary) and node.operator in WRITING:
            raise QuerySyntaxError(f"`{node.operator}` writes and is not allowed")
        if isinstance(node, Call) and node.name in FORBIDDEN:
            raise QuerySyntaxError(f"`{node.name}` writes or has no bound and is not allowed")


# There is no list of tokens: inside of a string the text is no jq, except between `\(` and `)`, so only the parser
# knows what may come next.
class _Parser:
    """Precedence climbing over tokens that are read from the text as needed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.count = 0
        self.depth = 0

    def is_done(self) -> bool:
        return self.place >= len(self.text)

    def problem(self, wanted: str) -> QuerySyntaxError:
        found = self.text[self.place : self.place + 20] or None
        return QuerySyntaxError.about("expression", f"character {self.place + 1}", found=found, wanted=wanted)

    def skip_space(self) -> None:
        while (match := _TOKEN.match(self.text, self.place)) and match.lastgroup == "space":
            self.place = match.end()

    def peek(self) -> tuple[str, str]:
        """Return group and text of the next symbol; ("", "") at the end."""
        match = _TOKEN.match(self.text, self.place)
        if match is None:
            if not self.is_done():
                raise self.problem("jq")
            return "", ""
        return match.lastgroup or "", match[0]

    def take(self) -> tuple[str, str]:
        group, symbol = self.peek()
        self.place += len(symbol)
        self.skip_space()
        return group, symbol

    def takes(self, symbol: str) -> bool:
        if self.peek()[1] != symbol:
            return False
        self.take()
        return True

    def expect(self, symbol: str) -> None:
        if not self.takes(symbol):
            raise self.problem(f"`{symbol}`")

    def made(self, node: Query) -> Query:
        # Counted while parsing: a hostile text is refused before its whole tree is in memory.
        self.count += 1
        if self.count > MOST_NODES:
            wanted = f"at most {MOST_NODES} parts"
            raise UnsupportedSyntaxError.about("expression", "size", found=self.count, wanted=wanted)
        return node

    def query(self, weakest: int = 1) -> Query:
        """Return the query joined by operators at least as strong as ``weakest``, one level deeper."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnsupportedSyntaxError.about(
                "expression", "depth", found=self.depth, wanted=f"at most {DEEPEST} levels"
            )
        found = self.chain(weakest)
        self.depth -= 1
        return found

    def chain(self, weakest: int) -> Query:
        left = self.postfix()
        if weakest == 1 and self.takes("as"):
            return self.binding(left)
        while True:
            operator = self.peek()[1]
            strength, side = _STRENGTH.get(operator, (0, _NONE))
            if strength < weakest or not strength:
                return left
            self.take()
            right = self.query(strength if side is _RIGHT else strength + 1)
            left = self.made(Binary(operator, left, right))
            if side is _NONE and _STRENGTH.get(self.peek()[1], (0, _NONE))[0] == strength:
                raise self.problem("parentheses around one of two comparisons")

    def binding(self, source: Query) -> Query:
        name = self.variable()
        self.expect("|")
        return self.made(Binding(source, name, self.query()))

    def variable(self) -> str:
        group, symbol = self.peek()
        if group != "variable":
            if symbol in {"[", "{"}:
                raise UnsupportedSyntaxError("destructuring is not supported")
            raise self.problem("a variable")
        self.take()
        return symbol[1:]

    def postfix(self) -> Query:
        term = self.term()
        while True:
            group, symbol = self.peek()
            if group == "field":
                self.take()
                term = self.made(Index(term, Literal(symbol[1:])))
            elif symbol == "[":
                term = self.bracket(term)
            elif symbol == "?":
                self.take()
                term = self.made(Attempt(term, None))
            elif symbol == "." and self.text[self.place + 1 : self.place + 2] in {'"', "["}:
                self.take()
                term = term if self.peek()[1] == "[" else self.made(Index(term, self.string()))
            elif symbol == "?//":
                raise UnsupportedSyntaxError("alternative destructuring is not supported")
            else:
                return term

    def bracket(self, target: Query) -> Query:
        self.expect("[")
        if self.takes("]"):
            return self.made(Iterate(target))
        if self.takes(":"):
            high = self.query()
            self.expect("]")
            return self.made(Slice(target, None, high))
        low = self.query()
        if not self.takes(":"):
            self.expect("]")
            return self.made(Index(target, low))
        end = None if self.peek()[1] == "]" else self.query()
        self.expect("]")
        return self.made(Slice(target, low, end))

    def term(self) -> Query:
        group, symbol = self.peek()
        if group == "word":
            return self.word(symbol)
        if symbol == '"':
            return self.string()
        if group == "format":
            raise UnsupportedSyntaxError(f"`{symbol}` is not supported")
        self.take()
        if group == "number":
            # An integer stays one: a float would lose its digits beyond 2^53.
            return self.made(Literal(float(symbol) if set(".eE") & set(symbol) else int(symbol)))
        if group == "field":
            return self.made(Index(Identity(), Literal(symbol[1:])))
        if group == "variable":
            return self.made(Variable(symbol[1:]))
        return self.marked(symbol)

    def marked(self, symbol: str) -> Query:
        if symbol == ".":
            return self.made(Index(Identity(), self.string()) if self.peek()[1] == '"' else Identity())
        if symbol == "..":
            return self.made(Descent())
        if symbol == "-":
            return self.made(Negation(self.query(_ABOVE_ALL)))
        if symbol == "(":
            inner = self.query()
            self.expect(")")
            return inner
        if symbol == "[":
            content = None if self.peek()[1] == "]" else self.query()
            self.expect("]")
            return self.made(Array(content))
        if symbol == "{":
            return self.table()
        self.place -= len(symbol)
        raise self.problem("a value")

    def word(self, symbol: str) -> Query:
        if symbol in _UNSUPPORTED_WORDS:
            raise UnsupportedSyntaxError(f"`{symbol}` is not supported")
        if symbol in _CLOSERS or symbol in _STRENGTH:
            raise self.problem("a value")
        self.take()
        if symbol in _CONSTANTS:
            return self.made(Literal(_CONSTANTS[symbol]))
        if symbol == "if":
            return self.choice()
        if symbol == "try":
            body = self.query(_ABOVE_ALL)
            return self.made(Attempt(body, self.query(_ABOVE_ALL) if self.takes("catch") else None))
        if symbol == "reduce":
            return self.reduction()
        arguments = []
        if self.takes("("):
            arguments.append(self.query())
            while self.takes(";"):
                arguments.append(self.query())
            self.expect(")")
        return self.made(Call(symbol, tuple(arguments)))

    def choice(self) -> Query:
        condition = self.query()
        self.expect("then")
        chosen = self.query()
        if self.takes("elif"):
            other = self.choice()
        else:
            other = self.query() if self.takes("else") else Identity()
            self.expect("end")
        return self.made(Choice(condition, chosen, other))

    def reduction(self) -> Query:
        source = self.query(_ABOVE_ALL)
        self.expect("as")
        name = self.variable()
        self.expect("(")
        start = self.query()
        self.expect(";")
        update = self.query()
        self.expect(")")
        return self.made(Reduction(source, name, start, update))

    def table(self) -> Query:
        entries: list[tuple[Query, Query]] = []
        while not self.takes("}"):
            if entries:
                self.expect(",")
            entries.append(self.entry())
        return self.made(Table(tuple(entries)))

    def entry(self) -> tuple[Query, Query]:
        group, symbol = self.peek()
        if group == "variable":
            self.take()
            return Literal(symbol[1:]), self.made(Variable(symbol[1:]))
        if symbol == "(":
            self.take()
            key = self.query()
            self.expect(")")
            self.expect(":")
            return key, self.query(_ABOVE_COMMA)
        if symbol == '"':
            key = self.string()
        elif group in {"word", "number"}:
            self.take()
            key = Literal(symbol)
        else:
            raise self.problem("a key")
        return key, self.query(_ABOVE_COMMA) if self.takes(":") else self.made(Index(Identity(), key))

    def string(self) -> Query:
        """Return the string whose opening quote is next."""
        if self.peek()[1] != '"':
            raise self.problem("a string")
        self.place += 1
        parts: list[Query] = []
        text = ""
        while not self.text.startswith('"', self.place):
            if self.is_done():
                raise self.problem("a closing quote")
            if self.text.startswith("\\(", self.place):
                self.place += 2
                self.skip_space()
                parts += [Literal(text), self.query()]
                text = ""
                if self.peek()[1] != ")":
                    raise self.problem("`)`")
                self.place += 1
            else:
                text += self.character()
        self.place += 1
        self.skip_space()
        return self.made(Text((*parts, Literal(text))) if parts else Literal(text))

    def character(self) -> str:
        """Take one character of a string, escaped or not."""
        plain = self.text[self.place]
        if plain != "\\":
            self.place += 1
            return plain
        escape = self.text[self.place + 1 : self.place + 2]
        if escape in _ESCAPES:
            self.place += 2
            return _ESCAPES[escape]
        digits = self.text[self.place + 2 : self.place + 6]
        if escape != "u" or not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            raise self.problem("an escape")
        self.place += 6
        return chr(int(digits, 16))
