"""Getting in and out over HTTP: keys are published, invites made, identities removed."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ringline.protocol import names, shapes
from ringline.protocol.errors import HttpProblem
from ringline.protocol.instant import Instant
from ringline.relay.auth import Authenticator, Login
from ringline.relay.directory import Decision
from ringline.relay.doorkeeper import subject_of
from ringline.relay.enrolment import Enrolment
from ringline.relay.invites import Minted
from ringline.relay.publication import Publication, read_publication
from ringline.relay.registry import Registry
from ringline.relay.requests import authorization, check_owner, handle_of, no_body, parameters, read
from ringline.relay.responses import reply
from ringline.relay.strangers import Strangers
from ringline.relay.switchboard import Switchboard

__all__ = ["AccessRoutes"]

_Endpoint = Callable[[Request], Awaitable[Response]]

_SECOND_MS: Final = 1_000
_PAGE: Final = 50
_LIMIT: Final = re.compile(r"[1-9][0-9]?|100")


@final
class AccessRoutes:
    """The routes of one relay by which identities come and go."""

    def __init__(
        self,
        registry: Registry,
        authenticator: Authenticator,
        board: Switchboard,
        enrolment: Enrolment,
        strangers: Strangers,
        *,
        login: Callable[[Request], Login],
        mint: Callable[[], Minted],
    ) -> None:
        """``login`` lets the enrolled through, ``mint`` draws invites."""
        self._registry = registry
        self._directory = registry.directory
        self._authenticator = authenticator
        self._board = board
        self._enrolment = enrolment
        self._strangers = strangers
        self._login = login
        self._mint = mint

    def handle(self) -> Mapping[str, _Endpoint]:
        """Return the methods of a handle that change who has it."""
        return {"PUT": self._put_keys, "DELETE": self._delete_handle}

    def table(self) -> tuple[tuple[str, Mapping[str, _Endpoint]], ...]:
        """Return the other paths with their methods."""
        return (
            ("/v1/invites", {"GET": self._get_invites, "POST": self._post_invite}),
            ("/v1/invites/{invite_id}", {"DELETE": self._delete_invite}),
        )

    async def _put_keys(self, request: Request) -> Response:
        handle = handle_of(request)
        parameters(request)
        subject = subject_of(self._strangers, request.scope)
        self._strangers.check_claim(subject, self._board.clock())
        own = False
        try:
            now = self._board.clock()
            body = await read(request, shapes.KeysPublication)
            # Others from there may have come while it was on its way; from here on nobody comes between.
            self._strangers.check_claim(subject, self._board.clock())
            # RL-HTTP-019: the token is verified against the card in the body, after the keys in the body.
            offer = read_publication(body, realm=self._directory.realm, now=now)
            own = self._directory.continues(offer)
            card = offer.card.card
            login = self._authenticator.login_under(
                card, authorization(request), request.method, request.url.path, self._board.clock()
            )
            if login is None:
                raise HttpProblem(code="unauthorized")
            check_owner(login, handle)
            return await self._publish(offer, None if body.invite is msgspec.UNSET else body.invite, now)
        finally:
            if not own:
                self._strangers.claimed(subject, self._board.clock())

    async def _publish(self, offer: Publication, invite: str | None, now: Instant) -> Response:
        handle = offer.card.card.handle
        before: str | None = None

        def decide() -> Decision:
            nonlocal before
            before = self._directory.current_card_id(handle)
            return self._enrolment.publish(offer, invite, now)

        decision = await self._registry.commit(decide)
        if decision.refusal is not None:
            raise decision.refusal
        if decision.changes and before is not None:
            self._board.card_replaced(handle, before)
        return reply(self._directory.published(handle), 201 if decision.created else 200)

    async def _delete_handle(self, request: Request) -> Response:
        login = self._login(request)
        handle = handle_of(request)
        parameters(request)
        await no_body(request)
        now = self._board.clock()
        await self._registry.commit_for(login, now, lambda: self._enrolment.remove(handle, login.handle, now))
        self._board.remove(handle)
        return reply({"handle": handle})

    # --- invites

    async def _post_invite(self, request: Request) -> Response:
        login = self._login(request)
        parameters(request)
        body = await read(request, shapes.InviteRequest)
        now, minted = self._board.clock(), self._mint()
        await self._registry.commit_for(
            login,
            now,
            lambda: Decision(self._directory.invites.issue(login.handle, body, minted, now), created=True),
        )
        made = shapes.InviteMade(
            id=minted.id, invite=minted.text, expires_at=now.wall + body.ttl_s * _SECOND_MS
        )
        return reply(made, 201)

    async def _get_invites(self, request: Request) -> Response:
        login = self._login(request)
        given = parameters(request, "cursor", "limit")
        limit, cursor = given.get("limit", str(_PAGE)), given.get("cursor")
        if not _LIMIT.fullmatch(limit):
            raise HttpProblem("limit is not a number from 1 to 100", code="malformed")
        if cursor is not None and not names.is_invite_id(cursor):
            raise HttpProblem("cursor is not the next of a page", code="malformed")
        page = self._directory.invites.page(login.handle, cursor, int(limit), self._board.clock())
        return reply(page)

    async def _delete_invite(self, request: Request) -> Response:
        login = self._login(request)
        parameters(request)
        await no_body(request)
        invite_id: str = request.path_params["invite_id"]
        now = self._board.clock()
        any_of = self._enrolment.is_admin(login.handle)
        await self._registry.commit_for(
            login,
            now,
            lambda: Decision(self._directory.invites.withdraw(invite_id, login.handle, now, any_of=any_of)),
        )
        return reply({"id": invite_id})
