"""A relay as the subject: what it says about itself, and the stage of each of its cases."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from email.utils import parsedate_to_datetime
from typing import Final, final

import msgspec

from ringline.conformance.address import Address
from ringline.conformance.http import Answer, exchange
from ringline.conformance.identity import now_ms
from ringline.conformance.registry import Case
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.subject import Patience, Unjudgeable
from ringline.conformance.timeline import Timeline, shorten
from ringline.conformance.verdict import Failed
from ringline.protocol.limits import SUBPROTOCOL
from ringline.protocol.shapes import RelayInfo

__all__ = ["RelaySubject"]

_BY_ADDRESS: Final = ("claims_per_minute", "failed_logins_per_minute", "pairing_claims_per_minute")
"""Budgets that one case would use up for all others."""

_SLACK_MS: Final = 2_000
_ODD_CLOCK_MS: Final = 60_000


@final
class RelaySubject:
    """See `ringline.conformance.subject.Subject`. ``url`` is the relay's base URL."""

    def __init__(self, url: str, patience: Patience, *, invite: str | None = None) -> None:
        """``invite`` lets the suite enrol its identities where enrolment is not open."""
        self.name = url
        self.info: RelayInfo
        """What the relay says about itself, once `open` was successful."""
        self.remarks: list[str] = []
        """What a reader of the report should know about the subject."""
        self._address = Address.parse(url)
        self._patience = patience
        self._invite = invite
        self._offset_ms = 0
        self._run = secrets.token_hex(3)
        self._stages = 0
        self._durable = False

    async def open(self) -> None:
        """See `Subject.open`."""
        answer = await self._ask()
        try:
            self.info = msgspec.json.decode(answer.body, type=RelayInfo)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise Unjudgeable(
                f"GET /v1/relay of {self._address} answers {answer.status} with what is no description of a"
                f" relay: {shorten(answer.body)}"
            ) from None
        if SUBPROTOCOL not in self.info.protocols:
            raise Unjudgeable(f"the relay speaks {', '.join(self.info.protocols)} and not {SUBPROTOCOL}")
        self.name = f"{self._address} (realm {self.info.realm}, version {self.info.version})"
        limited = [name for name in _BY_ADDRESS if self.info.budgets.get(name)]
        if limited:
            settings = " ".join(f"{name.upper()}=0" for name in limited)
            raise Unjudgeable(
                f"the relay limits what may come from one address, and the whole suite does: set {settings}"
            )
        self._set_clock(answer)
        await self._try_enrolment()

    def _set_clock(self, answer: Answer) -> None:
        try:
            told = parsedate_to_datetime(answer.header("date") or "").timestamp() * 1000
        except ValueError:
            return
        offset = int(told) - now_ms()
        # The header has whole seconds: less than that tells nothing.
        if abs(offset) > _SLACK_MS:
            self._offset_ms = offset
        if abs(offset) > _ODD_CLOCK_MS:
            self.remarks.append(f"its clock differs from this machine's by {offset // 1000} s")

    async def _try_enrolment(self) -> None:
        """Enrol two identities and store a call: what cannot be had is known before every case misses it."""
        timeline = Timeline()
        stage = self._stage("open", timeline)
        try:
            async with asyncio.timeout(self._patience.case), stage:
                caller, callee = await stage.identity("alice"), await stage.identity("bob")
                await stage.set_policy(callee, offline=True, accept="anyone")
                line = await stage.call_line(caller, callee.handle)
                await line.send(caller.request(delivery_mode="durable"))
                self._durable = (await line.next()).get("type") == "call_queued"
        except Failed as error:
            raise Unjudgeable(
                f"the suite cannot enrol and call at {self._address}: expected {error.expected},"
                f" got {error.actual}"
            ) from None
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            raise Unjudgeable(
                f"{self._address} broke off while the suite enrolled: {_describe(error)}"
            ) from None
        if not self._durable:
            self.remarks.append("it stores no durable calls")

    async def _ask(self) -> Answer:
        try:
            return await exchange(self._address, "GET", "/v1/relay", patience=self._patience.answer)
        except TimeoutError:
            raise Unjudgeable(
                f"{self._address} takes connections and does not answer GET /v1/relay"
            ) from None
        except OSError as error:
            raise Unjudgeable(f"{self._address} is not reachable: {_describe(error)}") from None
        except (EOFError, ValueError) as error:
            raise Unjudgeable(f"what answers at {self._address} is no HTTP: {_describe(error)}") from None

    def missing(self, case: Case) -> str | None:
        """See `Subject.missing`."""
        shown = self.info.limits | {name: value for name, value in self.info.budgets.items() if value}
        needed = case.needs.bounds.items()
        long = {name: most for name, most in needed if shown.get(name, most + 1) > most}
        if not long:
            return None
        return "needs " + ", ".join(f"{name.upper()}={most}" for name, most in long.items())

    def lacking(self, case: Case) -> str | None:
        """See `Subject.lacking`."""
        for feature in case.needs.features:
            if not (self._durable if feature == "durable" else feature in self.info.features):
                return f"the relay does not have {feature}"
        return None

    @contextlib.asynccontextmanager
    async def stage(self, case: Case, timeline: Timeline) -> AsyncGenerator[RelayStage]:
        """See `Subject.stage`."""
        async with self._stage(case.name, timeline) as stage:
            yield stage

    def _stage(self, name: str, timeline: Timeline) -> RelayStage:
        del name
        self._stages += 1
        return RelayStage(
            self._address,
            self.info,
            timeline,
            self._patience,
            tag=f"{self._run}{self._stages:x}",
            offset_ms=self._offset_ms,
            invite=self._invite,
        )

    async def trouble(self) -> str | None:
        """See `Subject.trouble`."""
        try:
            await self._ask()
        except Unjudgeable as error:
            return str(error)
        return None

    async def close(self) -> None:
        """See `Subject.close`."""


def _describe(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
