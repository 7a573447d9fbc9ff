"""The words of prohibitions: which forbid, which name an action, and which are no part of a service's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from claudeops.domain.estate.words import word_set

FORBIDDING: Final = word_set("never no not cannot dont donts don'ts")
"""Each alone forbids, as does whatever ends with "n't"."""

WITH_AN_ACTION: Final = word_set("avoid nobody nothing none neither nor")
"""These forbid where an action is named beside them."""

CLOSING: Final = word_set("forbidden prohibited banned verboten")
PHRASES: Final = ("hands off", "off limits", "keep away", "stay away")
COMPOUNDS: Final = frozenset(PHRASES) | word_set("ask first|ask before|leave alone|never ever", separator="|")
"""These are read with a hyphen or underscore too: ``hands-off``."""

BARS: Final = word_set("⛔ 🚫 🛑 🛇 ⊘ 🚷")
"""Each alone forbids."""

CROSSES: Final = word_set("❌ ❎ ✗ ✘ ✕ ✖")
"""These forbid beside an action, or where nothing else stands."""

SIGNS: Final = BARS | CROSSES
REFUSALS: Final = SIGNS | word_set("☐|☒|⬜|×|[ ]|[]|false|ask", separator="|")  # noqa: RUF001 - a cross as people type it
"""What says "no" below the name of an action."""

VERBS: Final = (
    "restart reboot bounce recycle stop kill reload shutdown halt terminate cycle poweroff redeploy deploy rollout "
    "rollback upgrade recreate reinstall rebuild downgrade touch remediate intervene disturb interfere tamper mess"
)
LOOSE_VERBS: Final = "change modify alter repair fix update release scale act"
"""Verbs of many other things too: "never change the DNS" is about no service, unless it names one."""

NOUNS: Final = word_set(
    "restarts reboots stops reloads deployment redeployment deployments redeployments deploys redeploys rollouts"
)
LOOSE_NOUNS: Final = word_set("changes updates upgrades releases action actions remediation interventions rollbacks")
PAIRS: Final = word_set(
    "roll out|rolled out|rolling out|roll back|rolled back|rolling back|shut down|shutting down|take down|taken down"
    "|taking down|bring down|power off|power cycle|switch off|turn off",
    separator="|",
)


def _forms(verbs: str) -> Iterator[str]:
    for verb in verbs.split():
        stem = verb.removesuffix("e")
        doubled = stem + stem[-1] if verb == "stop" else stem
        yield from (verb, f"{doubled}ed", f"{doubled}ing", f"{doubled}able")
    yield from ("modified", "modifying") if "modify" in verbs else ()


ACTIONS: Final = frozenset(_forms(VERBS)) | NOUNS
LOOSE: Final = frozenset(_forms(LOOSE_VERBS)) | LOOSE_NOUNS

REASONS: Final = word_set("but because since as so although though which who however instead just")
VERBS_AND_NOUNS: Final = ACTIONS | LOOSE
ENDS: Final = REASONS | word_set(
    "unless without except before after during while when whenever if until outside between only from at"
)
"""What ends the names of a rule: a reason or a condition follows."""

DAYS: Final = word_set(
    "mondays tuesdays wednesdays thursdays fridays saturdays sundays monday tuesday wednesday thursday friday saturday "
    "sunday weekends weekend weekdays holidays"
)
JOINS: Final = frozenset({",", "or", "and", "nor", "/", "&", "neither"})
SOME: Final = word_set("every everything all only always")
ANYTHING: Final = word_set("anything everything something all services nothing none any")
WHATEVER: Final = ANYTHING | word_set(
    "every each other others whatever things thing those service containers container apps app applications hosts"
)
THAT_IS: Final = word_set(
    "service services container containers app apps application applications thing things one ones that which who is "
    "are was were be being does do has have had named called other others else more"
)
"""What may stand between "anything" and its exception."""

EXCEPTIONS: Final = tuple(
    tuple(phrase.split())
    for phrase in sorted(
        word_set(
            "than|then|besides|beside|apart from|aside from|save for|save|excluding|excepting|exempting|minus|unlike"
            "|beyond|bar|barring|but|different from|different to|different than|with the exception of",
            separator="|",
        ),
        reverse=True,
    )
)
"""What begins one, the longer ones first."""
IT: Final = word_set("it this them itself that these those")
FILLING: Final = (
    FORBIDDING
    | WITH_AN_ACTION
    | CLOSING
    | VERBS_AND_NOUNS
    | ANYTHING
    | IT
    | SIGNS
    | word_set(
        "the our a an every each of for to in its do does make perform run try ever please also simply be been is are "
        "was get again must may should shall can could will would allowed permitted here manually automatically "
        "yourself directly anymore more now today alone you we agents sessions service server servers container "
        "containers app application unit pod instance cluster node deployment stack systems hands off limits leave "
        "keep stay away ask first always delete remove drop wipe prune roll rolled rolling out back shut down take "
        "taken bring power yes true x these following list one ones with under any circumstances repository estate own "
        "hand by on"
    )
)
"""What is no part of the name of a service without a description."""

SORTS: Final = {
    "database": "postgres postgresql pg mysql mariadb mongo mongodb db database sql mssql oracle cockroach cockroachdb"
    " cassandra timescale timescaledb",
    "cache": "redis memcached cache varnish valkey keydb",
    "queue": "rabbitmq kafka nats queue mq activemq broker",
    "proxy": "traefik nginx haproxy caddy envoy proxy",
}
SORT_OF: Final = {word: sort for sort, spellings in SORTS.items() for word in spellings.split()}
CALLED: Final = (
    {sort: sort for sort in SORTS}
    | {"databases": "database", "caches": "cache", "queues": "queue", "proxies": "proxy"}
    | {"db": "database", "dbs": "database"}
)
