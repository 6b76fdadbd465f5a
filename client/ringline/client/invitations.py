"""Inviting and being invited: what an inviter keeps of his invites, and who has taken them up.

The relay is believed in none of it. An invite carries the inviter's key to the invited, and a secret that the
relay never sees; with that secret the invited proves his own key to the inviter (`Invite.prove`). So both
pin what the other has, whatever stands between them.
"""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, final

import msgspec

from ringline.client.account import Account
from ringline.client.contacts import Contacts, Pin
from ringline.client.home import Home, read_private, write_private
from ringline.client.http import RelayHttp
from ringline.client.keylog import KeyLog
from ringline.client.trust import read_keys
from ringline.protocol import shapes
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import ConfigError, EncodingError, HttpProblem, RinglineError, TrustError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.invite import PAIRING_BYTES, Invite
from ringline.protocol.limits import INVITE_KEPT_MS
from ringline.protocol.shapes import Policy

__all__ = ["Given", "Guest", "Invitations", "Issued", "pin_inviter"]

_Look: TypeAlias = tuple[str, str, str | None]


@final
class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a peer may do once he has come: all tasks when ``tasks`` is None, any number of calls likewise."""

    tasks: tuple[str, ...] | None = None
    calls_per_hour: int | None = None
    label: str | None = None

    def on(self, pin: Pin) -> Pin:
        """Return the pin of a peer who is let in with this."""
        return replace(
            pin,
            state="allowed",
            tasks=None if self.tasks is None else tuple(sorted(self.tasks)),
            calls_per_hour=self.calls_per_hour,
            label=self.label or pin.label,
        )


@final
class Issued(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An invite as its inviter keeps it: not the relay's secret, but the one of the two people.

    ``met`` has the handles that have come by it and were let in. Times are Unix ms.
    """

    id: str
    pairing: str
    created_at: int
    expires_at: int
    given: Given
    met: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    invites: tuple[Issued, ...]


_VERSION: Final = 1
_AGAIN_MS: Final = (0, 10_000, 60_000, 600_000)
"""How long a guest who proved nothing is not looked at again, after the first, second and further looks."""


@dataclass(frozen=True, slots=True)
class Guest:
    """Somebody who took an own invite up. ``trouble`` tells why he was not let in, None when he was."""

    handle: str
    issued: Issued
    pin: Pin | None
    trouble: str | None = None


@final
class Invitations:
    """The invites of one account, in one file. Several processes may use it.

    Every method raises `ConfigError` when the file cannot be read or written.
    """

    def __init__(self, home: Home, account: Account, http: RelayHttp, contacts: Contacts) -> None:
        self._home = home
        self._account = account
        self._http = http
        self._contacts = contacts
        self._refused: dict[_Look, tuple[int, int, Guest]] = {}
        self.path: Path = home.identity_folder(account.address, account.handle) / "invites.json"

    async def invite(self, given: Given, *, uses: int, ttl_s: int) -> tuple[Invite, Issued]:
        """Make an invite and return it, to be handed over, with what is kept of it.

        It hands the key of the relay's log on, as it is known here. Raises as `RelayHttp` does, and
        `LogForked` when the relay's log is not the one that was seen before: nobody is invited to it then.
        """
        with contextlib.closing(KeyLog(self._home, self._http, self._http.clock)) as log:
            await log.greet(await self._http.info())
            log_key = log.vouched
        made = await self._http.make_invite(uses, ttl_s)
        pairing = secrets.token_bytes(PAIRING_BYTES)
        address = self._account.address
        invite = Invite(
            realm=address.realm,
            secret=made.invite,
            at=address.base_url,
            inviter=self._account.handle,
            ipk=self._account.ipk,
            pairing=pairing,
            log=log_key,
        )
        issued = Issued(
            id=made.id,
            pairing=b64encode(pairing),
            created_at=self._http.clock.own_ms(),
            expires_at=made.expires_at,
            given=given,
        )
        await asyncio.to_thread(self._change, lambda kept: (*kept, issued))
        return invite, issued

    def kept(self) -> tuple[Issued, ...]:
        """Return the invites that are kept here, the oldest first."""
        return _read(self.path)

    async def open_door(self) -> str | None:
        """Have the relay let through whoever took an invite up; return a word about it when that is new."""
        policy = await self._http.policy()
        if policy.accept != "listed":
            return None
        await self._http.set_policy(
            Policy(offline=policy.offline, accept="invited", allow=policy.allow, block=policy.block)
        )
        return "told the relay to let through whoever takes up an invite of yours"

    async def meet(self) -> list[Guest]:
        """Pin those who have taken an invite up since the last time, with what it was to give them.

        Raises as `RelayHttp` does.
        """
        kept = {issued.id: issued for issued in self.kept()}
        if not kept:
            return []
        new = [
            (issued, acceptance)
            for told in await self._http.invites()
            if (issued := kept.get(told.id)) is not None
            for acceptance in told.accepted
            if acceptance.handle not in issued.met
        ]
        # Only what the relay still tells: it could tell of another guest each time, and fill the memory.
        shown = {_look_of(issued, acceptance) for issued, acceptance in new}
        self._refused = {look: seen for look, seen in self._refused.items() if look in shown}
        return [await self._meet_once(issued, acceptance) for issued, acceptance in new]

    async def _meet_once(self, issued: Issued, acceptance: shapes.InviteAcceptance) -> Guest:
        """As `_meet`, but one who was not let in is looked at again after a while that grows.

        Each look costs a look-up of keys, and the relay gives an identity so many a minute. But what was
        seen may have been the relay's doing, so none is the last.
        """
        name = _look_of(issued, acceptance)
        now = self._http.clock.own_ms()
        looks, looked_at, known = self._refused.get(name, (0, 0, None))
        if known is not None and 0 <= now - looked_at < _AGAIN_MS[min(looks, len(_AGAIN_MS)) - 1]:
            return known
        guest = await self._meet(issued, acceptance)
        if guest.pin is None:
            self._refused[name] = looks + 1, now, guest
        else:
            self._refused.pop(name, None)
        return guest

    async def came_by(self, invite_id: str) -> list[Guest]:
        """Return who has come by one invite, and pin them as `meet` does.

        That may have been done already, by a listener of this identity. Raises as `RelayHttp` does.
        """
        found = [guest for guest in await self.meet() if guest.issued.id == invite_id]
        told = {guest.handle for guest in found}
        for issued in self.kept():
            for handle in issued.met if issued.id == invite_id else ():
                if handle not in told:
                    pin = self._contacts.pin(self._account.address.realm, handle)
                    found.append(Guest(handle, issued, pin))
        return found

    async def _meet(self, issued: Issued, acceptance: shapes.InviteAcceptance) -> Guest:
        handle, realm = acceptance.handle, self._account.address.realm
        try:
            shown = read_keys(realm, handle, await self._http.keys(handle))
        except TrustError as error:
            return Guest(handle, issued, None, str(error))
        except HttpProblem as error:
            if error.code != "not_found":
                raise
            return Guest(handle, issued, None, "the relay shows no keys of his")
        ipk = shown.card.card.ipk
        if not self._proves(issued, handle, ipk, acceptance.proof):
            return Guest(
                handle,
                issued,
                None,
                "nothing shows that the key which the relay shows is that of whoever has your invite: "
                f"{fingerprint(ipk)}",
            )
        now = self._http.clock.own_ms()

        def change(pin: Pin | None) -> Pin:
            if pin is not None and pin.ipk != ipk:
                raise TrustError(f"another key is known of {handle}: {pin.fingerprint}", code="key_changed")
            known = _vouched(pin, now) or Pin(
                realm=realm, handle=handle, ipk=ipk, source="invite", first_seen=now, verified_at=now
            )
            # A decision of his owner's stands.
            return known if known.state == "blocked" else issued.given.on(known)

        try:
            pin = await asyncio.to_thread(self._contacts.update, realm, handle, change)
        except TrustError as error:
            return Guest(handle, issued, None, str(error))
        await asyncio.to_thread(self._change, lambda kept: _with_met(kept, issued.id, handle))
        return Guest(handle, issued, pin, None)

    def _proves(self, issued: Issued, handle: str, ipk: bytes, proof: str | None) -> bool:
        invite = Invite(
            realm=self._account.address.realm,
            secret="x" * PAIRING_BYTES,
            inviter=self._account.handle,
            ipk=self._account.ipk,
            pairing=b64decode(issued.pairing, length=PAIRING_BYTES),
        )
        right = invite.prove(handle, ipk)
        return proof is not None and right is not None and hmac.compare_digest(right, proof)

    def _change(self, change: Callable[[tuple[Issued, ...]], Sequence[Issued]]) -> None:
        """Rewrite the file under its lock, without what has long been over."""
        oldest = self._http.clock.own_ms() - INVITE_KEPT_MS
        with self._home.lock(self.path.parent):
            left = [one for one in change(_read(self.path)) if one.expires_at > oldest]
            text = msgspec.json.format(msgspec.json.encode(_File(_VERSION, tuple(left)))).decode()
            write_private(self.path, f"{text}\n")


def pin_inviter(contacts: Contacts, invite: Invite, given: Given | None, now_ms: int) -> Pin:
    """Pin the inviter by the key in his invite; with ``given`` he is let in too.

    Raises `TrustError` when another key of his is known, `ConfigError` as `Contacts` does. The invite must
    be a person's.
    """
    handle, ipk = invite.inviter, invite.ipk
    assert handle is not None
    assert ipk is not None

    def change(pin: Pin | None) -> Pin:
        if pin is not None and pin.ipk != ipk:
            raise TrustError(
                f"the invite names another key of {handle} than the one that is known here.\n"
                f"  known    {pin.fingerprint}\n"
                f"  invite   {fingerprint(ipk)}",
                code="key_changed",
                next_step=f"ask {handle} by another way; if the key was changed on purpose, forget the old "
                f"one and accept again: ringline contacts rm {handle}",
            )
        known = _vouched(pin, now_ms) or Pin(
            realm=invite.realm,
            handle=handle,
            ipk=ipk,
            source="invite",
            first_seen=now_ms,
            verified_at=now_ms,
        )
        return known if given is None or known.state == "blocked" else given.on(known)

    pinned = contacts.update(invite.realm, handle, change)
    assert pinned is not None
    return pinned


def _vouched(pin: Pin | None, now_ms: int) -> Pin | None:
    """Return a pin whose key an invite has vouched for."""
    if pin is None or pin.verified_at is not None:
        return pin
    source = "invite" if pin.source == "tofu" else pin.source
    return replace(pin, source=source, verified_at=now_ms)


def _look_of(issued: Issued, acceptance: shapes.InviteAcceptance) -> _Look:
    return issued.id, acceptance.handle, acceptance.proof


def _with_met(kept: Sequence[Issued], invite_id: str, handle: str) -> list[Issued]:
    return [
        msgspec.structs.replace(one, met=(*one.met, handle))
        if one.id == invite_id and handle not in one.met
        else one
        for one in kept
    ]


def _read(path: Path) -> tuple[Issued, ...]:
    try:
        text = read_private(path)
    except FileNotFoundError:
        return ()
    try:
        file = msgspec.json.decode(text, type=_File)
        if file.version != _VERSION:
            raise ValueError
        for issued in file.invites:
            b64decode(issued.pairing, length=PAIRING_BYTES)
    except (msgspec.MsgspecError, ValueError, RecursionError, EncodingError):
        raise _damaged(path) from None
    return file.invites


def _damaged(path: Path) -> RinglineError:
    return ConfigError(
        f"the file of your invites is damaged: {path}. It was left as it is.",
        next_step=f"set it aside, and make new invites: mv {path} {path}.damaged",
    )
