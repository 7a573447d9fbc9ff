r"""Refusal: what is no fact about a service and is therefore not stored, although a report calls it a memory.

A memory stands in the prompts of later sessions, so whoever gets a sentence into one speaks to all of them. Refused
are: instructions to the reader (orders, rules that are to be ignored, roles), commands, addresses to fetch,
secrets, and markup that imitates a prompt. A fact may name a host, a path, a plain URL, a command's name, and the words
"restart", "token" or "password": what counts is whether it says how something *is* or what somebody is to *do*.

No list of words is complete. This one keeps out what is blunt; what is worded as a fact still has to come out of
quarantine. Each expression runs in linear time (google-re2).
"""

# ruff: noqa: RUF001 - signs of other scripts that look like Latin ones

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from claudeops.domain.memories.instructions import INSTRUCTIONS
from claudeops.text import regex
from claudeops.text.redact import MASK, Redactor

QUOTE_LENGTH: Final = 120  # characters of a refused memory that its event repeats
_READ_LENGTH: Final = 4000  # characters of a text that are looked at; prompts show fewer


class RefusalReason(StrEnum):
    """What a refused text is."""

    MARKUP = "markup"
    SECRET = "secret"  # noqa: S105 - a kind of text
    COMMAND = "command"
    ADDRESS = "address"
    INSTRUCTION = "instruction"


_SENTENCES: Final = {
    RefusalReason.MARKUP: "imitates the markup of a prompt",
    RefusalReason.SECRET: "seems to hold a secret",
    RefusalReason.COMMAND: "holds a command to run",
    RefusalReason.ADDRESS: "holds an address to fetch",
    RefusalReason.INSTRUCTION: "gives an instruction instead of stating a fact",
}


class MemoryRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a text is not stored."""

    reason: RefusalReason
    quote: str  # one line of bounded length, without secrets

    @property
    def sentence(self) -> str:
        """The reason, to follow "because it"."""
        return _SENTENCES[self.reason]


def refusal_of(*texts: str) -> MemoryRefusal | None:
    """Return why texts that belong together are refused, or ``None``."""
    for text in texts:
        seen = _visible(text)
        for reason, refuses in _RULES:
            if refuses(seen):
                return MemoryRefusal(reason=reason, quote=_quote(seen, reason))
    return None


def _visible(text: str) -> str:
    """Return a text as a reader sees it: no invisible characters, every letter in its plain form."""
    plain = unicodedata.normalize("NFKC", text[:_READ_LENGTH])
    kept = (char for char in plain if char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co"})
    return "".join(kept).strip()


def _quote(text: str, reason: RefusalReason) -> str:
    masked = _shapes().text(text)
    if reason is RefusalReason.SECRET:
        masked = _up_to_the_secret(masked)
    line = " ".join(masked.replace("<", "(").replace(">", ")").split())
    return line if len(line) <= QUOTE_LENGTH else f"{line[:QUOTE_LENGTH]} …"


# --- markup -------------------------------------------------------------------------------------------

_MARKUP: Final = regex.Pattern(
    r"(?im)<[\s/]*(?:untrusted|operator)\W?(?:data|request)|</?\s*(?:system|user|assistant|human|instructions?|prompt"
    r"|tool[-_ ]?(?:use|call|result)s?|function[-_ ]?\w+|antml\b[^>]*|invoke|parameter|important)\b[^>]*>"
    r"|<\|[^|>]{1,40}\|>|\[/?INST\]|<</?SYS>>|^\s*#{1,6}\s|```|\[(?:EVENT|MEMORY|COOLDOWN):"
    r"|^\s*(?:system|assistant|human|user|developer|operator)\s*:"
)

# --- secrets ------------------------------------------------------------------------------------------

_SECRETS_NAME: Final = (
    r"(?:pass(?:word|wd|phrase|wort|code)|kennwort|pwd|secret(?:[-_ ]key)?|(?:[a-z]+[-_ ])?token|api[-_ ]?key|apikey"
    r"|access[-_ ]?key|private[-_ ]?key|license[-_ ]?key|credentials?|pin|mot de passe|contrase(?:ñ|n)a|clave|senha"
    r"|пароль|密码|口令|パスワード|비밀번호)"
)
_ASSIGNED: Final = regex.Pattern(rf"(?i){_SECRETS_NAME}\w{{0,3}}\s*(?:=>?|＝)\s*[\"'`]?\S{{3,}}")
_STATED: Final = regex.Pattern(
    rf"(?i){_SECRETS_NAME}(?:\s+(?:for|of|von|für|de|del|pour|to)\s+\S+(?:\s+\S+)?)?"
    r"\s*(?:\bis\b|\bare\b|\bwas\b|\bist\b|\blautet\b|\best\b|\bes\b|\bé\b|:|：|是|为|は|는|—|-\s)\s*"
    r"(?P<value>[\"'`“«]?[^\s]{3,})(?P<rest>[^\n]*)"
)
_PLAIN_VALUE: Final = regex.Pattern(r"[a-zà-öø-ÿ]+(?:-[a-zà-öø-ÿ]+)?[,;.]?")
_ABOUT_SECRETS: Final = (
    "stored kept held rotated refreshed required needed set read valid invalid missing empty expired renewed managed"
    " provided generated checked created shared signed unset used long short part not never only the per from with"
    " wrong correct known unknown asked encrypted hashed issued mounted injected optional mandatory hourly daily weekly"
    " monthly yearly gespeichert nötig nicht abgelaufen there here that this these what when where"
)
_NO_VALUES: Final = frozenset(_ABOUT_SECRETS.split())
_LONG_TOKEN: Final = regex.Pattern(r"[A-Za-z0-9+_=]{24,}")
_HEX: Final = regex.Pattern(r"(?i)[0-9a-f]{32,}")
_DIGEST: Final = regex.Pattern(r"(?i)sha(?:256|512|1):[0-9a-f]+")
_RANDOM_BITS: Final = 3.5  # entropy of a character from where on a long token is no word


def _holds_a_secret(text: str) -> bool:
    if MASK in text or _ASSIGNED.search(text) is not None or _shapes().text(text) != text:
        return True
    if any(_is_value(found["value"], found["rest"]) for found in _STATED.finditer(text)):
        return True
    rest = _DIGEST.sub(" ", text)
    return _HEX.search(rest) is not None or any(_is_random(found[0]) for found in _LONG_TOKEN.finditer(rest))


def _is_value(value: str, rest: str) -> bool:
    """Tell whether what follows "the password is" is one, and not the rest of a sentence about it."""
    word = value.lower().rstrip(".,;!")
    if word in _NO_VALUES:
        return False
    if _PLAIN_VALUE.fullmatch(value) is None:
        return True  # quotes, digits, capitals or signs
    return not rest.strip() and not word.endswith(("ed", "t", "ly"))


def _is_random(token: str) -> bool:
    classes = (str.islower, str.isupper, str.isdigit)
    if not all(any(map(kind, token)) for kind in classes):
        return False
    counts = Counter(token)
    bits = -sum(count / len(token) * math.log2(count / len(token)) for count in counts.values())
    return bits >= _RANDOM_BITS


def _up_to_the_secret(text: str) -> str:
    word = regex.search(rf"(?i){_SECRETS_NAME}", text)
    before = MASK if word is None else f"{text[: word.end()]} {MASK}"
    return _LONG_TOKEN.sub(MASK, _HEX.sub(MASK, before))


@lru_cache(maxsize=1)
def _shapes() -> Redactor:
    return Redactor(())


# --- commands -----------------------------------------------------------------------------------------

_COMMAND: Final = regex.Pattern(
    r"(?im)\|\s*(?:sudo\s+)?(?:ba|z|da|k|fi)?sh\b|\|\s*(?:python|perl|ruby|node)\d*\b|\b(?:ba|z|da|k)?sh\s+-[a-z]*c\b"
    r"|\b(?:python|perl|ruby|node|php)[0-9.]*\s+-[a-z]\b|\beval\s*[\"'$`(]|\$\(|\$\{|&&|;\s*(?:rm|curl|wget|sh|bash)\b"
    r"|\b(?:curl|wget)\s+(?:-\S+\s+\S*\s*)*(?:https?://|\S+\.\S+/|\S+:\d+)|\b(?:curl|wget)\s+--?\w"
    r"|\brm\s+-[a-z]*[rf]|\bsudo\s+[a-z./]|\bchmod\s+[-+0-7ugoa]+|\bchown\s+\S+:\S*|\bmkfs|\bdd\s+(?:if|of)="
    r"|\bn(?:c|cat)\s+-|\bbase64\s+-d|\bcrontab\s+-|\biptables\s+-|\bssh\s+(?:-\S+|\S+@\S+\s+\S+)|\bscp\s+\S+\s+\S+:"
    r"|\bnohup\s|>\s*/(?:dev|etc|root|home|tmp)/|\b(?:pip3?|npm|apt(?:-get)?|apk|yum|dnf|brew|gem)\s+install\b"
    r"|\b(?:drop|truncate)\s+(?:table|database)\b|\bdelete\s+from\s+\w|\bpowershell\b|\binvoke-\w+"
)
_TOOL_CALL: Final = regex.Pattern(
    r"(?i)\b(?:docker(?:[ -]compose)?|podman|nerdctl|kubectl|helm|systemctl|git|terraform|ansible\S*|redis-cli"
    r"|pm2|supervisorctl)\s+(?:-\S+\s+)*(?:run|exec|restart|stop|start|rm|rmi|kill|prune|down|up|apply|delete|patch"
    r"|scale|edit|enable|disable|mask|unmask|push|clone|install|uninstall|upgrade|destroy|rollout|drain|flushall"
    r"|reload)\b\s*(?P<next>\S*)"
)
_IN_SENTENCES: Final = (
    "of takes took is was are and or needs need in on at by can may does did has had alone helps helped clears cleared"
    " ends ended then it for while after before when if because time times which that to with without once often"
)
_AFTER_A_NAME: Final = frozenset(_IN_SENTENCES.split())
"""Words after a command's name that show that the name stands in a sentence."""


def _commands(text: str) -> bool:
    if _COMMAND.search(text) is not None:
        return True
    following = (found["next"].strip("`'\".,;:)").lower() for found in _TOOL_CALL.finditer(text))
    return any(word and word not in _AFTER_A_NAME for word in following)


# --- addresses ----------------------------------------------------------------------------------------

_FETCH: Final = regex.Pattern(
    r"(?i)\b(?:fetch|download|get|open|visit|load|read|follow|see|browse|go|post|send|upload|submit|import|call"
    r"|lade|öffne|hole|télécharge\w*|descarga|baixe|скачай|открой)\b[^.\n]{0,60}(?:https?|ftp)://"
    r"|(?:下载|访问|打开|获取)[^\n]{0,20}https?://"
)
_TELLING_URL: Final = regex.Pattern(
    r"(?i)https?://[^\s/]*@|https?://\S*[?#]\S|https?://\S+\.(?:sh|ps1|py|exe|bat|js|zip|tgz|tar|gz|deb|rpm)\b"
    r"|\b(?:ftp|sftp|file|data|javascript|gopher|ws|wss|ssh|git\+\w+|tcp)://?\S|\bdata:\w+/\w+|\bjavascript:|!?\[[^\]]*\]\("
)


def _sends_somewhere(text: str) -> bool:
    return _FETCH.search(text) is not None or _TELLING_URL.search(text) is not None


# --- the order in which a text is judged ---------------------------------------------------------------

_RULES: Final[tuple[tuple[RefusalReason, Callable[[str], object]], ...]] = (
    (RefusalReason.MARKUP, _MARKUP.search),
    (RefusalReason.SECRET, _holds_a_secret),
    (RefusalReason.COMMAND, _commands),
    (RefusalReason.ADDRESS, _sends_somewhere),
    (RefusalReason.INSTRUCTION, INSTRUCTIONS.search),
)
