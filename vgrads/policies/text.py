"""Parser of the user's text: expressions of the ClassAd language as a tree, with positions for
error messages.

The grammar is that of the ClassAd reference manual (new syntax), without parts that a dispatch
policy does not need: ClassAds within expressions, absolute names and comparisons of whole ads.
Messages have attribute, line and column, and show the line. `#` begins a comment as `//` does.
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
"""Maximum length of a dispatch policy, in characters."""
DEEPEST = 200
"""Maximum depth of an expression, including its references."""
BRACKETS = 120
"""Maximum number of levels that need their own brackets."""
NESTED = 30
"""Maximum depth of nested brackets."""

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
    """A part of an expression, and its position in the text.

    ``kind``: ``value``, ``name`` (``word`` is the dotted name), ``list``, ``call`` or ``op``
    (``word`` is the function or the sign; ``?`` has three parts, ``[]`` a list and an index).
    """

    kind: str
    word: str = ""
    parts: tuple[Node, ...] = ()
    value: Value = None
    at: int = 0


def in_a_row(node: Node) -> bool:
    """Return True where an operator continues its left side, as the second + of a + b + c does."""
    left = node.parts[0]
    return (
        node.kind == left.kind == "op"
        and len(left.parts) == 2
        and left.word in BINDS
        and BINDS[left.word] == BINDS.get(node.word)
    )


@dataclass(frozen=True, slots=True)
class ExpressionSource:
    """A user's text and its name, for error messages with positions."""

    text: str
    where: str

    def wrong(self, what: str, at: int, *, name: str = "", fix: str = "") -> InputError:
        """Return the error at a position: attribute, line and column from 1 on, and the line with a
        caret under it."""
        first = self.text.rfind("\n", 0, at) + 1
        line = self.text[first:].split("\n", 1)[0].rstrip("\r")
        number, column = self.text.count("\n", 0, at) + 1, at - first + 1
        # of a long line only the part around the position is shown
        start = max(0, at - first - 60)
        shown = line[start : start + 120]
        # tabs stay tabs, so that the caret is below the position at any width of a tab
        gap = "".join("\t" if c == "\t" else " " for c in shown[: at - first - start])
        place = ", ".join(filter(None, (name, f"line {number}", f"column {column}")))
        return InputError(
            what,
            (shown, f"{gap}^"),
            where=f"{self.where}: {place}" if self.where else place,
            fix=fix,
        )


@dataclass(frozen=True, slots=True)
class Token:
    """A word or a sign of the text."""

    kind: str
    word: str
    at: int


def pieces_of(source: ExpressionSource, name: str = "") -> list[Token]:
    """Return the words and signs, without blanks and comments, followed by an end marker."""
    tokens: list[Token] = []
    at, text = 0, source.text
    while at < len(text):
        match = PIECES.match(text, at)
        if match is None:
            raise source.wrong(
                _make_unreadable_error(text, at), at, name=name or _find_attribute(tokens)
            )
        if match.lastgroup != "gap":
            tokens.append(Token(str(match.lastgroup), match.group(), at))
        at = match.end()
    # errors at the end are shown behind the last word, not behind a comment
    end = tokens[-1].at + len(tokens[-1].word) if tokens else 0
    return [*tokens, Token("end", "", end)]


def _find_attribute(pieces: list[Token]) -> str:
    """Return the attribute whose expression continues after these pieces."""
    named = [a.word for a, b in pairwise(pieces) if a.kind == "name" and b.word == "="]
    return named[-1] if named else ""


def _make_unreadable_error(text: str, at: int) -> str:
    if text[at] == '"':
        return "a string that does not end on its line"
    if text.startswith("/*", at):
        return "a comment that does not end"
    if text[at].isdigit() or text[at] == ".":
        return "a number that cannot be read"
    if text[at] == "'":
        return "strings must be in double quotation marks"
    return f"an unexpected character: {text[at]!r}"


def read_expression(source: ExpressionSource, name: str) -> Node:
    """Parse the whole text as one expression."""
    reader = Reader(source, pieces_of(source, name), name)
    node = reader.expression()
    if reader.now.kind != "end":
        reader.stop(f"expected the end of the expression before {reader.now.word!r}")
    return node


def read_attributes(source: ExpressionSource) -> Iterator[tuple[str, Node, str]]:
    """Parse name, expression and the expression as written: of an ad in brackets, or of lines
    ``Name = expression``."""
    pieces = pieces_of(source)
    reader = Reader(source, pieces, "")
    bracketed = reader.take("[")
    while reader.now.kind != "end" and not (bracketed and reader.now.word == "]"):
        if reader.take(";"):
            continue
        start = reader.now
        if start.kind != "name" or reader.next.word != "=":
            reader.stop("expected an attribute here: Name = expression")
        reader.name = start.word
        reader.step(2)
        # in brackets a semicolon ends an expression, so that none can be unfinished
        reader.until = (
            _find_next_attribute(source.text, pieces, reader.index) if not bracketed else -1
        )
        begin = reader.now.at
        node = reader.expression()
        last = pieces[reader.index - 1]
        yield start.word, node, source.text[begin : last.at + len(last.word)]
        reader.until = -1
        if bracketed and reader.now.word not in ("]", ";"):
            reader.stop("expected ; at the end of the expression")
        if not (bracketed or reader.now.word == ";" or reader.at_line_start()):
            reader.stop(f"expected the end of the expression before {reader.now.word!r}")
        reader.name = ""
    if bracketed and not reader.take("]"):
        reader.stop("the ] that ends the ad is missing")
    if reader.now.kind != "end":
        reader.stop("unexpected text after the ad")


def _find_next_attribute(text: str, pieces: list[Token], index: int) -> int:
    """Return the piece at which the next line's attribute begins, so that an error is reported at
    the unfinished line."""
    for i in range(index, len(pieces) - 1):
        if (
            pieces[i].kind == "name"
            and pieces[i + 1].word == "="
            and "\n" in text[pieces[i - 1].at : pieces[i].at]
        ):
            return i
    return -1


class Reader:
    """Parses expressions from the pieces, one precedence level after the other."""

    def __init__(self, source: ExpressionSource, pieces: list[Token], name: str) -> None:
        self.source, self.pieces, self.name = source, pieces, name
        self.index, self.until, self.nested = 0, -1, 0

    @property
    def now(self) -> Token:
        """Return the next piece; an end where another attribute begins."""
        piece = self.pieces[self.index]
        if self.index != self.until:
            return piece
        before = self.pieces[self.index - 1]
        return Token("end", "", before.at + len(before.word))

    @property
    def next(self) -> Token:
        return self.pieces[min(self.index + 1, len(self.pieces) - 1)]

    def at_line_start(self) -> bool:
        """Return True where a line break precedes the next piece."""
        before, now = self.pieces[self.index - 1], self.pieces[self.index]
        return now.kind == "end" or "\n" in self.source.text[before.at : now.at]

    def step(self, count: int = 1) -> None:
        self.index += count

    def take(self, sign: str) -> bool:
        """Consume a sign, if present."""
        if self.now.kind != "sign" or self.now.word != sign:
            return False
        self.step()
        return True

    def stop(self, what: str, at: int | None = None, fix: str = "") -> NoReturn:
        place = self.now.at if at is None else at
        raise self.source.wrong(what, place, name=self.name, fix=fix)

    def expression(self) -> Node:
        """Parse ``a ? b : c`` and all that binds more tightly."""
        self.nested += 1
        if self.nested > NESTED:
            self.stop(f"more than {NESTED} nested brackets or conditions")
        node = self.binary(0)
        at = self.now.at
        if self.take("?"):
            yes = self.expression()
            if not self.take(":"):
                self.stop("a : of the condition's ? is missing here")
            node = Node("op", "?", (node, yes, self.expression()), at=at)
        self.nested -= 1
        return node

    def binary(self, level: int) -> Node:
        """Parse operators that bind at least as tightly as a level; equal ones from left to
        right."""
        node = self.unary()
        while True:
            piece = self.now
            # `is` and `isnt` are operators, although they are read as names
            word = piece.word.lower() if piece.kind == "name" else piece.word
            count = BINDS.get(word, -1) if piece.kind in ("sign", "name") else -1
            if count < level:
                return node
            self.step()
            node = Node("op", word, (node, self.binary(count + 1)), at=piece.at)

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
        """Parse ``a ?: b``: b where a is undefined. It binds most tightly of all operators, even
        more than a sign."""
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
            self.stop(f"a {sign} is missing here")

    @staticmethod
    def is_word(piece: Token) -> bool:
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
            self.stop(_is_misplaced(piece))
        return Node("list", parts=self.several("}"), at=piece.at)

    def several(self, end: str) -> tuple[Node, ...]:
        """Parse expressions separated by commas, up to a bracket."""
        if self.take(end):
            return ()
        results = [self.expression()]
        while self.take(","):
            results.append(self.expression())
        self.close(end)
        return tuple(results)

    def number(self, piece: Token) -> Node:
        self.step()
        word = piece.word
        value: int | float = int(word) if word.isdigit() else float(word)
        if (value >= 2**63 and isinstance(value, int)) or value == float("inf"):
            self.stop("a number that is too large", piece.at)
        if word.isdigit() and len(word) > 1 and word[0] == "0":
            self.stop("a number does not begin with 0", piece.at)
        return Node("value", value=value, at=piece.at)

    def unquoted(self, piece: Token) -> str:
        """Return the value of a text literal; an escape that the language would drop silently is
        rejected."""

        def replacement(match: re.Match[str]) -> str:
            if (text := ESCAPES.get(match.group(1))) is None:
                at = piece.at + 1 + match.start()
                self.stop(
                    f"{match.group()} is not a valid escape in a string",
                    at,
                    r"a backslash is written \\",
                )
            return text

        return re.sub(r"\\(.)", replacement, piece.word[1:-1])


def _is_misplaced(piece: Token) -> str:
    if piece.kind == "end":
        return "the expression ends too early"
    if piece.word == "[":
        return "a ClassAd within an expression is not supported"
    if piece.word == "=":
        return "= assigns a name to an expression; == compares"
    return f"expected a value or a name, found {piece.word!r}"
