"""What keeps the code a house in which a stranger finds his way: see "The house" in docs/how-to/develop.md."""

from __future__ import annotations

from typing import Final

import pytest

from support.house import (
    CEILING_LINES,
    FOLDER_FILES,
    FUNCTION_LINES,
    House,
    classes,
    forwarding,
    functions,
    imported,
    measure,
    odd_words_by_room,
    protocols,
    small_types,
)

SMALL: Final = {
    "claudeops.store.action_ledger": "commands read it that load nothing else of what the store's other queries need",
    "claudeops.cli.nodes": "one command, which reads other rows than those beside it",
    "claudeops.engine.last_good": "what three readers share of a file that is read again",
    "claudeops.__main__": "`python -m claudeops` asks for it",
    "claudeops.log_values": "loaded with the first event: most commands of the CLI log none",
    "claudeops.app.oidc": "imports an extra, so only where a provider is configured",
    "claudeops.app.alerts": "a room of the composition root, which is looked for by its name",
    "claudeops.app.schedules": "likewise",
    "claudeops.cli.doctor.login_provider": "one check, which asks another server than those beside it",
    "claudeops.settings.oidc": "variables that mean something only together",
    "claudeops.domain.alerts.replay": "decides without a database; the worker decides with one",
    "claudeops.formats.senders.healthchecks": "one kind of sender",
    "claudeops.domain.alerts.workloads": "how Kubernetes names pods; what labels say is another matter",
    "claudeops.cli.doctor.docker": "one check, which looks at no other",
    "claudeops.engine.docker.filter": "where the filter listens; its process knows nothing of workspaces",
    "claudeops.engine.docker.process": "runs by itself",
    "claudeops.engine.kubernetes.filter": "where the filter listens; its process knows nothing of workspaces",
    "claudeops.engine.kubernetes.process": "runs by itself",
    "claudeops.policy.kubernetes_api.printed": "what kubectl prints; masks are about what the API answers",
    "claudeops.policy.programs.docker": "how one kind of program is read, like those beside it",
    "claudeops.engine.docker.cell": "what no filter can judge; the filter knows nothing of it",
    "claudeops.policy.programs.network": "how one kind of program is read, like those beside it",
    "claudeops.engine.cell.tool_shell": "runs by itself in the cell of a session",
    "claudeops.text.redact.streaming": "streams alone: lines and texts are redacted whole, by what all import",
    "claudeops.domain.report.meanings": "which names mean one service; evidence decides what that proves",
    "claudeops.rehearsal.monitoring": "one player of a rehearsal, as are services and chats",
    "claudeops.store.alerts.heartbeats": "incidents that no session looks at, beside those that end by two witnesses",
    "claudeops.settings.alerts": "one file of the operator's; the running daemon reads it again",
    "claudeops.web.news": "feeds and tails of logs wake their readers by it",
    "claudeops.web.webauthn_checks": "imports an extra, so only where a passkey is used",
    "claudeops.web.pages.more.passkeys": "one page, like its neighbours",
    "claudeops.text.alignment": "an algorithm of its own, which knows no chain",
    "claudeops.web.pages.chain_diff": "one comparison, as a page and for programs",
    "claudeops.web.pages.incidents": "pages of one subject",
    "claudeops.web.pages.why": "one page, with a query of its own",
    "claudeops.web.api.queries": "what addresses say; pages have their own",
    "claudeops.web.pages.spend": "one page, with a query of its own",
    "claudeops.web.pages.navigation": "what the navigation names: templates and a page of links share it",
    "claudeops.web.pages.more.memories": "pages of one subject",
    "claudeops.cli.config": "one command, and the only view that reads no database",
    "claudeops.web.pages.more.settings": "one page, with a query of its own",
    "claudeops.domain.setting": "one value: the settings make it, and pages that may not know them show it",
    "claudeops.web.pages.more.planned": "pages of one kind",
    "claudeops.web.pages.lists": "pages of one kind",
    "claudeops.wording.readable": "commands and pages share the words for values",
    "claudeops.web.pages.now": "one page, like the others",
    "claudeops.web.pages.static": "files, which need no values",
    "claudeops.web.password_login": "one subject, beside how passwords are hashed and how logins are kept",
    "claudeops.clock": "the engine and the pages know it, and neither knows the other",
    "claudeops.cli.commands.look": "one heading of the help",
    "claudeops.cli.commands.notify": "one group of commands",
    "claudeops.cli.commands.completion": "what a shell asks at every press of a key",
    "claudeops.domain.figures": "one value: the store reads it, and what renders it must not know the store",
    "claudeops.structs": "one function, for every layer",
    "claudeops.closed_set": "one base class: log events and the domain share it, and neither knows the other",
    "claudeops.cli.health": "what a container calls every 30 seconds: it may import nothing that takes time",
    "claudeops.cli.alerts.sources": "one command, and the only list that reads the operator's file beside the database",
    "claudeops.cli.chain_diff": "one command; pages draw the same values in their own way",
    "claudeops.cli.policy_replay": "one command; pages draw the same values in their own way",
    "claudeops.cli.why": "one command; pages draw the same values in their own way",
    "claudeops.cli.notify": "one command",
    "claudeops.cli.run": "the daemon; what else watches needs nothing of what it imports",
    "claudeops.cli.main": "the entry point: it hears signals before it imports the rest",
    "claudeops.cli.tiers.stages": "one command, which asks for no settings",
    "claudeops.cli.tiers.tools": "one command: what runs without a session",
    "claudeops.cli.version": "one command, which asks for nothing",
    "claudeops.wording.prompt.trace": "a standard of its own (W3C), beside the texts",
    "claudeops.dispatch.local": "an adapter of its own, beside the one for several nodes, which it needs nothing of",
    "claudeops.domain.briefing": "engine and store share the value, and what reads the library makes it",
    "claudeops.domain.memories.instructions": "expressions in ten languages, which nobody reads beside code",
    "claudeops.domain.memories.trust": "the one rule of quarantine, to be read alone",
    "claudeops.domain.alerts.receipt": "what the desk and the listener share",
    "claudeops.formats.estate.inventory": "hosts and windows: functions, beside the reader that keeps a state",
    "claudeops.domain.estate.maintenance": "asked by decision and grants; the reader of manifests is another subject",
    "claudeops.policy.flow": "one rule about all commands of a line; the judge asks it last",
    "claudeops.policy.programs.statements": "SQL is a language of its own beside the shell",
    "claudeops.formats.probes.hosts": "what widens the sessions' reach, to be read alone",
    "claudeops.domain.chains.recovery": "what follows a death, beside what follows an end: neither knows the other",
    "claudeops.policy.shell.exit_status": "a question of its own to the steps of a text",
    "claudeops.policy.shell.refusals": "sentences, to be read beside each other",
    "claudeops.policy.docker_api.refusals": "sentences, to be read beside each other",
    "claudeops.policy.shell.syntax": "the one door to tree-sitter",
    "claudeops.domain.spending.tokens": "imports nothing of ours: the model needs it",
    "claudeops.engine.probes.hosts": "the estate's part of the probes file; the watch needs the other one",
    "claudeops.engine.process.channel": "the one writer of a child's stdin",
    "claudeops.engine.daemon.fleet": "a loop that a daemon which is alone does not load",
    "claudeops.engine.schedules.follow_ups": "a loop of its own beside the schedules'",
    "claudeops.engine.schedules.tier0": "what probes tell schedules and prompts, apart from both",
    "claudeops.harness.caliban": "an adapter of its own",
    "claudeops.store.knowledge.completion": "imports no toolkit: a shell waits for it",
    "claudeops.store.knowledge.briefings": "the class that is one port",
    "claudeops.rehearsal.certificate": "cryptography takes as long to import as all the rest: few scenarios need it",
    "claudeops.domain.answers": "the one door by which values leave as documents: commands and pages share it",
    "claudeops.store.reading.calls": "one subject; streams and pages read it",
    "claudeops.notify.digest": "a loop of its own beside the sender",
    "claudeops.settings.schedules": "one file of the operator's; the running daemon reads it again",
    "claudeops.cli.acknowledge": "what commands say of acts that pages and the API have too",
    "claudeops.store.acts.incidents": "one subject; command, page and API act by it",
    "claudeops.store.acts.memories": "one subject; command, page and API act by it",
    "claudeops.engine.gate.answering": "who waits: the session's context knows it, and not what asks",
    "claudeops.domain.network.forbidden_hosts": "policy and manifests ask it; neither may import the other",
    "claudeops.domain.notices.approvers": "the operator's file names them, and the answers are checked by them",
    "claudeops.engine.session_log.tail": "who only packs or removes a log knows nothing of lines",
    "claudeops.app.limits": "what the settings allow: commands that start nothing ask for it, without the engine",
    "claudeops.cli.on_store": "every subject of the database: commands of one subject do without",
    "claudeops.cli.with_settings": "all settings: commands that need the database's address do without",
    "claudeops.cli.ping": "one command, which monitored jobs call every minute: it does without probes' looks",
    "claudeops.cli.incident": "one incident's story is read by five subjects; the list does without them",
    "claudeops.cli.incidents": "one command, the first that a person calls at night: it loads its subject alone",
    "claudeops.cli.alerts.silences": "one command; what writes a silence loads what decides about alerts",
    "claudeops.cli.login_link": "asks for the settings, which tokens and users do without",
    "claudeops.cli.tokens": "one group of commands; what it does is what pages and the API do",
    "claudeops.store.tables.all_tables": "who makes or empties a database needs all tables; nothing else does",
    "claudeops.store.tables.events": "a partial index: naming it loads both dialects",
    "claudeops.store.tables.outbox": "its topics are those of notices, which lists do without",
    "claudeops.formats.report.draft7": "jsonschema: a start with the schema that ships does without its 35 ms",
    "claudeops.text.escapes": "what every screen needs, and none of what approvals are",
}
"""Modules under 60 lines, or under 100 with one importer, each with the reason why it does not go home."""

TYPE_BLOCKS: Final = {
    "claudeops.structs": "the checker reads one function, the interpreter another",
    "claudeops.domain.calls": "grants of docker, which `claudeops health` does without",
    "claudeops.app.start.trial_process": "starts the process before it loads what the process sends",
    "claudeops.app.daemon": "an HTTP client: a daemon that pings no monitor does without",
    "claudeops.app.meter": "an HTTP server and client: a start does without them",
    "claudeops.app.node": "what counts for Prometheus: a daemon that does not listen counts nothing",
    "claudeops.engine.kubernetes.kubeconfig": "HTTP: a start without clusters does without it",
    "claudeops.app.probes": "what looks: a start does without it, and a daemon without probes for good",
    "claudeops.app.wiring": "SQL: commands that only read the wiring do without",
    "claudeops.engine.meter.availability": "SQL: commands that only read the wiring do without",
    "claudeops.engine.estate": "SQL: commands that only read the manifests do without",
    "claudeops.settings.oidc": "the login provider: most settings name none",
    "claudeops.formats.report.response_schema": "jsonschema: a start with the schema that ships does without its 35 ms",
    "claudeops.formats.estate.markdown": "markdown-it-py: a start without manifests does without its 30 ms",
    "claudeops.engine.cell.headers.authority": "cryptography: a daemon that adds no header does without its 100 ms",
    "claudeops.notify.slack_socket": "Slack's SDK: the process alone imports it, and the daemon knows its lines",
    "claudeops.cli.commands.incidents": "the model: help and mistakes are answered without it",
    "claudeops.cli.commands.sessions": "help and mistakes are answered without the model",
    "claudeops.cli.commands.watch": "the model: help and mistakes are answered without it",
    "claudeops.cli.commands.filters": "the model: help and mistakes are answered without it",
    "claudeops.cli.commands.options": "the model: help and mistakes are answered without it",
    "claudeops.cli.commands.act": "the model: help and mistakes are answered without it",
    "claudeops.cli.commands.policy": "help and mistakes are answered without the model",
    "claudeops.cli.commands.history": "the model: help and mistakes are answered without it",
    "claudeops.settings": "names are imported when they are asked for; the checker sees them all the same",
    "claudeops.settings.model": "policy, rules and targets: the declaration alone is read without them",
    "claudeops.settings.sessions": "plans: the declaration alone is read without them",
    "claudeops.cli.text.terminal": "rich: only terminals need it",
    "claudeops.formats.estate.trees": "PyYAML: an estate without YAML does without it",
    "claudeops.engine.probes.dns": "dnspython: one kind of probe needs it",
    "claudeops.engine.session.context": "a web server, an HTTP client and SQL: commands that run no session do without",
    "claudeops.logs": "the model: most commands never log a session",
    "claudeops.store.migrate": "alembic: needed after updates only",
}
"""Modules with imports for the type checker alone."""

PROTOCOLS: Final = {
    # several adapters
    "claudeops.cli.tail.Sink": "a terminal, lines of JSON and one document",
    "claudeops.cli.text.terminal.Printer": "a terminal and a plain stream",
    "claudeops.cli.tiers.stream.Runner": "a chain of this process, and one of the daemon beside it",
    "claudeops.domain.gate.approval.SignedQuestion": "an approval, and the columns that its signature is checked by",
    "claudeops.domain.schedules.windows.Weekly": "windows of schedules and of notices, and windows of maintenance",
    "claudeops.engine.cell.cell.Cell": "one class a level of isolation",
    "claudeops.engine.cell.look_cell.LookCell": "one class a program that the daemon runs",
    "claudeops.engine.cell.look_cell.ReadLines": "what only some of these can",
    "claudeops.engine.ports.Counting": "the daemon's metrics, and who counts nothing",
    "claudeops.engine.ports.SessionListener": "status, pings of a health check, and what counts",
    "claudeops.engine.process.disk_use.DiskPlace": "directories, and a file system in memory",
    "claudeops.harness.protocol.Harness": "one class a kind of CLI",
    "claudeops.harness.protocol.FrameReader": "one class a kind of CLI",
    "claudeops.log_writer.Stream": "stderr, pipes and files",
    "claudeops.notify.delivery.Carrier": "couriers and chats",
    "claudeops.text.redact.BytesPattern": "of google-re2, which has no types",
    "claudeops.text.redact._Match": "of google-re2, which has no types",
    "claudeops.text.regex._Engine": "of google-re2, which has no types, over text and over bytes",
    "claudeops.text.regex._Found": "of google-re2, which has no types, over text and over bytes",
    "claudeops.web.ports.Logins": "those of the database, and those of rehearsals in memory",
    # one adapter, which the layers keep from being named
    "claudeops.engine.ports.Dispatcher": "two adapters, which stand below the engine",
    "claudeops.rehearsal.course.ProbeWait": "app has it; a function with keywords, which `Callable` has no words for",
    "claudeops.web.ports.Intake": "the engine's, which pages may not know",
    "claudeops.web.ports.Interactions": "of notify, which is above the pages",
    "claudeops.web.ports.Live": "the engine's, which pages may not know",
    "claudeops.web.ports.LiveFacts": "the engine's, which pages may not know",
    "claudeops.web.ports.LogLines": "app reads the engine's logs",
    "claudeops.web.ports.OpenLog": "app reads the engine's logs",
    "claudeops.web.ports.PolicyInForce": "app asks the engine's judge",
    "claudeops.web.ports.ProviderLogin": "imports the libraries of an extra",
    "claudeops.web.ports.Sources": "app reads the operator's file",
    "claudeops.wording.stream.LineReader": "the reader of a harness, which is above the wording",
    # one adapter
    "claudeops.engine.session.context.Explain": "a function with keywords, which `Callable` has no words for",
    "claudeops.engine.session.context.Judge": "a function with keywords, which `Callable` has no words for",
    "claudeops.formats.report.extraction.ReportSource": "the parts of a transcript that conclude something",
}
"""Every Protocol, with its reason: what has one adapter is named itself. The list may only shrink."""

LONG: Final = {
    "claudeops.store.store.open_store": "the parts of the store, one line a part",
    "claudeops.app.daemon.run_daemon": "the order in which a daemon starts and stops, one line a part",
    "claudeops.app.node.open_node": "the order in which a node opens, one line a step",
    "claudeops.engine.session.completion.conclude": "flat: one line a field",
    "claudeops.settings.load.load_settings": "flat: one line a setting",
    "claudeops.app.wiring.build_context": "flat: a line for each field of the context",
    "claudeops.engine.session.runner._run": "what a session needs is entered and left in order, one line a step",
}
"""Functions over forty lines, each with its reason."""


PARSER: Final = {"claudeops.text.toml_file"}
"""Who imports the parser of TOML: every reader of such a text has its lines, names and sentences from there."""

STAMPS: Final = {
    "claudeops.engine.last_good": "every file of the operator's that is read again",
    "claudeops.engine.estate": "repositories: many files, each with what it said last",
    "claudeops.engine.gate.admission": "a program, which must be the one that was tried",
    "claudeops.engine.recovery.recovery": "a log that a lost process may still write to",
    "claudeops.cli.doctor.machine": "the newest entry beside the clock; nothing is read again",
}
"""Who compares when a file was changed: another module that reads an operator's file again belongs into the first."""

FORMS: Final = frozenset({"model", "document", "names", "values", "records", "schema", "types", "utils", "helpers"})
"""What a file is made of, which no module is named after: its name says its subject."""

SMALL_TYPES: Final = 254
"""Types with one or two fields: a field, or a function's result, often does instead. The number may only shrink."""

ODD: Final = {
    "": 37,
    "app": 88,
    "cli": 169,
    "dispatch": 1,
    "domain": 265,
    "engine": 491,
    "harness": 19,
    "policy": 49,
    "rehearsal": 24,
    "scripted_api": 11,
    "settings": 4,
    "store": 690,
    "text": 6,
    "web": 140,
}
"""How many odd words the names, comments and docstrings of each folder may hold; the others none. They may only shrink.

See `support.house.ODD_WORDS` for the words. Texts that people get do not count.
"""

FLAT: Final = {"cli": 40, "policy": 26, "store": 26}
"""Folders with one file a subject, and how many they may hold."""


@pytest.fixture(scope="module")
def house() -> House:
    return measure()


def test_no_two_modules_import_each_other_not_even_for_types(house: House) -> None:
    assert house.circles == []


def test_no_folder_is_a_heap(house: House) -> None:
    bounds = {folder: FLAT.get(folder.name, FOLDER_FILES) for folder in house.folders}
    assert {str(folder): files for folder, files in house.folders.items() if files > bounds[folder]} == {}


def test_no_file_is_too_long_to_be_read_at_night(house: House) -> None:
    assert {name: module.lines for name, module in house.modules.items() if module.lines > CEILING_LINES} == {}


def test_every_small_module_says_why_it_is_one(house: House) -> None:
    assert set(house.small) == set(SMALL)


def test_an_import_for_types_alone_has_a_reason(house: House) -> None:
    assert {name for name, module in house.modules.items() if module.has_type_block} == set(TYPE_BLOCKS)


def test_every_long_function_says_why_it_is_one(house: House) -> None:
    found = (one for module in house.modules.values() for one in functions(module))
    assert {name for name, lines in found if lines > FUNCTION_LINES} == set(LONG)


def test_every_protocol_says_why_it_is_one(house: House) -> None:
    assert {name for module in house.modules.values() for name in protocols(module)} == set(PROTOCOLS)


def test_the_methods_of_the_store_are_the_sql_and_forward_nothing(house: House) -> None:
    store = (module for name, module in house.modules.items() if name.startswith("claudeops.store."))
    assert [name for module in store for name in forwarding(module) if "._" not in name] == []


def test_one_module_opens_the_door_to_toml(house: House) -> None:
    assert {name for name, module in house.modules.items() if "tomllib" in imported(module)} == PARSER


def test_what_reads_files_again_is_not_written_anew(house: House) -> None:
    assert {name for name, module in house.modules.items() if "st_mtime" in module.path.read_text()} == set(STAMPS)


def test_a_class_name_leads_to_one_class(house: House) -> None:
    assert {name: where for name, where in classes(house.modules.values()).items() if len(where) > 1} == {}


def test_modules_are_named_after_their_subject(house: House) -> None:
    named = {name for name in house.modules if name.rpartition(".")[2] in FORMS}
    assert named == {"claudeops.settings.model"}, "the settings are the one subject that is called so"


def test_odd_words_become_fewer(house: House) -> None:
    found = odd_words_by_room(house.modules.values())
    assert {room: count for room, count in found.items() if count > ODD.get(room, 0)} == {}


def test_types_of_one_or_two_fields_become_fewer(house: House) -> None:
    assert sum(1 for module in house.modules.values() for _ in small_types(module)) <= SMALL_TYPES
