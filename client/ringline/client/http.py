"""The relay's HTTP interface, as a client uses it.

Every answer is the relay's word alone. What comes from a peer inside of it is verified elsewhere, by
`ringline.client.peers` and when an envelope is opened.
"""

import asyncio
import secrets
import ssl
from typing import Any, Final, Literal, TypeAlias, TypeVar, final

import msgspec

from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.clock import RelayClock
from ringline.client.exchange import Answer, exchange, tls_context
from ringline.client.refusal import decode, not_let_in, problem_of
from ringline.protocol import shapes
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError, HttpProblem, TransportError
from ringline.protocol.limits import SUBPROTOCOL

__all__ = ["HEADERS", "CancelAnswer", "RelayHttp", "relay_info"]

CancelAnswer: TypeAlias = Literal["canceled", "requested", "already_terminal", "too_late", "unknown"]
"""What a relay says to a cancellation over HTTP (RL-CANCEL-002, RL-CANCEL-011, RL-CANCEL-012)."""

_PAGES: Final = 20  # of lists that are read whole: a relay could have them go on for ever
_FORGETFUL: Final = "; a development relay without --db knows nobody when it is started again"
HEADERS: Final = {"Accept": "application/json", "User-Agent": "ringline"}

_T = TypeVar("_T")


@final
class RelayHttp:
    """The HTTP interface of one relay, logged in as one account.

    Every method raises `TransportError` when the relay cannot be reached or does not answer as one, and
    `HttpProblem` when it refuses. A 401 is met by RL-AUTH-023: the clock is corrected and the
    request made once more; in the development realm, where a relay may have forgotten everybody, the
    keys are then published again and the request made a last time.
    """

    def __init__(self, address: RelayAddress, account: Account, clock: RelayClock) -> None:
        """Nothing is sent before a method is called."""
        self.address = address
        self.account = account
        self.clock = clock
        self._tls = tls_context(address)
        self._publishing = asyncio.Lock()

    @property
    def tls(self) -> Any:
        """The TLS settings, None without TLS: the WebSocket uses the same."""
        return self._tls

    async def info(self) -> shapes.RelayInfo:
        """Return what the relay says of itself (``GET /v1/relay``).

        Raises `ConfigError` when it is of another realm: a hard stop, because names and keys of one realm
        mean nothing in another (RL-HTTP-016). Raises `TransportError` when it speaks no version known here.
        """
        return await relay_info(self.address, self._tls)

    async def ask(
        self,
        method: str,
        path: str,
        shape: type[_T],
        *,
        query: str = "",
        body: msgspec.Struct | None = None,
        timeout_s: float = 15.0,
    ) -> _T:
        """Make a request, for routes that have a module of their own, and return the answer as ``shape``."""
        data = None if body is None else msgspec.json.encode(body)
        answer = await self._call(method, path, query=query, body=data, timeout_s=timeout_s)
        return self._decode(answer, shape)

    async def keys(self, handle: str) -> shapes.Keys:
        """Return the current card and prekeys of a handle, as the relay tells them: not verified."""
        return self._decode(await self._call("GET", f"/v1/handles/{handle}"), shapes.Keys)

    async def card(self, handle: str, card_id: bytes) -> shapes.SupersededKeys:
        """Return one card of a handle, current or superseded, as the relay tells it: not verified."""
        path = f"/v1/handles/{handle}"
        answer = await self._call("GET", path, query=f"?card={b64encode(card_id)}")
        return self._decode(answer, shapes.SupersededKeys)

    async def log_file(self, path: str) -> bytes:
        """Return a file of the relay's key log, by its path below the log's own: not verified."""
        return (await self._call("GET", f"/v1/log/{path}")).body

    async def publish(self, claim: str | None = None) -> None:
        """Publish the account's card and current prekeys (``PUT /v1/handles/{h}``); twice is once.

        ``claim`` is what an invite has the relay told. Raises `HttpProblem` with code ``conflict`` when the
        handle is another identity's, ``forbidden`` where an invite is needed, or this one does not hold.
        """
        async with self._publishing:
            publication = self.account.publication(self.clock.own_ms())
            if claim is not None:
                publication = msgspec.structs.replace(publication, invite=claim)
            try:
                await self._call("PUT", self._own(), body=msgspec.json.encode(publication), may_publish=False)
            except HttpProblem as error:
                if error.code == "unauthorized":
                    raise HttpProblem(
                        f"{self.address.base_url} does not take the keys of {self.account.handle}: they were "
                        "called back, or the clocks differ too much (HTTP 401)",
                        code="unauthorized",
                        next_step=f"make new keys: ringline id rotate --as {self.account.handle}",
                    ) from error
                if error.code == "conflict" and claim is None and await self._publish_from_the_first():
                    return
                if error.code == "conflict":
                    raise HttpProblem(
                        f"the handle {self.account.handle} is taken at {self.address.base_url} or was "
                        "removed there, or other keys of it are already published there",
                        code="conflict",
                        next_step="choose another name with --as, or go to the computer that holds its keys"
                        + (_FORGETFUL if self.address.is_local else ""),
                    ) from error
                if error.code == "forbidden":
                    raise not_let_in(self.address, self.account.handle, claim) from error
                raise
            await asyncio.to_thread(self.account.note_published, publication.prekey, self.clock.own_ms())

    async def _publish_from_the_first(self) -> bool:
        """Publish every card of the identity in turn; False when that is not possible, or nothing came of it.

        For a development relay that keeps nothing: when it is started again it knows nobody, and takes a
        first card as the first (RL-KEYS-007). What was called back it does not know of either; its realm is
        one in which the first keys that are seen are believed.
        """
        account = self.account
        cards = account.cards
        if not self.address.is_local or len(cards) == 1 or len(cards) != cards[0].card.serial:
            return False
        publication = account.publication(self.clock.own_ms())
        try:
            for number in reversed(range(len(cards))):
                publication = account.publication(self.clock.own_ms(), number)
                body = msgspec.json.encode(publication)
                await self._call("PUT", self._own(), body=body, may_publish=False, number=number)
        except HttpProblem:
            return False
        await asyncio.to_thread(account.note_published, publication.prekey, self.clock.own_ms())
        return True

    async def publish_prekeys(self) -> None:
        """Publish the account's current prekeys alone (``PUT …/prekeys``)."""
        publication = self.account.prekey_publication(self.clock.own_ms())
        await self._call("PUT", f"{self._own()}/prekeys", body=msgspec.json.encode(publication))
        await asyncio.to_thread(self.account.note_published, publication.prekey, self.clock.own_ms())

    async def revoke(self, handle: str, statement: shapes.RevocationStatement) -> bool:
        """Call a card of a handle back; False when it was before. No log-in: the statement proves itself.

        Raises `HttpProblem` ``not_found`` for a card that the relay does not have, ``malformed`` for a
        statement that does not hold.
        """
        path = f"/v1/handles/{handle}/revocations"
        headers = dict(HEADERS, **{"Content-Type": "application/json"})
        body = msgspec.json.encode(statement)
        answer = await exchange(self.address, "POST", path, headers=headers, body=body, tls=self._tls)
        if answer.status not in (200, 201):
            raise problem_of(self.address, f"POST {path}", answer)
        return answer.status == 201

    async def policy(self) -> shapes.Policy:
        """Return who may reach the own handle."""
        return self._decode(await self._call("GET", f"{self._own()}/policy"), shapes.Policy)

    async def set_policy(self, policy: shapes.Policy) -> None:
        """Replace who may reach the own handle."""
        await self._call("PUT", f"{self._own()}/policy", body=msgspec.json.encode(policy))

    async def make_invite(self, uses: int, ttl_s: int) -> shapes.InviteMade:
        """Have the relay make an invite of the own handle for ``uses`` handles and ``ttl_s`` seconds."""
        body = msgspec.json.encode(shapes.InviteRequest(uses=uses, ttl_s=ttl_s))
        return self._decode(await self._call("POST", "/v1/invites", body=body), shapes.InviteMade)

    async def invites(self) -> list[shapes.Invite]:
        """Return the own invites as the relay tells of them, the newest first."""
        found: list[shapes.Invite] = []
        query = "?limit=100"
        for _ in range(_PAGES):
            page = self._decode(await self._call("GET", "/v1/invites", query=query), shapes.InviteList)
            found += page.invites
            if page.next is None:
                break
            query = f"?limit=100&cursor={page.next}"
        return found

    async def withdraw_invite(self, invite_id: str) -> bool:
        """Void an own invite; False when there is none of that id."""
        try:
            await self._call("DELETE", f"/v1/invites/{invite_id}")
        except HttpProblem as error:
            if error.code == "not_found":
                return False
            raise
        return True

    async def remove(self, handle: str) -> None:
        """Have an identity removed: the own one, or as the administrator any. Nobody gets its handle again.

        Raises `HttpProblem` ``forbidden`` for another's, ``not_found`` to the administrator for none.
        """
        await self._call("DELETE", f"/v1/handles/{handle}")

    async def record(self, call_id: str, *, wait_s: int = 0) -> shapes.CallRecord | None:
        """Return what the relay knows of a call of this account, None when it knows nothing.

        ``wait_s``, 0 to 50 seconds: the relay answers when the call has ended or the time is over.
        """
        query = f"?wait={wait_s}" if wait_s else ""
        try:
            answer = await self._call("GET", f"/v1/calls/{call_id}", query=query, timeout_s=15.0 + wait_s)
        except HttpProblem as error:
            if error.code == "not_found":
                return None
            raise
        return self._decode(answer, shapes.CallRecord)

    async def cancel(self, call_id: str) -> CancelAnswer:
        """Ask for the cancellation of an own call and return what came of it within ten seconds."""
        try:
            answer = await self._call("POST", f"/v1/calls/{call_id}/cancel", timeout_s=25.0)
        except HttpProblem as error:
            if error.code in ("already_terminal", "too_late", "unknown"):
                return error.code  # type: ignore[return-value]
            if error.code == "not_found":
                return "unknown"
            raise
        return "requested" if answer.status == 202 else "canceled"

    async def acknowledge(self, call_id: str) -> bool:
        """Tell the relay that the outcome of an own call is kept here; False before the call has ended.

        A call that the relay has forgotten counts as acknowledged.
        """
        try:
            await self._call("POST", f"/v1/calls/{call_id}/ack")
        except HttpProblem as error:
            if error.code == "conflict":
                return False
            if error.code != "not_found":
                raise
        return True

    async def ticket(self, htu: str) -> shapes.Ticket:
        """Exchange a token for a single-use ticket to ``htu``, a path with its query (RL-AUTH-027)."""
        body = msgspec.json.encode(shapes.TicketRequest(htu=htu))
        return self._decode(await self._call("POST", "/v1/tickets", body=body), shapes.Ticket)

    def token(self, method: str, path: str, number: int = 0) -> str:
        """Return a fresh log-in token for one request; ``path`` is without query (RL-AUTH-005).

        ``number`` is the place of the card in `Account.cards`.
        """
        return self.account.token(method, path, self.clock.now_ms(), secrets.token_urlsafe(16), number)

    async def recover(self, done: int, date: str | None, *, may_publish: bool = True) -> int | None:
        """Do what may be done about a 401, and return what to ask with the next time; None: nothing is left.

        ``done`` is 0 for the first refusal of a request; ``date`` is the answer's ``Date``. First the clock
        is corrected, and once more if another time is told then: one of the two was false. After that, in
        the development realm only, the keys are published again.
        """
        if done == 0:
            self.clock.correct(date)
            # Another process of this identity may have renewed its card.
            await asyncio.to_thread(self.account.refresh, self.clock.own_ms())
            return 1
        if done == 1 and self.clock.correct(date):
            return 2
        account = self.account
        # A card that was made here and whose publication was cut off logs nobody in.
        unfinished = account.card.card.serial > 1 and not account.was_published
        if done < 3 and may_publish and (self.address.is_local or unfinished):
            await self.publish()
            return 3
        return None

    def _own(self) -> str:
        return f"/v1/handles/{self.account.handle}"

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        body: bytes | None = None,
        timeout_s: float = 15.0,
        may_publish: bool = True,
        number: int = 0,
    ) -> Answer:
        """Make a request with a log-in token and return its successful answer."""
        done = 0
        while True:
            headers = dict(HEADERS, Authorization=f"Bearer {self.token(method, path, number)}")
            if body is not None:
                headers["Content-Type"] = "application/json"
            answer = await exchange(
                self.address,
                method,
                path + query,
                headers=headers,
                body=body,
                tls=self._tls,
                timeout_s=timeout_s,
            )
            if 200 <= answer.status < 300:
                return answer
            following = None
            if answer.status == 401:
                following = await self.recover(done, answer.header("Date"), may_publish=may_publish)
            if following is None:
                raise problem_of(self.address, f"{method} {path}", answer)
            done = following

    def _decode(self, answer: Answer, shape: type[_T]) -> _T:
        return decode(self.address, answer, shape)


async def relay_info(address: RelayAddress, tls: ssl.SSLContext | None) -> shapes.RelayInfo:
    """Return what a relay says of itself, for whoever has no account there. Raises as `RelayHttp.info`."""
    answer = await exchange(address, "GET", "/v1/relay", headers=HEADERS, tls=tls)
    if answer.status != 200:
        raise problem_of(address, "GET /v1/relay", answer)
    info = decode(address, answer, shapes.RelayInfo)
    if info.realm != address.realm:
        raise ConfigError(
            f"the relay at {address.base_url} says it is of realm {info.realm}, "
            f"not {address.realm}. Nothing was sent.",
            next_step=f"if that is the realm you mean: --realm {info.realm}",
        )
    if SUBPROTOCOL not in info.protocols:
        raise TransportError(
            f"the relay at {address.base_url} does not speak {SUBPROTOCOL}",
            code="version_unsupported",
            next_step="update Ringline here or at the relay",
        )
    return info
