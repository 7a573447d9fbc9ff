"""The words of a command, as they are once the shell has expanded them.

Follows bash(1), "EXPANSION". Known variables are substituted and braces expanded; what is not known before the shell
runs is in a word only where it cannot become several words, or other ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec
from tree_sitter import Node

from claudeops.policy.shell.language import (
    Block,
    Glob,
    LastStatus,
    Literal,
    Output,
    SimpleCommand,
    StoredVariable,
    StreamFile,
    Text,
    TooMuchError,
    UnclearError,
    Word,
)
from claudeops.policy.shell.lexical import HereDocument, expansions, literal_spans, unclear
from claudeops.structs import replace
from claudeops.text import regex

MOST_WORDS: Final = 128  # from one brace expression
MOST_EXPANDED: Final = 1 << 19  # characters of all words of a text, plus `_WORD_COST` for each word
_WORD_COST: Final = 32

_PLAIN_NODES: Final = frozenset(
    {"word", "number", "brace_expression", "test_operator", "$", "extglob_pattern", "regex", "==", "=~"}
)
_GROUPING_NODES: Final = frozenset({"concatenation", "command_name"})
_VARIABLES: Final = frozenset({"simple_expansion", "expansion"})
_QUOTED: Final = "\0"  # stands for a quoted character in a mask
_BRACES: Final = regex.Pattern(r"([^{}]*)\{([^{}]*)\}([^{}]*)")
_RANGE: Final = regex.Pattern(r"(0|-?[1-9]\d{0,3})\.\.(0|-?[1-9]\d{0,3})")
_WILDCARDS: Final = regex.Pattern(r"(?s)([*?]|\[[!^]?[\w.,@%+=:-]+\])|\[|[^*?\[]+")  # a wildcard, or other text
_SPECIAL: Final = regex.Pattern(r"[*?\[{]|(?:^|[=:])~")
_TILDE: Final = regex.Pattern(r"(?:^|[=:])~")
_MATCHED: Final = regex.Pattern(r"[*?\[\\]")
_BLANKS: Final = regex.Pattern(r"[ \t\n]+")
_BACKSLASHES: Final = regex.Pattern(r"(?s)\\(.)|([^\\]+)")
_ANSI_C: Final = regex.Pattern(r"(?s)\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|([abefnrtv\\'\"?E])|(.))")
_ANSI_C_NAMES: Final = dict(zip("abefnrtv\\'\"?E", "\a\b\x1b\f\n\r\t\v\\'\"?\x1b", strict=True))

Value: TypeAlias = str | StoredVariable | None
"""What a variable holds: a literal, what a look printed, or (None) what depends on how the text runs."""


class ReaderScope(msgspec.Struct, kw_only=True):
    """What the reader knows at one point of a text."""

    values: dict[str, Value]
    cwd: str | None = None
    head: bool = True  # nothing but cd, set and assignments came before, so cd may follow
    moved: bool = False  # a group has changed the directory, so no command may follow
    unassignable: str = ""  # where this is, if no variable may be set here
    feeds: tuple[SimpleCommand, ...] | None = None  # the pipeline's earlier commands
    rounds: int = 1  # how often this point is read, loops unrolled
    repeated: bool = False  # within a loop that is not taken

    def apart(self) -> ReaderScope:
        """Return the scope of a shell of its own."""
        return replace(self, values=dict(self.values), unassignable="")

    def doubt(self, before: dict[str, Value]) -> None:
        """Forget the values that differ from ``before``: what set them may not have run."""
        for name in {*before, *self.values}:
            if name not in before or name not in self.values or before[name] != self.values[name]:
                self.values[name] = None


class _Chars(msgspec.Struct, frozen=True):
    """Literal text; ``mask`` has the same length, with `_QUOTED` for every quoted character."""

    text: str
    mask: str

    def __add__(self, other: _Chars) -> _Chars:
        return _Chars(self.text + other.text, self.mask + other.mask)

    def __getitem__(self, part: slice) -> _Chars:
        return _Chars(self.text[part], self.mask[part])


_Piece: TypeAlias = _Chars | Output | StoredVariable | LastStatus


class WordReader:
    """Turns word nodes into words; ``substitute`` reads the commands of a substitution."""

    def __init__(self, source: bytes, substitute: Callable[[Node, ReaderScope], Block]) -> None:
        self._source = source
        self._substitute = substitute
        self._room = MOST_EXPANDED

    def words(self, node: Node, scope: ReaderScope) -> list[Word]:
        """Return the arguments that a word expands to: usually one, sometimes none or several."""
        if node.type in _VARIABLES:
            words = self._split(node, scope)
        elif node.type == "process_substitution":
            words = [self._stream(node, scope)]
        else:
            words = self._expanded(node, scope)
        self._take(words)
        return words

    def value(self, node: Node | None, scope: ReaderScope) -> Literal | Text:
        """Return what an assignment stores, or the text of a here-string: no splitting, no globs, no braces."""
        pieces = [] if node is None else self._pieces(node, scope, quoted=True)
        literal, text = _joined(pieces), _text(pieces)
        if text is not None and node is not None and _TILDE.search(literal.mask):
            raise unclear(node, self._source)
        value = text or Literal(self._home(literal, scope, node).text)
        self._take([value])
        return value

    def document(self, body: Node | None, here: HereDocument, scope: ReaderScope) -> str:
        """Return the text of a here-document."""
        spans, pieces = [(here.start, here.end)], []
        if body is not None and not here.quoted:
            spans = literal_spans(body, here.start, here.end, self._source)
            pieces = [piece for child in expansions(body) for piece in self._pieces(child, scope, quoted=True)]
        texts = [self._source[start:end].decode() for start, end in spans]
        if here.tabs_stripped:
            texts = [regex.sub(r"\n\t+", "\n", "\n" + texts[0])[1:], *(regex.sub(r"\n\t+", "\n", t) for t in texts[1:])]
        if not here.quoted:
            texts = [_unescape(text, "$`\\") for text in texts]
        known = [piece.text for piece in pieces if isinstance(piece, _Chars)]
        if len(known) != len(texts) - 1:
            raise UnclearError("a here-document may hold no $(…) and no output of a look: write its text out")
        text = texts[0] + "".join(a + b for a, b in zip(known, texts[1:], strict=True))
        self._take([Literal(text)])
        return text

    def shown(self, node: Node) -> str:
        """Return a node's text without the leading blanks that the parser may include."""
        return self._source[node.start_byte : node.end_byte].decode().lstrip(" \t")

    def _take(self, words: Iterable[Word]) -> None:
        """Count the expanded words: a value that doubles itself twenty times over would fill any memory."""
        self._room -= sum(_WORD_COST + (len(word.text) if isinstance(word, Literal) else 0) for word in words)
        if self._room < 0:
            raise TooMuchError("with its variables filled in, the command is too long: write it more plainly")

    # --- expansions -------------------------------------------------------------------------------------

    def _split(self, node: Node, scope: ReaderScope) -> list[Word]:
        """Return the words of an unquoted variable, which bash splits at blanks."""
        value = self._variable(node, scope)
        match value:
            case str():
                return [Literal(part) for part in _BLANKS.split(self._unmatched(value, node)) if part]
            case LastStatus():
                return [Text((value,))]
            case StoredVariable():
                raise self._unquoted(node)

    def _unmatched(self, value: str, node: Node) -> str:
        if _MATCHED.search(value):
            raise UnclearError(f"{self.shown(node)} holds a pattern: quote it, or write it out")
        return value

    def _unquoted(self, node: Node) -> UnclearError:
        return UnclearError(f"what {self.shown(node)[:60]} becomes is known only when it runs: put it in double quotes")

    def _variable(self, node: Node, scope: ReaderScope) -> str | StoredVariable | LastStatus:
        """Return the value of ``$name`` or ``${name}``."""
        if len(node.children) != (3 if node.type == "expansion" else 2) or not node.children[1].is_named:
            raise UnclearError(f"{self.shown(node)[:60]} changes a value: write what comes out of it")
        name = self.shown(node.children[1])
        value = LastStatus() if name == "?" else scope.values.get(name)
        if value is None:
            raise UnclearError(f"${name} is not set in this command: write its value out")
        return value

    def _pieces(self, node: Node, scope: ReaderScope, *, quoted: bool = False) -> list[_Piece]:
        text = self.shown(node)
        if node.type in _PLAIN_NODES:
            return [_unquoted(text)]
        if node.type in _GROUPING_NODES:
            return [piece for child in node.children for piece in self._pieces(child, scope, quoted=quoted)]
        match node.type:
            case "raw_string":
                return [_hidden(text[1:-1])]
            case "ansi_c_string":
                return [_hidden(_ansi_c(text[2:-1], node, self._source))]
            case "string":
                return self._string(node, scope)
        return [self._expansion(node, scope, quoted=quoted)]

    def _string(self, node: Node, scope: ReaderScope) -> list[_Piece]:
        spans = literal_spans(node, node.start_byte + 1, node.end_byte - 1, self._source)
        first, *texts = (_hidden(_unescape(self._source[a:b].decode(), '$`"\\')) for a, b in spans)
        pieces: list[_Piece] = [first]
        for child, text in zip(expansions(node), texts, strict=True):
            pieces += [*self._pieces(child, scope, quoted=True), text]
        return pieces

    def _expansion(self, node: Node, scope: ReaderScope, *, quoted: bool) -> _Piece:
        match node.type:
            case "simple_expansion" | "expansion":
                value = self._variable(node, scope)
                if isinstance(value, str):
                    if not quoted and _BLANKS.search(value):
                        raise self._unquoted(node)
                    return _hidden(value if quoted else self._unmatched(value, node))
                if not quoted and not isinstance(value, LastStatus):
                    raise self._unquoted(node)
                return value
            case "command_substitution":
                block = self._substitute(node, scope)
                if not quoted:
                    shown = self.shown(node)[:60]
                    raise UnclearError(
                        f"{shown} may become any words: pipe it into xargs -n 1 COMMAND, or quote it as text"
                    )
                return Output(block)
            case "arithmetic_expansion":
                raise UnclearError("arithmetic is not taken: write the number out")
        raise unclear(node, self._source)

    def _stream(self, node: Node, scope: ReaderScope) -> StreamFile:
        if not self.shown(node).startswith("<("):
            raise UnclearError(">( … ) is not taken: use a pipe")
        return StreamFile(self._substitute(node, scope))

    # --- what is left of a word -------------------------------------------------------------------------

    def _expanded(self, node: Node, scope: ReaderScope) -> list[Word]:
        pieces = self._pieces(node, scope)
        literal, text = _joined(pieces), _text(pieces)
        if text is not None:
            if _SPECIAL.search(literal.mask):
                raise UnclearError(f"{self.shown(node)[:60]!r} mixes a pattern with what is not known: quote it")
            return [text]
        if "{" in literal.mask and _expands(node):
            raise unclear(node, self._source)  # braces are expanded before variables: $x{a,b} is $xa $xb
        quoted = any(sign in self.shown(node) for sign in "\"'")
        words = [self._word(each, scope, node) for each in _unbraced(literal, node, self._source)]
        return [word for word in words if quoted or word != Literal("")]

    def _word(self, literal: _Chars, scope: ReaderScope, node: Node) -> Word:
        """Return literal text, or a pattern whose quoted wildcards are in brackets."""
        literal = self._home(literal, scope, node)
        pattern, matches = "", False
        for found in _WILDCARDS.finditer(literal.mask):
            if found[1] is not None:
                pattern, matches = pattern + found[1].replace("[^", "[!"), True
            elif found[0] == "[" and literal.mask.rfind("]") > found.start():
                raise UnclearError(f"the brackets in {self.shown(node)[:60]!r} are unusual: quote them, or write names")
            else:
                text = literal.text[found.start() : found.end()]
                pattern += regex.sub(r"[*?\[]", lambda each: f"[{each[0]}]", text)
        return Glob(pattern) if matches else Literal(literal.text)

    def _home(self, literal: _Chars, scope: ReaderScope, node: Node | None) -> _Chars:
        """Replace a tilde at the beginning by the home directory."""
        if literal.mask[:1] == "~" and literal.mask[1:2] in ("", "/"):
            home = scope.values.get("HOME")
            if not isinstance(home, str):
                raise UnclearError("what ~ stands for is not known here: write the directory out")
            literal = _hidden(home) + literal[1:]
        if _TILDE.search(literal.mask):
            shown = "" if node is None else self.shown(node)[:60]
            raise UnclearError(f"the tilde in {shown!r} may be expanded or not: write the directory out, or quote it")
        return literal


def _hidden(text: str) -> _Chars:
    """Return text in which no character has a special meaning to the shell."""
    return _Chars(text, _QUOTED * len(text))


def _joined(pieces: Iterable[_Piece]) -> _Chars:
    """Return the literal text of pieces."""
    texts = [piece for piece in pieces if isinstance(piece, _Chars)]
    return _Chars("".join(each.text for each in texts), "".join(each.mask for each in texts))


def _text(pieces: list[_Piece]) -> Text | None:
    """Return pieces as one word, or None where all are literal."""
    parts: list[str | Output | StoredVariable | LastStatus] = []
    for piece in pieces:
        part = piece.text if isinstance(piece, _Chars) else piece
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            part = f"{parts.pop()}{part}"
        parts += [part] if part != "" else []
    return Text(tuple(parts)) if any(not isinstance(part, str) for part in parts) else None


def _expands(node: Node) -> bool:
    return node.type in _VARIABLES or any(map(_expands, node.children))


def _unquoted(text: str) -> _Chars:
    """Remove the backslashes from an unquoted word; the characters after them are quoted."""
    parts = _BACKSLASHES.finditer(text)
    return _joined([_hidden(part[1]) if part[1] else _Chars(part[2], part[2]) for part in parts])


def _unescape(text: str, escapable: str) -> str:
    return regex.sub(r"\\(\n|[" + regex.escape(escapable) + "])", lambda m: "" if m[1] == "\n" else m[1], text)


def _ansi_c(text: str, node: Node, source: bytes) -> str:
    def replaced(match: regex.Match[str]) -> str:
        if match[4] is not None:
            raise unclear(node, source)
        if match[3] is not None:
            return _ANSI_C_NAMES[match[3]]
        code = int(match[1], 16) if match[1] else int(match[2], 8) % 256
        if not 0 < code < 128:  # noqa: PLR2004 - bash ends the string at a NUL and writes raw bytes above ASCII
            raise unclear(node, source)
        return chr(code)

    return _ANSI_C.sub(replaced, text)


def _unbraced(literal: _Chars, node: Node, source: bytes) -> list[_Chars]:
    """Expand one pair of braces (bash(1), "Brace Expansion"); several are refused."""
    mask = literal.mask
    if "{" not in mask or not ("," in mask or ".." in mask):
        return [literal]
    found = _BRACES.fullmatch(mask)
    if found is None:
        raise unclear(node, source)
    inside = found[2]
    before, after = literal[: found.start(2) - 1], literal[found.end(2) + 1 :]
    ends = _RANGE.fullmatch(inside)
    if ends:
        low, high = int(ends[1]), int(ends[2])
        numbers = range(low, high + 1) if low <= high else range(low, high - 1, -1)
        if len(numbers) > MOST_WORDS:
            raise unclear(node, source)
        choices = [_hidden(str(number)) for number in numbers]
    elif "," in inside:
        stops = [found.start(2) - 1, *(i for i in range(*found.span(2)) if mask[i] == ","), found.end(2)]
        choices = [literal[a + 1 : b] for a, b in pairwise(stops)]
    elif ".." in inside:
        raise unclear(node, source)
    else:
        return [literal]
    return [before + choice + after for choice in choices]
