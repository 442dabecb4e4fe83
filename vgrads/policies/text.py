"""What a user wrote, as a tree: the expressions of the ClassAd language, read so that a mistake has
a place.

The grammar is that of the ClassAd reference manual (new syntax), less what a policy does not need:
ClassAds within expressions, absolute names and comparisons of whole ads. The library that evaluates
says only that a text cannot be parsed; here the message names attribute, line and column and shows
the line. `#` begins a comment as `//` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

from vgrads.kernel.errors import InputError
from vgrads.policies.values import ERROR, UNDEFINED, Value

LONGEST_TEXT = 16 * 1024
"""Characters that a policy may have."""
DEEPEST = 200
"""So many levels an expression may have, with what it refers to."""
BRACKETS = 120
"""So many of them may need brackets of their own; the library reads no more than 165."""
NESTED = 30
"""So many brackets may stand within one another."""

WORDS: dict[str, Value] = {"true": True, "false": False, "undefined": UNDEFINED, "error": ERROR}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "'": "'"}
LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "=?=", "=!=", "is", "isnt"),
    ("<", "<=", ">", ">="),
    ("<<", ">>", ">>>"),
    ("+", "-"),
    ("*", "/", "%"),
)
BINDS = {word: level for level, words in enumerate(LEVELS) for word in words}
PIECES = re.compile(
    r"""(?P<gap>\s+|//[^\n]*|\#[^\n]*|/\*(?s:.*?)\*/)
    |(?P<number>(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*")
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>=\?=|=!=|>>>|\|\||&&|==|!=|<=|>=|<<|>>|\?:|/(?!\*)|[][(){}.,;?:<>=+*%!~&|^-])""",
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression, and where it begins in the text.

    ``kind``: ``value``, ``name`` (``word`` is the dotted name), ``list``, ``call`` or ``op``
    (``word`` is the function or the sign; ``?`` has three parts, ``[]`` a list and an index).
    """

    kind: str
    word: str = ""
    parts: tuple[Node, ...] = ()
    value: Value = None
    at: int = 0


def in_a_row(node: Node) -> bool:
    """Whether an operator goes on from its left side, as the second + of a + b + c does."""
    left = node.parts[0]
    return (
        node.kind == left.kind == "op"
        and len(left.parts) == 2
        and left.word in BINDS
        and BINDS[left.word] == BINDS.get(node.word)
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A text of a user's and what it is called, so that a place in it can be shown."""

    text: str
    where: str

    def wrong(self, what: str, at: int, *, name: str = "", fix: str = "") -> InputError:
        """What is wrong at a place: attribute, line and column from 1 on, and the line with a caret
        under it."""
        first = self.text.rfind("\n", 0, at) + 1
        line = self.text[first:].split("\n", 1)[0].rstrip("\r")
        number, column = self.text.count("\n", 0, at) + 1, at - first + 1
        start = max(0, at - first - 60)
        shown = line[start : start + 120]
        gap = "".join("\t" if c == "\t" else " " for c in shown[: at - first - start])
        place = ", ".join(filter(None, (name, f"line {number}", f"column {column}")))
        return InputError(
            what,
            (shown, f"{gap}^"),
            where=f"{self.where}: {place}" if self.where else place,
            fix=fix,
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """A word or a sign of the text."""

    kind: str
    word: str
    at: int


def pieces_of(source: Source, name: str = "") -> list[Piece]:
    """The words and signs, without blanks and comments; at the end one that says so."""
    found: list[Piece] = []
    at, text = 0, source.text
    while at < len(text):
        match = PIECES.match(text, at)
        if match is None:
            raise source.wrong(_unreadable(text, at), at, name=name or _attribute_of(found))
        if match.lastgroup != "gap":
            found.append(Piece(str(match.lastgroup), match.group(), at))
        at = match.end()
    end = found[-1].at + len(found[-1].word) if found else 0
    return [*found, Piece("end", "", end)]


def _attribute_of(pieces: list[Piece]) -> str:
    """Whose expression it is that goes on behind these pieces."""
    named = [a.word for a, b in pairwise(pieces) if a.kind == "name" and b.word == "="]
    return named[-1] if named else ""


def _unreadable(text: str, at: int) -> str:
    if text[at] == '"':
        return "a text that does not end on its line"
    if text.startswith("/*", at):
        return "a comment that does not end"
    if text[at].isdigit() or text[at] == ".":
        return "a number that cannot be read"
    if text[at] == "'":
        return "texts stand in double quotation marks"
    return f"a character that means nothing here: {text[at]!r}"


def read_expression(source: Source, name: str) -> Node:
    """The one expression that is the whole text."""
    reader = Reader(source, pieces_of(source, name), name)
    node = reader.expression()
    if reader.now.kind != "end":
        reader.stop(f"the expression should have ended before {reader.now.word!r}")
    return node


def read_attributes(source: Source) -> Iterator[tuple[str, Node, str]]:
    """Name, expression and the expression as written: of an ad in brackets, or of lines ``Name =
    expression``."""
    pieces = pieces_of(source)
    reader = Reader(source, pieces, "")
    bracketed = reader.take("[")
    while reader.now.kind != "end" and not (bracketed and reader.now.word == "]"):
        if reader.take(";"):
            continue
        start = reader.now
        if start.kind != "name" or reader.next.word != "=":
            reader.stop("here an attribute should begin: Name = expression")
        reader.name = start.word
        reader.step(2)
        reader.until = _next_attribute(source.text, pieces, reader.index) if not bracketed else -1
        begin = reader.now.at
        node = reader.expression()
        last = pieces[reader.index - 1]
        yield start.word, node, source.text[begin : last.at + len(last.word)]
        reader.until = -1
        if bracketed and reader.now.word not in ("]", ";"):
            reader.stop("the expression should have ended here with ;")
        if not (bracketed or reader.now.word == ";" or reader.at_line_start()):
            reader.stop(f"the expression should have ended before {reader.now.word!r}")
        reader.name = ""
    if bracketed and not reader.take("]"):
        reader.stop("the ] that ends the ad is missing")
    if reader.now.kind != "end":
        reader.stop("after the ad nothing more may stand")


def _next_attribute(text: str, pieces: list[Piece], index: int) -> int:
    """Which piece begins the next line's attribute, so that an unfinished line is blamed itself."""
    for i in range(index, len(pieces) - 1):
        if (
            pieces[i].kind == "name"
            and pieces[i + 1].word == "="
            and "\n" in text[pieces[i - 1].at : pieces[i].at]
        ):
            return i
    return -1


class Reader:
    """Reads expressions off the pieces, one precedence level after the other."""

    def __init__(self, source: Source, pieces: list[Piece], name: str) -> None:
        self.source, self.pieces, self.name = source, pieces, name
        self.index, self.until, self.nested = 0, -1, 0

    @property
    def now(self) -> Piece:
        """The piece that is next to be read; an end, where another attribute begins."""
        piece = self.pieces[self.index]
        if self.index != self.until:
            return piece
        before = self.pieces[self.index - 1]
        return Piece("end", "", before.at + len(before.word))

    @property
    def next(self) -> Piece:
        return self.pieces[min(self.index + 1, len(self.pieces) - 1)]

    def at_line_start(self) -> bool:
        """Whether a line's end lies before the next piece."""
        before, now = self.pieces[self.index - 1], self.pieces[self.index]
        return now.kind == "end" or "\n" in self.source.text[before.at : now.at]

    def step(self, count: int = 1) -> None:
        self.index += count

    def take(self, sign: str) -> bool:
        """Go over a sign, if it is there."""
        if self.now.kind != "sign" or self.now.word != sign:
            return False
        self.step()
        return True

    def stop(self, what: str, at: int | None = None, fix: str = "") -> NoReturn:
        place = self.now.at if at is None else at
        raise self.source.wrong(what, place, name=self.name, fix=fix)

    def expression(self) -> Node:
        """``a ? b : c`` and all that binds more tightly."""
        self.nested += 1
        if self.nested > NESTED:
            self.stop(f"more than {NESTED} brackets or conditions within one another")
        node = self.binary(0)
        at = self.now.at
        if self.take("?"):
            yes = self.expression()
            if not self.take(":"):
                self.stop("here a : of the condition's ? is missing")
            node = Node("op", "?", (node, yes, self.expression()), at=at)
        self.nested -= 1
        return node

    def binary(self, level: int) -> Node:
        """Operators that bind at least as tightly as a level; equal ones from left to right."""
        node = self.unary()
        while True:
            piece = self.now
            word = piece.word.lower() if piece.kind == "name" else piece.word
            found = BINDS.get(word, -1) if piece.kind in ("sign", "name") else -1
            if found < level:
                return node
            self.step()
            node = Node("op", word, (node, self.binary(found + 1)), at=piece.at)

    def unary(self) -> Node:
        signs = []
        while self.now.kind == "sign" and self.now.word in ("!", "-", "+", "~"):
            signs.append(self.now)
            self.step()
        node = self.default()
        for sign in reversed(signs):
            node = Node("op", sign.word, (node,), at=sign.at)
        return node

    def default(self) -> Node:
        """``a ?: b``: b where a is undefined. It binds most tightly of all operators, even more
        than a sign."""
        node = self.postfix()
        while self.now.word == "?:" and self.now.kind == "sign":
            at = self.now.at
            self.step()
            node = Node("op", "?:", (node, self.postfix()), at=at)
        return node

    def postfix(self) -> Node:
        node = self.primary()
        while self.now.word in ("[", ".") and self.now.kind == "sign":
            at = self.now.at
            if self.take("["):
                node = Node("op", "[]", (node, self.expression()), at=at)
                self.close("]")
            elif node.kind != "name" or self.next.kind != "name" or self.is_word(self.next):
                self.stop("a . joins names, as in Host.Name")
            else:
                node = Node("name", f"{node.word}.{self.next.word}", at=node.at)
                self.step(2)
        return node

    def close(self, sign: str) -> None:
        if not self.take(sign):
            self.stop(f"here a {sign} is missing")

    @staticmethod
    def is_word(piece: Piece) -> bool:
        return piece.word.lower() in WORDS or piece.word.lower() in ("is", "isnt")

    def primary(self) -> Node:
        piece = self.now
        if piece.kind == "number":
            return self.number(piece)
        if piece.kind == "string":
            self.step()
            return Node("value", value=self.unquoted(piece), at=piece.at)
        if piece.kind == "name" and piece.word.lower() in WORDS:
            self.step()
            return Node("value", value=WORDS[piece.word.lower()], at=piece.at)
        if piece.kind == "name" and not self.is_word(piece):
            self.step()
            if self.take("("):
                return Node("call", piece.word, self.several(")"), at=piece.at)
            return Node("name", piece.word, at=piece.at)
        if self.take("("):
            node = self.expression()
            self.close(")")
            return node
        if not self.take("{"):
            self.stop(_misplaced(piece))
        return Node("list", parts=self.several("}"), at=piece.at)

    def several(self, end: str) -> tuple[Node, ...]:
        """Expressions with commas between them, up to a bracket."""
        if self.take(end):
            return ()
        found = [self.expression()]
        while self.take(","):
            found.append(self.expression())
        self.close(end)
        return tuple(found)

    def number(self, piece: Piece) -> Node:
        self.step()
        word = piece.word
        value: int | float = int(word) if word.isdigit() else float(word)
        if (value >= 2**63 and isinstance(value, int)) or value == float("inf"):
            self.stop("a number that is too large", piece.at)
        if word.isdigit() and len(word) > 1 and word[0] == "0":
            self.stop("a number does not begin with 0", piece.at)
        return Node("value", value=value, at=piece.at)

    def unquoted(self, piece: Piece) -> str:
        """What a text says; an escape that the language would drop without a word is refused."""

        def one(match: re.Match[str]) -> str:
            if (said := ESCAPES.get(match.group(1))) is None:
                at = piece.at + 1 + match.start()
                self.stop(
                    f"{match.group()} means nothing in a text", at, r"a backslash is written \\"
                )
            return said

        return re.sub(r"\\(.)", one, piece.word[1:-1])


def _misplaced(piece: Piece) -> str:
    if piece.kind == "end":
        return "the expression ends too early"
    if piece.word == "[":
        return "a ClassAd within an expression is not taken"
    if piece.word == "=":
        return "= gives a name to an expression; == compares"
    return f"here a value or a name should stand, not {piece.word!r}"
