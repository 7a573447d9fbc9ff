"""Instructions: the table of what is no fact but an order to whoever reads a memory, in several languages."""

# ruff: noqa: RUF001 - letters of other scripts that look like Latin ones

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from claudeops.text import regex

_VERBS: Final = (
    "add allow answer append approve assume change check copy delete disable download email enable escalate execute"
    " fetch follow forget forward grant ignore include install invoke kill log mark notify obey open output post"
    " pretend print put read reboot redeploy remember remove reply report respond restart reveal run say send set show"
    " skip start stop store tell treat trust upload use verify write accept call"
)
_VERB: Final = f"(?:{'|'.join(_VERBS.split())})"
_DONE: Final = rf"(?:{_VERB}(?:ing)?|alert\w*|mention\w*|escalat\w*|reporting|checking)"
_ROMANCE_RULE: Final = r"(?:reglas?|instrucciones|instruções|regras|istruzioni|regole)"
_OBJECTS: Final = (
    "the a an all any every each this that these it its them us me my your no everything nothing to with as healthy"
)
_OBJECT: Final = rf"(?:(?:{'|'.join(_OBJECTS.split())})(?:\s|$)|https?:|`|/)"
_BEFORE_A_VERB: Final = r"(?:always|never|please|first|next|then|must|now|also|instead|immediately|just|simply|and)"
_RULE: Final = (
    r"(?:rules?|instructions?|prompts?|polic(?:y|ies)|guidelines?|guardrails?|restrictions?|constraints?|gate|task"
    r"|orders?|safety|directives?|limits?|protocols?|system message|context)"
)
_YOURS: Final = (
    r"(?:task|job|goal|rules?|tier|policy|tools?|next|report|answer|summary|role|prompt|memor\w+|session|output"
    r"|instructions?)"
)
_READER: Final = (
    r"(?:the|any|every|each|all|future|later|next|other|this)\s+"
    r"(?:ai|models?|assistants?|agents?|sessions?|tiers?|llms?|bots?)"
)
_MUST: Final = (
    r"(?:must|should|shall|has to|have to|needs? to|may|can|will"
    r"|(?:is|are) (?:allowed|permitted|required|free|authori[sz]ed))"
)
_GONE: Final = "(?:no longer|void|obsolete|suspended)"
_GRANTED: Final = "(?:granted|given|not needed)"

_TABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "rules are to be dropped": (
        rf"\b(?:ignore|disregard|forget|override|bypass|circumvent|skip|drop|neglect)\b(?:\s+\S+){{0,5}}?\s+{_RULE}\b",
        rf"\b(?:new|updated|real|actual|secret|hidden|following)\s+(?:system\s+)?{_RULE}\s*[:=]",
        rf"\b(?:prior|above|earlier|your|these|all)\s+{_RULE}\s+(?:\S+\s+){{0,3}}{_GONE}\b",
        r"\bsystem prompt\b|\bjailbr(?:eak|oken)\b|\bdeveloper mode\b|\bdo anything now\b|\bprompt injection\b",
    ),
    "the reader gets a role": (
        r"\byou(?:'re| are| were)\b|\b(?:act|behave|respond|answer) as\b|\bpretend (?:to|that|you)\b|\brole-?play\b",
        r"\bas an? (?:ai|assistant|llm|language model|agent)\b|\bimagine (?:that )?you\b",
    ),
    "the reader is addressed": (
        r"\byou(?:'ll)?\s+(?:must|should|shall|have|need|can|could|may|will|ought|are)\b",
        rf"\byour {_YOURS}\b",
        rf"\b{_BEFORE_A_VERB}\s*,?\s+{_VERB}\s+{_OBJECT}",
        rf"(?:^|[.!?:;]\s+|\bto: )(?:do\s+not\s+|don't\s+|never\s+|always\s+|please\s+)?{_VERB}\s+{_OBJECT}",
        rf"\b(?:do not|don't|never|no need to|refrain from|stop|avoid)\s+(?:ever\s+)?{_DONE}\s+\S",
        r"\b(?:report|mark|treat|consider)\s+(?:\S+\s+){0,4}(?:as\s+)?(?:healthy|fine|ok|okay|up|resolved)\b",
        rf"\b{_READER}\s+(?:\S+\s+)?{_MUST}\b",
        rf"\btier [1-9] {_MUST}\b|\b(?:claude|assistant|chatgpt|gpt|agent|ai|model)\s*[,:]\s*\w",
        r"\bfrom now on\b.{0,20}\b(?:you|always|never|do|ignore|report|treat)\b",
        r"\bdenied calls?\b.{0,30}\b(?:retry|repeat|again)\b|\bpre-?approved\b",
        rf"\b(?:permission|approval|authori[sz]ation)\s+(?:is|was|has been)\s+(?:hereby\s+)?{_GRANTED}\b",
    ),
    "German": (
        r"\b(?:ignorier\w*|vergiss)\b.{0,40}\b(?:regeln?|anweisung\w*|vorgaben?|richtlinien?)\b",
        r"\bdu (?:musst|sollst|bist jetzt|darfst)\b|\bsie müssen\b|\bführe\b.{0,40}\baus\b|\bmelde\b.{0,40}\bals\b",
    ),
    "French": (
        r"\b(?:ignore[zrs]?|oublie[zr]?)\b.{0,40}\b(?:règles?|instructions?|consignes?)\b",
        r"\b(?:tu|vous) (?:dois|devez|es maintenant|êtes maintenant)\b|\bexécute[zr]?\s+(?:la|le|les|cette|ce)\b",
    ),
    "Spanish, Portuguese, Italian": (
        rf"\b(?:ignora|ignore|ignorar|olvida|dimentica)\b.{{0,40}}\b{_ROMANCE_RULE}\b",
        r"\b(?:debes|tienes que|ejecuta|devi|esegui|você deve|execute o)\b",
    ),
    "Russian": (
        r"(?:игнорируй|забудь|не обращай внимания на).{0,40}(?:правил|инструкц|указани)",
        r"ты (?:должен|теперь)|выполни(?:те)?\s",
    ),
    "Chinese, Japanese, Korean": (
        r"(?:忽略|无视|忘记|不要遵守).{0,20}(?:规则|指令|指示|提示|说明)|你(?:必须|现在是|应该)|请(?:执行|运行)",
        r"(?:指示|ルール|命令|規則).{0,6}(?:無視|忘れ)|(?:실행|무시)(?:해|하세요|하라)|(?:규칙|지시|명령).{0,6}무시",
    ),
    "Polish, Turkish, Dutch": (
        r"\bzignoruj\b.{0,40}\b(?:zasady|instrukcje|polecenia)\b|\b(?:kuralları|talimatları)\b.{0,20}\byok say",
        r"\bnegeer\b.{0,40}\b(?:regels|instructies)\b",
    ),
}
"""Expressions, by what an instruction does, or by its language."""

INSTRUCTIONS: Final = regex.Pattern(
    "(?im)" + "|".join(f"(?:{expression})" for expressions in _TABLE.values() for expression in expressions)
)
"""Matches a text that instructs its reader."""
