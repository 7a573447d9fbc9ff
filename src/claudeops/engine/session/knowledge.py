"""What a session is told beside its task, gathered before it starts; and the record of what it was told.

A session without some of it is better than no session: what the database or a disk does not give in time is left out,
and the log says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from claudeops.domain.briefing import BriefingText, TextKind
from claudeops.domain.chains.escalation import handover_services
from claudeops.domain.estate.estate import Estate
from claudeops.domain.memories.memory import Memory
from claudeops.domain.memories.selection import Selection, select
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.sessions import Session
from claudeops.engine.prompt_files import Template
from claudeops.engine.session.context import SessionContext, TierSetup
from claudeops.errors import StaleAttemptError, StoreError
from claudeops.formats import library
from claudeops.formats.estate.manifest import FILE
from claudeops.formats.library import LibraryKind, LibraryText
from claudeops.logs import LogEvent, Logger
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble, open_tasks
from claudeops.text import casefold_key, clip, regex, unique
from claudeops.wording.prompt.knowledge import NOTHING_ON_RECORD, Knowledge, KnownFacts

_LIBRARY_TOKENS: Final = 4_000
_BETWEEN_NAMES: Final = regex.Pattern(rf"[{regex.SPACE},;()\[\]\"'?!]+")


@asynccontextmanager
async def read_anew(context: SessionContext, log: Logger) -> AsyncIterator[list[Estate]]:
    """Read estate and library anew while the block runs, and wait for them at its end: the estate is in the list."""
    read: list[Estate] = []

    async def look() -> None:
        read.append(await context.estates.look(log))

    async with open_tasks() as tasks:
        tasks.start_soon(context.libraries.look, log)
        tasks.start_soon(look)
        yield read


class Gathering(msgspec.Struct, frozen=True, kw_only=True):
    """Gathers what one session is told."""

    context: SessionContext
    session: Session
    tier: TierSetup
    estate: Estate
    log: Logger

    async def knowledge(self) -> Knowledge:
        """Return what the session is told."""
        context, about = self.context, services_of(self.session, self.estate)
        texts = context.libraries.latest
        return Knowledge(
            estate=self.estate,
            services=about,
            texts=library.choose(
                texts,
                tier=self.tier.number,
                services=tuple(self.estate.services),
                budget_tokens=_LIBRARY_TOKENS,
                chain=about,
            ),
            listing=library.listing(texts, self.tier.number),
            memories=select(
                await self._memories(),
                context.memory_budget_tokens,
                first=about,
                names=KnownServices(context.rules.within(self.estate).other_names, clip),
            ),
            on_record=await self._on_record(about),
            probes=await self._probes(about),
        )

    async def recorded(self, knowledge: Knowledge, prompt: Template) -> Knowledge:
        """Write down what the session is told, and return it.

        Without that record an echo could not be told from a confirmation, so memories are left out if it cannot be
        written.
        """
        task = BriefingText(
            kind=TextKind.PROMPT, name=f"tier{self.tier.number}", origin=prompt.path, digest=prompt.digest
        )
        try:
            await self.context.store.briefings.record(
                self.session.id,
                attempt=self.session.attempt,
                memory_ids=[memory.id for memory in knowledge.memories.chosen],
                texts=(task, *_manifests(knowledge.estate), *map(_briefing_text, knowledge.texts)),
            )
        except StaleAttemptError as error:
            # The gate will allow this session nothing, and its end will not be written.
            self.log.error(LogEvent.STALE_ATTEMPT, error=str(error))
            return replace(knowledge, memories=Selection())
        except StoreError as error:
            self._left_out("the record of what a session is told", error)
            return replace(knowledge, memories=Selection())
        return knowledge

    async def _memories(self) -> Sequence[Memory]:
        try:
            return await self.context.store.records.memories()
        except StoreError as error:
            self._left_out("memories", error)
            return ()

    async def _on_record(self, about: Sequence[str]) -> KnownFacts:
        context = self.context
        try:
            return await context.store.briefings.on_record(
                self.session,
                about=about,
                kinds=self.tier.policy.action_kinds,
                rules=context.rules.within(self.estate),
                now=context.clock.now(),
            )
        except StoreError as error:
            self._left_out("cases, cooldowns and last verdicts", error)
            return NOTHING_ON_RECORD

    async def _probes(self, about: Sequence[str]) -> tuple[str, ...]:
        """Return the table of the probes, for the tier that looks: higher ones are told what it found."""
        context = self.context
        if self.tier.number != context.rules.lowest.number:
            return ()
        try:
            return tuple(await context.probes(context.clock.now(), about))
        except StoreError as error:
            self._left_out("the table of the probes", error)
            return ()

    def _left_out(self, what: str, error: StoreError) -> None:
        DatabaseTrouble(self.log, what).failed(error)


def services_of(session: Session, estate: Estate) -> tuple[str, ...]:
    """Return the services that a session's chain is about: those handed over, and those that its request names."""
    handed_over = () if session.context is None else handover_services(session.context)
    words = {casefold_key(word) for word in _BETWEEN_NAMES.split(session.prompt_text or "")}
    words |= {word.rstrip(".:") for word in words}
    asked = [
        service.name
        for service in estate.services
        if words & {casefold_key(name) for name in (service.name, *service.aliases)}
    ]
    return unique((*handed_over, *asked))


def _manifests(estate: Estate) -> Iterator[BriefingText]:
    for manifest in estate.manifests:
        if manifest.digest:
            name = manifest.repository
            yield BriefingText(kind=TextKind.MANIFEST, name=name, origin=f"{name}/{FILE}", digest=manifest.digest)


def _briefing_text(text: LibraryText) -> BriefingText:
    kind = {
        LibraryKind.CHECK: TextKind.CHECK,
        LibraryKind.PLAYBOOK: TextKind.PLAYBOOK,
        LibraryKind.SKILL: TextKind.SKILL,
    }[text.kind]
    return BriefingText(kind=kind, name=text.name, origin=text.origin, digest=text.digest)
