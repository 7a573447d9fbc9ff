r"""The forms of a tier as a POSIX script, for ``command=`` in another host's ``authorized_keys``.

On another host no cell holds a session, so what the gate misjudges runs there with all rights of the user. The script
is a wall of that host's own: it takes ``SSH_ORIGINAL_COMMAND`` apart into simple commands, whose words the gate always
writes in single quotes, and runs the text only if each of them is one of the tier's forms. Limits, services and the
secrets behind a path are not known there: the user should be one that may only read.

awk turns each simple command into a line of words between tabs; a form is an expression for such a line (POSIX ERE).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Final

from claudeops.policy.never import PROTECTED_UNITS
from claudeops.policy.places import SECRET_FILES, SECRET_NAMES, SECRET_TREES
from claudeops.policy.policy import TierPolicy
from claudeops.policy.programs.find import TESTS
from claudeops.policy.programs.scripts import TEMPLATE_FIELDS, TEMPLATE_GUARDED, TEMPLATE_INNER
from claudeops.policy.rules import CommandRule, Option, option_table
from claudeops.policy.shell.render import BUILTINS
from claudeops.text import regex

_T: Final = "\t"
_AT: Final = "\0"  # in the place of an ``@`` that stands for itself
_ANY: Final = "[^\t]*"
_PATH: Final = "/(d?|de|dev(/null)?|([^d\t/]|d[^e\t]|de[^v\t]|dev[^/\t])[^\t]*)"  # no device
_ARCHIVE: Final = _PATH.replace("\t", "\t:*?[\\")
_PLAIN: Final = "[A-Za-z0-9_.,:@%/=+*][A-Za-z0-9_.,:@%/=+*-]*"

_NAME_HERE: Final = "[a-z]([a-z0-9-]*[a-z0-9])?"
_HERE: Final = (
    rf"({_NAME_HERE}|(127|10)(\.[0-9]+){{3}}|192\.168(\.[0-9]+){{2}}|172\.(1[6-9]|2[0-9]|3[01])(\.[0-9]+){{2}})"
)
_LINE: Final = r"([0-9]+|[$]|/[^/\[\\{}@]*/)"
_SED: Final = "|".join(
    (
        *(rf"s{d}[^{d}\[\\@]*{d}[^{d}\[\\@]*{d}[gpI0-9]*".replace("@", _T) for d in "/,#:"),
        rf"{_LINE}(,{_LINE})?[pdq]".replace("@", _T),
    )
)
_KINDS: Final = {
    **dict.fromkeys(("any", "text", "glob"), _ANY),
    "jq": "[^-\t][^\t]*",
    "size": "[+-]?[0-9]+[A-Za-z]*",
    **dict.fromkeys(("listing", "directory", "project"), _PATH),
    **dict.fromkeys(("name", "container", "service", "swarm", "stack", "unit", "resource", "duration"), _PLAIN),
    **dict.fromkeys(("workload", "workloadtype", "workloadname", "pod", "podref", "release"), _PLAIN),
    "file": f"({_PATH}|-)",
    "archive": _ARCHIVE,
    "format": "[+][^\t]*",
    "word": "[^ \t-][^ \t]*",
    "properties": "[A-Za-z,]+",
    "ports": "[0-9]{1,5}(-[0-9]{1,5})?",
    "device": "/dev/[A-Za-z0-9_/-]+",
    "sink": "(-|/dev/null|/dev/stdout|/dev/stderr)",
    "writeout": "([^@%\t][^%\t]*)?(%[{][a-z_]+[}][^%\t]*)*",
    "header": "(Accept|Content-Type|User-Agent|Cache-Control):[^\t]*",
    "url": f"(https?://)?{_HERE}(:[0-9]+)?(/[^\t]*)?",
    "host": _HERE,
    "hostport": f"{_HERE}:[0-9]+",
    "target": f"([a-z_][a-z0-9_-]*@)?{_HERE}",
    "dig": f"(@?{_HERE}|[+][a-z]+(=[0-9]+)?|[A-Za-z]+)",
    "sleep": "[1-5]?[0-9]",
    "sed": f"({_SED})",
}
"""Values by their kind; hosts are plain names and private addresses, so that nothing that is read is sent away.

What has a kind that no expression can hold to what only looks is left out: an option alone, an argument with its rule.
"""

_OUTPUT: Final = "one:wide,name"
"""The forms in which objects of a cluster are printed here: which others hold no environment only the gate knows."""

_CHANGED: Final = "((try-)?restart|start|stop|reload|reload-or-restart|update|scale|up|pull)"
_REFUSED: Final = (
    "@(sh|bash|eval|exec|command)@",
    "(^|@|/)ps@.*environ",
    r"(kubectl|oc)@.*[@,/=][^@]*secret",
    "systemctl@.*(environ|credential)",
    "(grep|zgrep|egrep|fgrep)@(.*@)?(-r|--recursive)",
    "(^|@|/)rg@",
    r"(^|@|/)jq@.*(ENV|env|import|include|input_filename|__prog|modulemeta|get_search_list|[$])",
    *(r"/\.\.?(/|@|$)", "[@=]/[^@]*//", "[@=]//"),
    *(f"@{_CHANGED}@(.*@)?([^@]*[-_])?claudeops", f"@(rc-)?service@([^@]*[-_])?claudeops[^@]*@{_CHANGED}(@|$)"),
)
"""What the forms would let through and only the gate can judge; ``@`` stands for a tab."""

_SPECIAL: Final = regex.Pattern(r"([\\.\[\](){}*+?^$|])")
_CLASS: Final = regex.Pattern(r"\\([dwsrn./])|\\x(20)|[^\\\]]")
_OUTSIDE: Final = regex.Pattern(r"\(\?:|\\[dw.+*?(){}|^$/\\-]|\\x20|\.|[^\\\[]")
_CLASSES: Final = {"d": "0-9", "w": "A-Za-z0-9_", "s": " ", "r": "", "n": "", ".": ".", "/": "/"}
_PIECE: Final = regex.Pattern(r"\[\^?\]?[^\]]*\]|\\.|.")
_TAB: Final = regex.Pattern("@")
_PIECES: Final = {
    "(?:": "(",
    ".": f"[^{_T}]",
    r"\d": "[0-9]",
    r"\w": "[A-Za-z0-9_]",
    r"\/": "/",
    r"\-": "-",
    r"\x20": " ",
}
_APART: Final = frozenset({"compose", "redirects", "repository", "files"})
"""Checks of a whole command for which the gate must know more than its words."""

_FREE: Final = frozenset({"any", "text", "glob", "size"})
_TEST: Final = (
    f"({_T}!)?({_T}[^{_T}]*|{_T}-[nzefdrwxsLhbcpSugkOGNt]{_T}[^{_T}]*"
    f"|{_T}[^{_T}]*{_T}(=|==|!=|-(eq|ne|lt|le|gt|ge|nt|ot|ef)){_T}[^{_T}]*)"
)
_PS: Final = r"(\t-[eL]|\t-[opCu]\t@|\t--(forest|no-headers)|\t--ppid\t[0-9,]+|\t--(sort|cols)=@)*".replace(
    "@", r"[A-Za-z0-9_%,:=+@.-]+"
)
_SCRIPT: Final = r"""#!/bin/sh
# The commands of tier {{TIER}}, as `claudeops remote-commands` wrote them. In authorized_keys, in front of the key:
#   restrict,command="/usr/local/bin/claudeops-commands" ssh-ed25519 AAAA…
# Whatever is none of these forms is refused. Give the key to a user that may only read.
LC_ALL=C; export LC_ALL
refuse() { echo "claudeops-commands: refused: $1" >&2; exit 126; }
text=${SSH_ORIGINAL_COMMAND-}
[ -n "$text" ] || refuse 'there is no command, and no shell'
parts=$(printf '%s\n' "$text" | awk '
function fail() { bad = 1; exit 1 }
function edge() { if (substr(all, i, 1) !~ /^[ ;|)\n]?$/) fail() }
function word() { if (has) { line = line sep w; sep = "\t"; has = 0; w = "" } }
function end() { word(); if (line != "") print line; line = ""; sep = "" }
{ all = all (NR > 1 ? "\n" : "") $0 }
END {
  if (bad) exit 1
  n = length(all); i = 1
  while (i <= n) {
    c = substr(all, i, 1); rest = substr(all, i)
    if (c == "\047") {
      j = index(substr(all, i + 1), "\047"); if (!j) fail()
      q = substr(all, i + 1, j - 1); if (q ~ /[\t\n]/) fail()
      w = w q; has = 1; i += j + 1
    } else if (rest ~ /^\\[\\\047]/) { w = w substr(rest, 2, 1); has = 1; i += 2 }
    else if (match(rest, /^[0-9]?>&[0-9]/) && !has) { i += RLENGTH; edge() }
    else if (match(rest, /^[0-9]?[<>] ?\047\/dev\/null\047/) && !has) { i += RLENGTH; edge() }
    else if (c == " ") { word(); i++ }
    else if (c == ";" || c == "\n") { end(); i++ }
    else if (substr(rest, 1, 2) == "&&" || substr(rest, 1, 2) == "||") { end(); i += 2 }
    else if (c == "|") { end(); i++ }
    else if ((c == "(" || c == ")") && !has) { end(); i++ }
    else if (match(rest, /^(\{|!|if|then|else) /) && !has && line == "") { i += RLENGTH }
    else if (match(rest, /^(\}|fi)/) && !has && line == "") { i += RLENGTH; edge() }
    else if (c ~ /[A-Za-z0-9_\/.-]/) { w = w c; has = 1; i++ }
    else fail()
  }
  end()
}') || refuse 'it is not written as claudeops writes it'
forms() {
  cat <<'FORMS'
{{FORMS}}
FORMS
}
secrets() {
  cat <<'SECRETS'
{{SECRETS}}
SECRETS
}
time='[0-9]+(\.[0-9]+)?[smhd]?'
env='/usr/bin/env@--@'
sudo='((/usr/bin/)?sudo(@(-n|-u@[a-z_][a-z0-9_-]*))*@--@)'
wait="((/usr/bin/)?timeout(@-k@$time)?@$time@)"
front="^($env)?($sudo|$wait)*($env|/(usr/)?(local/)?s?bin/)?"
while IFS= read -r part; do
  plain=$(printf '%s\n' "$part" | sed -E "s#$front##")
  program=${plain%%@*}
  case $program in '' | *[!A-Za-z0-9_.[-]*) refuse "$part" ;; esac
  [ "$plain" != "$part" ] || [ "$program" = cd ] || refuse "$part"  # a bare name could be the shell's own command
  form=$(forms | awk -v p="$program " 'index($0, p) == 1 { print substr($0, length(p) + 1) }')
  [ -n "$form" ] && [ "$(printf '%s\n' "$plain" | grep -Exc -e "$form")" = 1 ] || refuse "$part"
  [ "$(printf '%s\n' "$part" | grep -Eic -e "$(secrets)")" = 0 ] || refuse "a place for secrets, or a path with .."
done <<PARTS
$parts
PARTS
exec /bin/sh -c "$text"
"""


def script(tier: TierPolicy) -> str:
    """Return the script for a tier: what it may run on other hosts, in the form in which the gate writes it."""
    # ``@`` stands for a tab in the script.
    secrets = [*_REFUSED, *_units(), *map(_secret, SECRET_NAMES), *map(_tree, (*SECRET_TREES, *SECRET_FILES))]
    forms = "\n".join(sorted(set(_forms(tier)))).replace(r"\t", _T)
    written = _SCRIPT.replace("{{TIER}}", str(tier.number)).replace("{{SECRETS}}", "\n".join(secrets))
    return _TAB.sub(_T, written).replace(_AT, "@").replace("{{FORMS}}", forms)


def _forms(tier: TierPolicy) -> Iterator[str]:
    """Yield the expression of every form that a tier may run elsewhere."""
    yield f"cd cd{_T}{_PATH}"
    yield f"find find{_T}-P({_T}{_PATH})+{_options(_given(TESTS))}"
    for path, rules in tier.policy.book.rules.items():
        for rule in rules:
            apart = (
                rule.look == "git"
                or rule.writes
                or rule.filter
                or path in BUILTINS
                or rule.check in _APART
                or path.endswith(" describe")
            )
            if rule.tier <= tier.level and not apart and (not rule.action or rule.action in tier.action_kinds):
                rest = _rest(path, rule, _shared(path, tier))
                if rest is not None:
                    yield from (f"{program} {start}{rest}" for program, start in _starts(path, rule, tier))


def _starts(path: str, rule: CommandRule, tier: TierPolicy) -> Iterator[tuple[str, str]]:
    """Yield each name of a command's program, with the expression of the name and the subcommands."""
    book = tier.policy.book
    words = path.split(" ")
    subcommands = ""
    for depth in range(1, len(words)):
        given = _given(book.options_of(" ".join(words[:depth])), rule)
        subcommands += _options(given) + _T + _literal(words[depth])
    yield words[0], _literal(words[0]) + subcommands
    for other, name in book.aliases.items():
        if name == words[0]:
            yield other, _literal(other) + subcommands


def _shared(path: str, tier: TierPolicy) -> str:
    """Return the options of the groups above a command that may also follow it."""
    words = path.split(" ")
    above = (" ".join(words[:depth]) for depth in range(1, len(words)))
    return " ".join(tier.policy.book.options_of(each, shared=True) for each in above)


def _rest(path: str, rule: CommandRule, shared: str) -> str | None:
    """Return the expression of what follows a command's name; None: there is none that is as narrow as the rule."""
    if rule.reading == "ps":
        return _PS
    options = _demanded(rule, _given(f"{rule.options} {shared}", rule))
    if rule.check == "test":
        return _TEST + (f"{_T}\\]" if path == "[" else "")
    dashes = rule.dashes and rule.reading != "words"
    arguments, least = "", 0
    for kind in rule.arguments.split():
        repeat = kind[-1] if kind[-1] in "?*+" else ""
        plain = kind.removesuffix(repeat) if repeat else kind
        value = _value(plain)
        if value is None or not (dashes or rule.reading == "words" or _no_option(plain, value)):
            return None
        arguments += f"({_T}{value}){repeat}"
        least += repeat in {"", "+"}
    if options is None:
        return None
    written = "".join(_T + _literal(word) for word in rule.always.split()) + options
    if not arguments:
        return written
    return f"{written}({_T + '--' if dashes else ''}{arguments})" + ("" if least else "?")


def _given(options: str, rule: CommandRule | None = None) -> dict[str, str]:
    """Return the expression of each option as it is written, by its first name; without those that have none."""
    found = {option.names[0]: _option(option, rule) for option in option_table(options).values()}
    return {name: expression for name, expression in found.items() if expression is not None}


def _option(option: Option, rule: CommandRule | None) -> str | None:
    name = _literal(option.names[0])
    if option.kind is None:
        return name
    cluster = rule is not None and rule.check == "cluster" and "--output" in option.names
    value, long = _value(_OUTPUT if cluster else option.kind), option.names[0].startswith("--")
    if (
        value is None
        or option.several
        or (rule is not None and rule.check == "cluster" and "--sort-by" in option.names)
    ):
        return None
    if option.attached:
        return f"{name}({'=' if long else ''}{value})?"
    return f"{name}={value}" if long and (rule is None or rule.attached) else f"{name}{_T}{value}"


def _options(given: Mapping[str, str]) -> str:
    return f"({'|'.join(_T + each for each in given.values())})*" if given else ""


def _demanded(rule: CommandRule, given: Mapping[str, str]) -> str | None:
    """Return the expression of options in any order among which are those that a rule demands."""
    always = {word.partition("=")[0] for word in rule.always.split()}
    table = option_table(rule.options)
    demanded = []
    for needed in (*rule.required.split(), *rule.first.split()):
        names = {table[name].names[0] for name in needed.split("|") if name in table}
        if not names & always:
            demanded.append("|".join(_T + given[name] for name in sorted(names) if name in given))
    if not all(demanded):
        return None
    free = _options(given)
    orders = ("".join(f"({one}){free}" for one in order) for order in permutations(demanded))
    return free + (f"({'|'.join(orders)})" if demanded else "")


def _value(kind: str) -> str | None:
    """Return the expression of a value of a kind, or None."""
    name, _, parameter = kind.partition(":")
    match name:
        case "template":
            return _template()
        case "one":
            return f"({'|'.join(map(_literal, parameter.split(',')))})"
        case "re":
            found = _posix(parameter)
            return None if found is None else f"({found})"
        case "int":
            low, _, high = parameter.rpartition("-")
            return f"{'[+]' if low else '[+-]'}?[0-9]{{1,{len(high) or 9}}}"
        case _:
            return _KINDS.get(name)


def _no_option(kind: str, value: str) -> bool:
    """Whether no value of a kind begins with a dash; ``-`` alone is no option."""
    name = kind.partition(":")[0]
    if name not in {"re", "one", "int"}:
        return name not in _FREE
    before, rest = "|", value
    while (found := _PIECE.match(rest)) is not None:
        piece, rest = found[0], rest[found.end() :]
        inside = piece[1:-1].removeprefix("^")
        dash = "-" in {inside[:1], inside[-1:]} if piece[0] == "[" else piece == "-"
        if dash != piece.startswith("[^") and not (before.isalnum() or before[-1] in "]+/_.:="):
            return False
        before = piece
    return not rest


def _template() -> str:
    """Return the expression of docker's templates: text, and fields that hold no environment."""
    plain = "|".join(sorted(TEMPLATE_FIELDS - TEMPLATE_GUARDED))
    inner, guarded = "|".join(sorted(TEMPLATE_INNER)), "|".join(sorted(TEMPLATE_GUARDED))
    field = rf"(\.({plain})|\.({guarded})\.({inner}))(\.[A-Za-z]+)*"
    return rf"([^{{}}\tjJpPtT\{{][^{{}}\t]*)?(\{{\{{ ?{field} ?\}}\}}[^{{}}\t]*)+"


def _posix(expression: str) -> str | None:
    """Return an expression of google-re2 as one of POSIX that stays in a word; None where that is not sure."""
    expression = expression.removeprefix("(?s)")
    written, at, ignoring = "", 0, [False]
    while at < len(expression):
        if expression[at] == "[":
            end = at + 1 + (expression[at + 1 : at + 2] == "^")
            inside = ""
            while (found := _CLASS.match(expression[end:])) is not None:
                inside += found[0] if found[0][0] != "\\" else _CLASSES.get(found[1] or "", " ")
                end += found.end()
            negated = expression[at + 1] == "^"
            if expression[end : end + 1] != "]" or ignoring[-1] or "[" in inside or not (inside or negated):
                return None
            written += f"[^{_T}{inside}]" if negated else f"[{inside}]"
            at = end + 1
            continue
        if expression.startswith("(?i:", at):
            piece, at, ignore = "(?:", at + 4, True
        else:
            found = _OUTSIDE.match(expression[at:])
            if found is None or (expression.startswith("(?", at) and found[0] != "(?:"):
                return None
            piece, at, ignore = found[0], at + found.end(), ignoring[-1]
        if piece == "?" and written[-1:] in {"*", "+", "?", "}"}:
            return None
        if piece in {"(", "(?:"}:
            ignoring.append(ignore)
        elif piece == ")":
            ignoring.pop()
        written += (
            f"[{piece.upper()}{piece.lower()}]" if ignoring[-1] and piece.isalpha() else _PIECES.get(piece, piece)
        )
    return written


def _units() -> Iterator[str]:
    """Yield the expressions of a change of a unit that is never changed; ``@`` stands for a tab."""
    for pattern, _reason in PROTECTED_UNITS:
        unit = _posix(pattern.expression)
        if unit is None:
            raise AssertionError(pattern.expression)  # a unit would be without protection
        unit = unit.replace("@", _AT)
        yield f"@{_CHANGED}@(.*@)?({unit})([.]service)?(@|$)"
        yield f"@(rc-)?service@({unit})([.]service)?@{_CHANGED}(@|$)"


def _secret(name: str) -> str:
    """Return the expression of a path that holds a secret name, or a copy of it; ``@`` stands for a tab."""
    return f"[@=]/([^@]*/)?{_glob(name)}([~#._-][^@/]*)?(/[^@]*)?(@|$)"


def _tree(place: str) -> str:
    """Return the expression of a secret place and what is below it; of ``/proc`` some files are none."""
    if place in {"/proc", "/dev"}:  # no path of a form is below /dev
        return "[@=]/proc/(self|thread-self|[0-9]+|k[a-z]+)(/[^@]*)?(@|$)"
    return f"[@=]{_glob(place)}(/[^@]*)?(@|$)"


def _glob(pattern: str) -> str:
    return "[^@/]*".join(map(_literal, pattern.split("*")))


def _literal(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[1]}", text)
