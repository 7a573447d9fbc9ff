"""The words of a command: unquoted, with braces expanded and known variables filled in; all other words are dynamic.

Follows bash(1), "EXPANSION". What is not known before the shell runs stays a dynamic word; what could change the
meaning of the words around it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import Final, NamedTuple

from tree_sitter import Node

from claudeops.domain.shell.lexical import expansions, literal_spans, unclear
from claudeops.domain.shell.values import (
    Arithmetic,
    Block,
    Glob,
    Literal,
    Part,
    ProcessSubstitution,
    SimpleCommand,
    Substitution,
    TooMuchError,
    UnclearError,
    Variable,
    Word,
    WordKind,
)
from claudeops.domain.text import regex

MOST_WORDS: Final = 128  # from one brace expression
MOST_EXPANDED: Final = 1 << 19  # characters of all words of a text, plus `_WORD_COST` for each word
_WORD_COST: Final = 32

_SAFE_VARIABLES: Final = frozenset(
    [
        "?",
        "#",
        "$",
        "!",
        "-",
        "0",
        "HOSTNAME",
        "USER",
        "LOGNAME",
        "UID",
        "EUID",
        "HOME",
        "PWD",
        "OLDPWD",
        "RANDOM",
        "SECONDS",
        "EPOCHSECONDS",
        "LINENO",
        "BASH_VERSION",
    ]
)
_SAFE_OPERATORS: Final = frozenset({"#", "##", "%", "%%", "/", "//", ":-", "-", ":+", "+", "^^", ",,", "^", ","})
_PLAIN_NODES: Final = frozenset(
    {"word", "number", "brace_expression", "test_operator", "$", "extglob_pattern", "regex"}
)
_GROUPING_NODES: Final = frozenset({"concatenation", "command_name"})
_HIDDEN: Final = "\0"  # stands for a quoted character in a mask
_BRACES: Final = regex.Pattern(r"([^{}]*)\{([^{}]*)\}([^{}]*)")
_RANGE: Final = regex.Pattern(r"(0|-?[1-9]\d{0,3})\.\.(0|-?[1-9]\d{0,3})")
_TRIMMED: Final = regex.Pattern(r"#?[A-Za-z_]\w*(?:(?:[#%/,^]{1,2}|:?[+-])[\w.,:@%+=*?/ -]*)?")  # ``name%%.*``
_WILDCARDS: Final = regex.Pattern(r"(?s)([*?]|\[[!^]?[\w.,@%+=:-]+\])|\[|[^*?\[]+")  # a wildcard, or other text
_TILDE: Final = regex.Pattern(r"(?:^|[=:])~")
_BACKSLASHES: Final = regex.Pattern(r"(?s)\\(.)|([^\\]+)")
_ANSI_C: Final = regex.Pattern(r"(?s)\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|([abefnrtv\\'\"?E])|(.))")
_ANSI_C_NAMES: Final = dict(zip("abefnrtv\\'\"?E", "\a\b\x1b\f\n\r\t\v\\'\"?\x1b", strict=True))


@dataclass(slots=True)
class Bindings:
    """What is known about the shell's variables at one point of a command; an unknown value is a dynamic word."""

    names: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    cwd: str | None = None

    def copy(self) -> Bindings:
        """Return a copy whose changes do not affect these bindings."""
        return Bindings(names=dict(self.names), cwd=self.cwd)


class Substituted(NamedTuple):
    """What a substitution runs."""

    commands: tuple[SimpleCommand, ...]
    block: Block


def quoted_text(text: str) -> _Text:
    """Return text in which no character has a special meaning to the shell."""
    return _Text(text, _HIDDEN * len(text))


class WordReader:
    """Turns word nodes into words; ``substitute`` walks the commands of a substitution and returns them."""

    def __init__(self, source: bytes, substitute: Callable[[Node, Bindings], Substituted]) -> None:
        self._source = source
        self._substitute = substitute
        self._room = MOST_EXPANDED

    def words(self, node: Node, bindings: Bindings) -> list[Word]:
        """Return the arguments that a word expands to: usually one, sometimes none or several."""
        words = self._expanded(node, bindings)
        self._take(words)
        return words

    def _take(self, words: Iterable[Word]) -> None:
        """Count the expanded words: a value that doubles itself twenty times over would fill any memory."""
        self._room -= sum(len(word.text) + _WORD_COST for word in words)
        if self._room < 0:
            raise TooMuchError("with its variables filled in, the command is too long: write it more plainly")

    def _expanded(self, node: Node, bindings: Bindings) -> list[Word]:
        pieces = self._pieces(node, bindings)
        if any(isinstance(piece, _Hole) for piece in pieces):
            return self._with_holes(pieces, node)
        literal = _joined(pieces)
        return [_word(text) for text in _unbraced(literal, node, self._source)]

    def value(self, node: Node | None, bindings: Bindings) -> Word:
        """Return what an assignment stores, or the text of a here-string: no splitting, no globs, no braces."""
        if node is None:
            return Word(text="")
        pieces = self._pieces(node, bindings, quoted=True)
        if any(isinstance(piece, _Hole) for piece in pieces):
            words = self._with_holes(pieces, node)
            known = len(words) == 1 and (len(pieces) == 1 or words[0].kind is not WordKind.PATTERN)
            if known:  # nothing is split or matched here, quoted or not
                return replace(words[0], parts=tuple(_quoted(part) for part in words[0].parts))
            return Word(text=self._shown(node), kind=WordKind.DYNAMIC)
        literal = _joined(pieces)
        if _TILDE.search(literal.mask):
            return Word(text=literal.text, kind=WordKind.DYNAMIC, parts=_parts([literal]))
        return Word(text=literal.text)

    def pattern(self, node: Node, bindings: Bindings) -> Word:
        """Return a pattern of ``case`` or ``[[ … ]]``, which matches text and no files."""
        pieces = self._pieces(node, bindings)
        parts = _parts([_flat(piece) for piece in pieces])
        return Word(text=self._shown(node), kind=WordKind.DYNAMIC, parts=tuple(_quoted(part) for part in parts))

    def document(self, node: Node | None, start: int, end: int, bindings: Bindings) -> Word:
        """Return the text of an unquoted here-document."""
        if node is None or not expansions(node):
            return Word(text=_unescape(self._source[start:end].decode(), "$`\\"))
        holes = [piece for child in expansions(node) for piece in self._pieces(child, bindings, quoted=True)]
        spans = literal_spans(node, start, end, self._source)
        texts = [_unescape(self._source[a:b].decode(), "$`\\") for a, b in spans]
        if all(isinstance(hole, _Text) for hole in holes) and len(holes) == len(texts) - 1:
            known = [hole.text for hole in holes if isinstance(hole, _Text)]
            return Word(text=texts[0] + "".join(a + b for a, b in zip(known, texts[1:], strict=True)))
        parts: list[Part] = [Literal(texts[0])]
        for hole, text in zip(holes, texts[1:], strict=True) if len(holes) == len(texts) - 1 else ():
            parts += [*_parts([_flat(hole)]), Literal(text)]
        whole = len(parts) > 1 and all(_parts([_flat(hole)]) for hole in holes)
        return Word(text=self._shown(node), kind=WordKind.DYNAMIC, parts=tuple(parts) if whole else ())

    def _shown(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode().lstrip(" \t")

    def _pieces(self, node: Node, bindings: Bindings, *, quoted: bool = False) -> list[_Piece]:
        text = self._shown(node)
        if node.type in _PLAIN_NODES:
            return [_unquoted(text)]
        if node.type in _GROUPING_NODES:
            return [piece for child in node.children for piece in self._pieces(child, bindings, quoted=quoted)]
        match node.type:
            case "raw_string":
                return [quoted_text(text[1:-1])]
            case "ansi_c_string":
                return [quoted_text(_ansi_c(text[2:-1], node, self._source))]
            case "string":
                return self._string(node, bindings)
        return [self._expansion(node, bindings, quoted=quoted)]

    def _expansion(self, node: Node, bindings: Bindings, *, quoted: bool) -> _Piece:
        text = self._shown(node)
        match node.type:
            case "simple_expansion":
                piece = self._variable(text[1:], bindings, quoted=quoted)
            case "expansion":
                piece = self._parameter(node, bindings, quoted=quoted)
            case "command_substitution":
                outputs, block = self._substitute(node, bindings)
                word = Word(text=text, kind=WordKind.DYNAMIC, single=quoted, outputs=outputs)
                piece = _Hole((replace(word, parts=(Substitution(block, quoted),)),), quoted)
            case "process_substitution" if node.parent is None or node.parent.type != "concatenation":
                block = self._substitute(node, bindings).block
                parts = (ProcessSubstitution(text[0], block),)
                piece = _Hole((Word(text="/dev/fd/63", parts=parts),), quoted=True)
            case "arithmetic_expansion":
                numbers = Arithmetic(" ".join(self._arithmetic(node, bindings)[1:-1]))
                piece = _Hole((Word(text=text, kind=WordKind.DYNAMIC, parts=(numbers,)),), quoted=True)
            case _:
                raise unclear(node, self._source)
        return piece

    def _string(self, node: Node, bindings: Bindings) -> list[_Piece]:
        spans = literal_spans(node, node.start_byte + 1, node.end_byte - 1, self._source)
        texts = [quoted_text(_unescape(self._source[a:b].decode(), '$`"\\')) for a, b in spans]
        inner = [self._pieces(child, bindings, quoted=True) for child in expansions(node)]
        pieces: list[_Piece] = [texts[0]]
        for held, text in zip(inner, texts[1:], strict=True):
            pieces += [*held, text]
        return [piece for piece in pieces if not isinstance(piece, _Text) or piece.text] or [quoted_text("")]

    def _variable(self, name: str, bindings: Bindings, *, quoted: bool) -> _Piece:
        values = bindings.names.get(name)
        if values is None:
            if name not in _SAFE_VARIABLES:
                raise UnclearError(f"${name} is not set in this command: write its value out")
            parts = (Variable(name, quoted),)
            return _Hole((Word(text=f"${name}", kind=WordKind.DYNAMIC, single=quoted, parts=parts),), quoted)
        self._take(values)
        if len(values) == 1 and values[0].constant and quoted:
            return quoted_text(values[0].text)
        values = _referred(name, values, quoted=quoted)
        if quoted:
            return _Hole(values, quoted)
        return _Hole(tuple(part for value in values for part in _split(value)), quoted)

    def _parameter(self, node: Node, bindings: Bindings, *, quoted: bool) -> _Piece:
        """Read ``${…}``: a plain name, all of an array, or a trimmed value that stays dynamic."""
        inner = node.children[1:-1]
        if len(inner) == 1 and inner[0].type in {"variable_name", "special_variable_name"}:
            return self._variable(self._shown(inner[0]), bindings, quoted=quoted)
        if len(inner) == 1 and regex.fullmatch(r"\w+\[@\]", self._shown(inner[0])) and quoted:
            name = self._shown(inner[0])[:-3]
            return _Hole(_referred(name, self._array(name, bindings), quoted=True), quoted=True)
        names = [child for child in inner if child.type == "variable_name"]
        others = [child for child in inner if child.is_named and child.type != "variable_name"]
        operators = {self._shown(child) for child in inner if not child.is_named}
        if (
            len(names) != 1
            or not operators <= _SAFE_OPERATORS
            or any(o.type not in {"word", "regex", "number"} for o in others)
        ):
            raise unclear(node, self._source)
        self._variable(self._shown(names[0]), bindings, quoted=quoted)
        expression = self._shown(node)[2:-1]
        parts = (Variable(expression, quoted),) if _TRIMMED.fullmatch(expression) else ()
        return _Hole((Word(text=self._shown(node), kind=WordKind.DYNAMIC, single=quoted, parts=parts),), quoted)

    def _array(self, name: str, bindings: Bindings) -> tuple[Word, ...]:
        values = bindings.names.get(name)
        if values is None:
            raise UnclearError(f"${{{name}[@]}} is not set in this command: write its values out")
        self._take(values)
        return values

    def _arithmetic(self, node: Node, bindings: Bindings) -> list[str]:
        """Return the tokens of an arithmetic expression, with variables replaced by their numbers.

        Refuses arithmetic over anything but numbers: bash would evaluate text as code (``a[$(…)]``).
        """
        tokens: list[str] = []
        for child in node.children:
            if child.child_count:
                tokens += self._arithmetic(child, bindings)
            elif child.type in {"variable_name", "word", "special_variable_name"}:
                value = bindings.names.get(self._shown(child), ())
                if len(value) != 1 or not value[0].constant or not regex.fullmatch(r"\d+", value[0].text):
                    raise UnclearError(f"arithmetic over {self._shown(child)!r} is not allowed: write the number out")
                tokens.append(value[0].text)
            elif child.is_named and child.type != "number":
                raise unclear(child, self._source)
            elif child.type != "$":
                tokens.append(self._shown(child))
        return tokens

    def _with_holes(self, pieces: list[_Piece], node: Node) -> list[Word]:
        if len(pieces) == 1 and isinstance(pieces[0], _Hole):
            return list(pieces[0].words)
        if any("{" in piece.mask for piece in pieces if isinstance(piece, _Text)):
            raise unclear(node, self._source)  # braces are expanded before variables: $x{a,b} is $xa $xb
        plain = [_flat(piece) for piece in pieces]
        known = [piece for piece in plain if isinstance(piece, _Text)]
        if len(known) == len(plain):
            return [_word(text) for text in _unbraced(_joined(known), node, self._source)]
        prefix = next((i for i, piece in enumerate(plain) if not isinstance(piece, _Text)), 0)
        start = _joined(known[:prefix])
        if any(regex.search(r"[*?\[]", piece.mask) for piece in known) or _TILDE.search(start.mask):
            raise UnclearError(f"{self._shown(node)!r} mixes a pattern with a value that is not known: write it out")
        single = all(piece.quoted for piece in plain if isinstance(piece, _Hole))
        word = Word(text=self._shown(node), kind=WordKind.DYNAMIC, single=single, prefix=start.text)
        return [replace(word, parts=_parts(plain))]


@dataclass(frozen=True, slots=True)
class _Text:
    """Literal text; ``mask`` has the same length, with `_HIDDEN` for every quoted character."""

    text: str
    mask: str

    def __add__(self, other: _Text) -> _Text:
        return _Text(self.text + other.text, self.mask + other.mask)

    def __getitem__(self, part: slice) -> _Text:
        return _Text(self.text[part], self.mask[part])


@dataclass(frozen=True, slots=True)
class _Hole:
    """An expansion: the words that it stands for when it is alone, and whether it is quoted."""

    words: tuple[Word, ...]
    quoted: bool


_Piece = _Text | _Hole


def _parts(pieces: list[_Piece] | list[_Text]) -> tuple[Part, ...]:
    """Return the parts from which a word can be rendered again, or () where it cannot."""
    parts: list[Part] = []
    for piece in pieces:
        own = _literal_parts(piece) if isinstance(piece, _Text) else _hole_parts(piece)
        if not own and (not isinstance(piece, _Text) or piece.text):
            return ()
        parts += own
    return tuple(parts)


def _hole_parts(hole: _Hole) -> tuple[Part, ...]:
    if len(hole.words) != 1:
        return ()
    word = hole.words[0]
    return word.parts or ((Literal(word.text),) if word.constant else ())


def _literal_parts(literal: _Text) -> tuple[Part, ...]:
    """Return text and wildcards; a tilde at the beginning is the home directory, elsewhere it is ambiguous."""
    parts: list[Part] = []
    mask, text = literal.mask, literal.text
    if mask[:1] == "~" and text[1:2] in ("", "/"):
        parts, mask, text = [Variable("HOME")], mask[1:], text[1:]
    if _TILDE.search(mask):
        return ()
    plain = ""
    for found in _WILDCARDS.finditer(mask):
        if found[0] == "[" and mask.rfind("]") > found.start():
            return ()  # an unusual bracket expression
        if found[1] is None:
            plain += text[found.start() : found.end()]
            continue
        parts += [Literal(plain)] if plain else []
        parts.append(Glob(found[1]))
        plain = ""
    return (*parts, Literal(plain)) if plain or not parts else tuple(parts)


def _quoted(part: Part) -> Part:
    """Return an expansion as in a context without word splitting."""
    if isinstance(part, Variable):
        return Variable(part.expression)
    return Substitution(part.block) if isinstance(part, Substitution) else part


def _referred(name: str, values: tuple[Word, ...], *, quoted: bool) -> tuple[Word, ...]:
    """Return a variable's values as words that refer to it, instead of running again what it was set from.

    Arguments of a function are not variables once it has been inlined: they keep the words that they were given as.
    """
    if name == "@" or name.isdigit():
        keep = quoted or all(value.constant for value in values)
        return tuple(value if keep else replace(value, parts=tuple(map(_bare, value.parts))) for value in values)
    if len(values) == 1:
        return tuple(value if value.constant else replace(value, parts=(Variable(name, quoted),)) for value in values)
    return tuple(value if value.constant else replace(value, parts=()) for value in values)


def _bare(part: Part) -> Part:
    return Variable(part.expression, quoted=False) if isinstance(part, Variable) else part


def _flat(piece: _Piece) -> _Piece:
    """Turn an expansion that is one known text into that text."""
    if isinstance(piece, _Hole) and not piece.words:
        return quoted_text("")
    if isinstance(piece, _Hole) and len(piece.words) == 1 and piece.words[0].constant:
        return quoted_text(piece.words[0].text)
    return piece


def _joined(pieces: list[_Piece] | list[_Text]) -> _Text:
    texts = [piece for piece in pieces if isinstance(piece, _Text)]
    return _Text("".join(piece.text for piece in texts), "".join(piece.mask for piece in texts))


def _unquoted(text: str) -> _Text:
    """Remove the backslashes from an unquoted word; the characters after them are quoted."""
    parts = _BACKSLASHES.finditer(text)
    return _joined([quoted_text(part[1]) if part[1] else _Text(part[2], part[2]) for part in parts])


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


def _unbraced(literal: _Text, node: Node, source: bytes) -> list[_Text]:
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
        choices = [quoted_text(str(number)) for number in numbers]
    elif "," in inside:
        stops = [found.start(2) - 1, *(i for i in range(*found.span(2)) if mask[i] == ","), found.end(2)]
        choices = [literal[a + 1 : b] for a, b in pairwise(stops)]
    elif ".." in inside:
        raise unclear(node, source)
    else:
        return [literal]
    return [b + c + a for b, c, a in product([before], choices, [after])]


def _word(literal: _Text) -> Word:
    parts = _parts([literal])
    if _TILDE.search(literal.mask):
        single = not regex.search(r"[*?\[]", literal.mask)
        return Word(text=literal.text, kind=WordKind.DYNAMIC, single=single, parts=parts)
    if not regex.search(r"[*?\[]", literal.mask):
        return Word(text=literal.text)
    masked = zip(literal.text, literal.mask, strict=True)
    pattern = "".join(f"[{c}]" if m == _HIDDEN and c in "*?[" else c for c, m in masked)
    # ``[n]ginx`` matches one name at most, and otherwise stays as it is: one argument in any case.
    single = bool(regex.fullmatch(r"(?:[^*?\[]|\[\w\])*", literal.mask))
    return Word(text=pattern, kind=WordKind.PATTERN, single=single, parts=parts)


def _split(value: Word) -> list[Word]:
    """Split the unquoted use of a variable as bash does with the usual IFS; globs in it are expanded."""
    if value.kind is WordKind.PATTERN:
        return [value]
    if not value.constant or value.text != value.text.strip():  # a blank at an end would separate it from its neighbour
        return [replace(value, kind=WordKind.DYNAMIC, single=False)]
    return [_word(_Text(part, regex.sub(r"[~]", _HIDDEN, part))) for part in value.text.split()]
