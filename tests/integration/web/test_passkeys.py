"""Approvals that a passkey signs: with it a yes counts, and with anything else nothing is approved."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import Connection, select, text

from claudeops.domain.access.logins import COOKIE, LoginLink, NewLogin, Role
from claudeops.domain.access.tokens import digest_of
from claudeops.domain.gate.approval import Answered, ApprovalStatus, proven_yes
from claudeops.domain.gate.passkey import CHALLENGE_TIME, YOUNG, Assertion, Challenge, packed
from claudeops.store.acts.approvals import answer_question
from claudeops.store.tables.approvals import passkey_assertions
from claudeops.structs import replace
from claudeops.web.passkeys import MOST_CHALLENGES
from support.authenticator import PRESENT, Authenticator
from support.lived_in import something_of_everything
from support.paged import KEY, SiteDoor, secret_for, site_door
from support.store_values import NOW

HOST: Final = "localhost:8080"
QUESTION: Final = 2
YES: Final = "approve"


@dataclass
class Person:
    """A user who is logged in, with a passkey."""

    site: SiteDoor
    name: str
    cookie: dict[str, str]
    key: Authenticator = field(default_factory=Authenticator)
    host: str = HOST

    async def send(self, path: str, body: object, *, method: str = "POST") -> tuple[int, dict[str, object]]:
        headers = {**self.cookie, "sec-fetch-site": "same-origin"}
        sent = json.dumps(body).encode()
        answer = await self.site.door.ask(method, f"/api/v1{path}", sent, headers=headers, host=self.host)
        return answer.status, answer.json

    async def register(self, *, name: str = "blue key") -> tuple[int, dict[str, object]]:
        status, asked = await self.send("/passkeys/challenge", {})
        if status != 200:
            return status, asked
        return await self.send("/passkeys", {"name": name, "credential": self.key.register(str(asked["challenge"]))})

    async def challenge(self, number: int = QUESTION) -> str:
        status, asked = await self.send(f"/approvals/{number}/challenge", {})
        assert status == 200, asked
        return str(asked["challenge"])

    async def say(self, passkey: str, number: int = QUESTION, *, answer: str = YES) -> tuple[int, str]:
        status, said = await self.send(f"/approvals/{number}/answer", {"answer": answer, "passkey": passkey})
        return status, str(said.get("detail", said.get("status")))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        await something_of_everything(made.store)
        await made.store.database.write(_demand)
        yield made


def _demand(connection: Connection) -> None:
    connection.execute(text("UPDATE approvals SET passkey = true, status = 'pending'"))


async def person(site: SiteDoor, name: str = "ada", role: Role = Role.APPROVER, *, key: bytes = b"i" * 16) -> Person:
    """Log a user in who has added a passkey."""
    user = await site.user(name, role)
    at = site.door.clock.now()
    digest = digest_of(secret_for(f"link-{name}"))
    over = at + timedelta(seconds=60)
    link = LoginLink(name=name, role=role, digest=digest, created_at=at, expires_at=over, user_id=user.id)
    await site.store.logins.make_link(link)
    await site.store.logins.use_link(digest, NewLogin(digest=digest_of(secret_for(name)), at=at))
    found = Person(site, name, {"cookie": f"{COOKIE}={secret_for(name)}"}, Authenticator(id=key))
    assert (await found.register())[0] == 201
    return found


async def nothing_is_approved(site: SiteDoor) -> bool:
    kept = [await site.store.approvals.approval(number) for number in (1, QUESTION)]
    return all(one is not None and one.answers == () and one.status is not ApprovalStatus.APPROVED for one in kept)


# --- what counts ------------------------------------------------------------------------------------------


async def test_a_yes_that_the_persons_passkey_signs_counts_and_stays_with_its_signature(site: SiteDoor) -> None:
    ada = await person(site)
    assert await ada.say(ada.key.sign(await ada.challenge())) == (200, "approved")
    kept = await site.store.approvals.approval(QUESTION)
    assert kept is not None
    assert proven_yes(KEY, kept, passkey=True) == ("web:ada",)
    for key, unproven in ((KEY, False), (None, True)):
        verified = await site.store.audit.verify(key=key)
        assert (verified.faults, verified.unproven) == ((), unproven)
    (passkey,) = await site.store.passkeys.of_user(1)
    assert (passkey.sign_count, passkey.last_used_at, passkey.name) == (1, NOW, "blue key")


async def test_a_no_needs_no_passkey(site: SiteDoor) -> None:
    ada = await person(site)
    assert await ada.say("", answer="deny") == (200, "denied")


async def test_where_none_is_demanded_a_yes_is_a_yes(site: SiteDoor) -> None:
    ada = await person(site)
    await site.store.database.write(lambda connection: connection.execute(text("UPDATE approvals SET passkey = NULL")))
    assert await ada.say("") == (200, "approved")


# --- what does not ----------------------------------------------------------------------------------------


async def test_a_yes_without_a_signature_is_refused_with_the_page_that_takes_one(site: SiteDoor) -> None:
    ada = await person(site)
    status, said = await ada.say("")
    assert (status, f"/approvals/{QUESTION}" in said) == (409, True)
    answer = await site.post(f"/approvals/{QUESTION}/answer", ada.cookie, b"answer=approve")
    assert (answer.status, "passkey" in answer.body.decode()) == (409, True)
    assert await nothing_is_approved(site)


@pytest.mark.parametrize("who", ["telegram:ada", "slack:ada", "ada"])
async def test_no_chat_and_no_shell_gives_a_yes_that_needs_a_passkey(site: SiteDoor, who: str) -> None:
    approvals = site.store.approvals
    result = await answer_question(approvals, KEY, QUESTION, status=ApprovalStatus.APPROVED, decided_by=who, at=NOW)
    assert result.answered is Answered.NEEDS_PASSKEY
    assert await nothing_is_approved(site)


async def test_a_signature_under_another_call_is_refused(site: SiteDoor) -> None:
    ada = await person(site)
    status, said = await ada.say(ada.key.sign(await ada.challenge(1)))
    assert (status, "nothing that waits" in said) == (403, True)
    assert await nothing_is_approved(site)


async def test_a_call_that_has_changed_since_it_was_shown_is_not_signed(site: SiteDoor) -> None:
    ada = await person(site)
    assert (await ada.send(f"/approvals/{QUESTION}/challenge", {"call_hash": "of another call"}))[0] == 404
    signed = ada.key.sign(await ada.challenge())
    await site.store.database.write(
        lambda connection: connection.execute(text("UPDATE approvals SET call_hash = 'another'"))
    )
    assert (await ada.say(signed))[0] == 409
    assert await nothing_is_approved(site)


@pytest.mark.parametrize("step", [0, 1])
async def test_a_signature_is_good_once_whether_its_passkey_counts_or_not(site: SiteDoor, step: int) -> None:
    ada = await person(site)
    ada.key.step = step
    signed = ada.key.sign(await ada.challenge())
    assert (await ada.say(signed))[0] == 200
    await site.store.database.write(_demand)
    assert (await ada.say(signed))[0] == 403
    wrong = signed.replace('"signature": "', '"signature": "AA')
    assert (await ada.say(wrong))[0] == 403


async def test_a_challenge_is_used_up_by_a_wrong_answer_too(site: SiteDoor) -> None:
    ada = await person(site)
    challenge = await ada.challenge()
    for key in (Authenticator(id=ada.key.id), ada.key):
        assert (await ada.say(key.sign(challenge)))[0] == 403
    assert await nothing_is_approved(site)


async def test_a_signature_that_came_too_late_is_refused(site: SiteDoor) -> None:
    ada = await person(site)
    signed = ada.key.sign(await ada.challenge())
    site.door.clock.at += CHALLENGE_TIME
    assert (await ada.say(signed))[0] == 403
    assert await nothing_is_approved(site)


async def test_the_passkey_of_another_person_signs_nothing(site: SiteDoor) -> None:
    ada, bob = await person(site), await person(site, "bob", key=b"j" * 16)
    for signed in (bob.key.sign(await ada.challenge()), ada.key.sign(await bob.challenge())):
        assert (await ada.say(signed))[0] == 403
    ada.key.id = bob.key.id
    assert (await ada.say(ada.key.sign(await ada.challenge())))[0] == 403
    assert await nothing_is_approved(site)


async def test_what_is_no_whole_signature_of_this_page_is_refused(site: SiteDoor) -> None:
    ada = await person(site)
    own = ada.key
    for key in (
        Authenticator(id=own.id, count=9),  # another key under the same name
        Authenticator(id=own.id, key=own.key, rp_id="evil.example.com", count=9),
        Authenticator(id=own.id, key=own.key, origin="http://localhost:9999", count=9),
        Authenticator(id=own.id, key=own.key, flags=PRESENT, count=9),  # without a look at its owner
    ):
        status, said = await ada.say(key.sign(await ada.challenge()))
        assert (status, said) == (403, "The passkey's answer does not hold.")
    assert (await ada.say(own.sign(await ada.challenge(), kind="webauthn.create")))[0] == 403
    for nonsense in ("x", "{}", '{"id":"x","response":{"clientDataJSON":"x"}}', "[" * 5000):
        assert (await ada.say(nonsense))[0] == 403
    assert await nothing_is_approved(site)


async def test_a_passkey_that_counts_backwards_was_copied_and_signs_nothing(site: SiteDoor) -> None:
    ada = await person(site)
    await site.store.database.write(lambda connection: connection.execute(text("UPDATE passkeys SET sign_count = 5")))
    assert (await ada.say(ada.key.sign(await ada.challenge())))[0] == 403
    assert await nothing_is_approved(site)


async def test_a_passkey_that_was_removed_signs_nothing(site: SiteDoor) -> None:
    ada = await person(site)
    signed = ada.key.sign(await ada.challenge())
    assert (await ada.send("/passkeys/1", {}, method="DELETE"))[0] == 200
    assert (await ada.say(signed))[0] == 403
    status, said = await ada.send(f"/approvals/{QUESTION}/challenge", {})
    assert (status, "/passkeys" in str(said["detail"])) == (409, True)
    assert await nothing_is_approved(site)


async def test_what_waits_for_a_signature_is_bounded(site: SiteDoor) -> None:
    ada = await person(site)
    first = await ada.challenge()
    passkeys = site.site.acting.passkeys if site.site.acting is not None else None
    assert passkeys is not None
    for _ in range(MOST_CHALLENGES):
        site.door.clock.seconds += 1
        await ada.challenge()
    assert len(passkeys._waiting) == MOST_CHALLENGES
    assert (await ada.say(ada.key.sign(first)))[0] == 403


# --- what is on record ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE passkey_assertions SET signature = 'AAAA'",
        "UPDATE passkey_assertions SET call_hash = 'another'",
        "UPDATE passkey_assertions SET user_id = 2",
        "DELETE FROM passkey_assertions",
        "UPDATE approvals SET call_hash = 'another'",
    ],
)
async def test_the_audit_names_a_signature_that_was_changed_afterwards(site: SiteDoor, change: str) -> None:
    ada = await person(site)
    assert (await ada.say(ada.key.sign(await ada.challenge())))[0] == 200
    await site.store.database.write(lambda connection: connection.execute(text(change)))
    (fault,) = (await site.store.audit.verify()).faults
    assert f"the yes to approval {QUESTION}" in fault.message


async def test_the_audit_notices_a_signature_by_another_key_even_under_a_new_digest(site: SiteDoor) -> None:
    ada, eve = await person(site), Authenticator()
    assert (await ada.say(ada.key.sign(await ada.challenge())))[0] == 200

    def forge(connection: Connection) -> None:
        run = connection.execute
        run(
            text("UPDATE passkey_assertions SET signature = :made"),
            {"made": packed(eve.key.sign(b"x", ECDSA(SHA256())))},
        )
        digest = assertion_of(run(select(passkey_assertions)).one()).digest
        run(text("UPDATE passkey_assertions SET digest = :digest"), {"digest": digest})
        run(text("UPDATE approval_answers SET assertion = :digest"), {"digest": digest})

    await site.store.database.write(forge)
    (fault,) = (await site.store.audit.verify()).faults
    assert "does not hold" in fault.message
    kept = await site.store.approvals.approval(QUESTION)
    assert kept is not None
    assert proven_yes(KEY, kept, passkey=True) == ()


# --- adding, and where ------------------------------------------------------------------------------------


async def test_a_passkey_is_added_by_a_young_login_alone(site: SiteDoor) -> None:
    ada = await person(site)
    site.door.clock.at += YOUNG
    ada.key = Authenticator(id=b"k" * 16)
    status, said = await ada.register()
    assert (status, "ten minutes" in str(said["detail"])) == (403, True)
    page = (await site.door.ask("GET", "/passkeys", headers=ada.cookie, host=HOST)).body.decode()
    assert "Add a passkey" not in page
    assert "blue key" in page


async def test_the_same_passkey_is_not_added_twice_and_no_signature_adds_one(site: SiteDoor) -> None:
    ada = await person(site)
    assert (await ada.register())[0] == 409
    signed = await ada.challenge()
    assert (await ada.send("/passkeys", {"credential": ada.key.register(signed)}))[0] == 403
    ada.key = Authenticator(id=b"k" * 16, flags=PRESENT)
    assert (await ada.register())[0] == 403


async def test_whoever_cannot_use_a_passkey_reads_why(site: SiteDoor) -> None:
    ada = await person(site)
    for host, words in (("127.0.0.1:8080", "not by an address"), (HOST, "Add a passkey")):
        page = (await site.door.ask("GET", "/passkeys", headers=ada.cookie, host=host)).body.decode()
        assert words in page
    ada.host = "127.0.0.1:8080"
    assert (await ada.register())[0] == 403
    nobody = Person(site, "root", await site.login(Role.ADMIN, name="root"))
    status, said = await nobody.register()
    assert (status, "claudeops user add" in str(said["detail"])) == (403, True)


async def test_without_the_library_a_person_reads_what_to_install_and_nothing_is_approved(site: SiteDoor) -> None:
    ada = await person(site)
    assert site.site.acting is not None
    site.site.acting.passkeys.is_installed = lambda: False
    status, said = await ada.send(f"/approvals/{QUESTION}/challenge", {})
    assert (status, "claudeops[passkeys]" in str(said["detail"])) == (503, True)
    page = (await site.door.ask("GET", "/passkeys", headers=ada.cookie, host=HOST)).body.decode()
    assert "claudeops[passkeys]" in page
    assert await nothing_is_approved(site)


def test_a_daemon_without_the_library_starts_as_before() -> None:
    blocked = "import sys; sys.modules['webauthn'] = None; import claudeops.app.pages, claudeops.cli.main"
    subprocess.run([sys.executable, "-c", blocked], check=True)


async def test_nobody_removes_the_passkey_of_another_person(site: SiteDoor) -> None:
    await person(site)
    bob = await person(site, "bob", key=b"j" * 16)
    assert (await bob.send("/passkeys/1", {}, method="DELETE"))[0] == 404
    assert len(await site.store.passkeys.of_user(1)) == 1
    form = await site.post("/passkeys/2/remove", bob.cookie)
    assert (form.status, form.headers["location"]) == (303, "/passkeys")
    assert await site.store.passkeys.of_user(2) == []


async def test_the_audit_notices_a_key_of_the_forgers_own_beside_the_signature(site: SiteDoor) -> None:
    ada, eve = await person(site), Authenticator()
    assert (await ada.say(ada.key.sign(await ada.challenge())))[0] == 200

    def forge(connection: Connection) -> None:
        kept = connection.execute(select(passkey_assertions)).one()
        made = assertion_of(kept)
        spki = eve.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        made = replace(made, public_key=packed(spki))
        made = replace(made, signature=packed(eve.key.sign(made.signed, ECDSA(SHA256()))))
        forged = {"key": made.public_key, "signature": made.signature, "digest": made.digest}
        change = "UPDATE passkey_assertions SET public_key = :key, signature = :signature, digest = :digest"
        connection.execute(text(change), forged)
        connection.execute(text("UPDATE approval_answers SET assertion = :digest"), forged)

    await site.store.database.write(forge)
    assert (await site.store.audit.verify()).faults == ()  # all that the database alone can tell
    (fault,) = (await site.store.audit.verify(key=KEY)).faults
    assert "is not the one that the person gave" in fault.message


def assertion_of(kept: Any) -> Assertion:
    challenge = Challenge(
        nonce=bytes.fromhex(kept.nonce),
        call_hash=kept.call_hash,
        approval_id=kept.approval_id,
        expires_at=kept.expires_at,
    )
    same = ("user_id", "rp_id", "credential_id", "public_key", "authenticator_data", "client_data", "signature")
    return Assertion(challenge=challenge, **{name: getattr(kept, name) for name in same})
