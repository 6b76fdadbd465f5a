"""A relay that serves a key log, honestly until a test has it lie: to everybody, or to one client alone."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.clock import RelayClock, wall_ms
from ringline.client.contacts import Contacts
from ringline.client.home import Home
from ringline.client.http import RelayHttp
from ringline.client.keylog import KeyLog
from ringline.client.peers import Peers
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import LogError
from ringline.protocol.identity import SignedCard
from ringline.protocol.logentry import LogEntry, decode_entry, encode_entry
from ringline.protocol.signing import SigningKey
from ringline.protocol.tiles import Tile, encode_bundle
from ringline.relay.keylog import KeyLog as RelayLog
from ringline.relay.store import LogAppended
from ringline_testing.agents import seed
from ringline_testing.canned import Asked, CannedServer, canned_server, reply
from ringline_testing.signed import Owner

__all__ = ["LogClient", "LogRelay", "LogView", "log_relay"]

_MISSING = {"type": "x", "title": "x", "status": 404, "code": "not_found"}


@dataclass
class LogView:
    """One history, and the keys that are shown beside it. Change what it shows to make it lie."""

    realm: str
    signer: SigningKey
    entries: list[bytes] = field(default_factory=list[bytes])
    keys: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    cards: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    bundles: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Entries by number that are shown in the place of those under the root."""
    hidden: set[str] = field(default_factory=set[str])
    """Files that are said not to exist."""

    def log(self) -> RelayLog:
        """Return the log as a relay keeps it."""
        log = RelayLog(self.realm, self.signer)
        for number, entry in enumerate(self.entries):
            log.apply(LogAppended(index=number, entry=entry, card_id=None))
        return log

    def append(self, entry: LogEntry) -> int:
        """Append an entry and return its number."""
        self.entries.append(encode_entry(entry))
        return len(self.entries) - 1

    def publish(self, owner: Owner, *, log: bool = True) -> int:
        """Take a card (and the succession with which it comes), and show it. Returns its entry's number."""
        if owner.succession is not None and log:
            self.append(owner.succession)
        number = self.append(owner.card) if log else len(self.entries)
        self.show(owner, number)
        return number

    def show(self, owner: Owner, number: int | None, *, revoked: tuple[str, ...] = ()) -> None:
        """Show a card as the present one of its handle."""
        index = {} if number is None else {"log_index": number}
        shown: dict[str, Any] = {"handle": owner.handle, "revoked": list(revoked)}
        self.keys[owner.handle] = shown | owner.publication() | index
        self.cards[owner.card_id] = (
            shown
            | {"card": b64encode(owner.card.card.encode()), "card_sig": b64encode(owner.card.signature)}
            | index
        )

    def fork(self) -> "LogView":
        """Return a history that is the same up to now."""
        return LogView(
            self.realm, self.signer, list(self.entries), dict(self.keys), dict(self.cards), {}, set()
        )

    def file(self, path: str) -> bytes | None:
        """Return a file of the log."""
        if path in self.hidden:
            return None
        log = self.log()
        if path == "checkpoint":
            return log.checkpoint()
        try:
            tile = Tile.parse(path)
        except LogError:
            return None
        if tile.level is not None:
            return log.tile(tile)
        span = log.entries_of(tile)
        if span is None:
            return None
        return encode_bundle([self.bundles.get(number, self.entries[number]) for number in range(*span)])

    def cards_of(self, handle: str) -> list[SignedCard]:
        """Return the cards of a handle in the log."""
        found = [decode_entry(entry) for entry in self.entries]
        return [entry for entry in found if isinstance(entry, SignedCard) and entry.card.handle == handle]


class LogRelay:
    """The relay. ``honest`` is shown to whoever has no view of his own in ``views``."""

    def __init__(self, tmp_path: Path, realm: str) -> None:
        self.realm = realm
        self.signer = SigningKey(seed("log"))
        self.honest = LogView(realm, self.signer)
        self.views: dict[str, LogView] = {}
        self.info: dict[str, Any] = {
            "realm": realm,
            "version": "0",
            "protocols": ["ringline.v1"],
            "suites": [1, 2],
            "features": ["keylog"],
            "limits": {},
            "budgets": {},
            "started_at": 0,
            "log_key": b64encode(self.signer.public),
        }
        self.now = wall_ms()
        self.down = False
        self.damage: Callable[[str, bytes], bytes] = lambda path, data: data
        """Changes the files of the log, by path, on their way out."""
        self.server: CannedServer
        self._root = tmp_path

    @property
    def asked(self) -> list[str]:
        """The targets that were asked for."""
        return [asked.target for asked in self.server.asked]

    def respond(self, asked: Asked) -> bytes:
        """Answer by the view of whoever asks."""
        split = urlsplit(asked.target)
        if self.down and split.path.startswith("/v1/log/"):
            return reply(503, {"type": "x", "title": "x", "status": 503, "code": "unavailable"})
        if split.path == "/v1/relay":
            return reply(200, self.info)
        view = self.views.get(_iss(asked), self.honest)
        if split.path.startswith("/v1/log/"):
            path = split.path.removeprefix("/v1/log/")
            data = view.file(path)
            return reply(404, _MISSING) if data is None else reply(200, self.damage(path, data))
        card = parse_qs(split.query).get("card", [None])[0]
        handle = split.path.rsplit("/", 1)[1]
        body = view.keys.get(handle) if card is None else view.cards.get(card)
        return reply(404, _MISSING) if body is None else reply(200, body)

    async def client(self, handle: str = "alice", *, home: str | None = None, **options: Any) -> "LogClient":
        """Return a new process of a client, who has greeted the relay."""
        client = LogClient(self, handle, self._root / (home or handle))
        await client.greet(**options)
        return client

    def owner(self, handle: str, **members: Any) -> Owner:
        """Return somebody who has keys."""
        return Owner(handle=handle, port=0, realm=self.realm, **members)


class LogClient:
    """One identity with its own home, following the log."""

    def __init__(self, relay: LogRelay, handle: str, root: Path) -> None:
        self.home = Home(root)
        self.address = RelayAddress.parse(relay.server.url, relay.realm)
        clock = RelayClock(lambda: relay.now)
        self.account, _ = Account.open(self.home, self.address, handle, relay.now, plain=True)
        self.http = RelayHttp(self.address, self.account, clock)
        self.notes: list[str] = []
        self.log = KeyLog(self.home, self.http, clock, self.notes.append)
        self.contacts = Contacts(self.home, self.home.contacts_file(self.address))
        self.peers = Peers(
            self.address,
            self.http,
            self.contacts,
            clock,
            trust_new=True,
            log=self.log,
        )

    async def greet(self, *, told: tuple[bytes, ...] = ()) -> None:
        """Hear what the relay says of itself."""
        await self.log.greet(await self.http.info(), told)

    @property
    def owner(self) -> Owner:
        """The card of this identity as something that can be appended to a log."""
        return _Carded(self.account.card)

    def evidence(self) -> list[str]:
        """Return the texts of the files of evidence."""
        folder = self.home.evidence_folder(self.address)
        return [path.read_text() for path in sorted(folder.glob("*.txt"))] if folder.exists() else []


class _Carded(Owner):
    """An owner of whom only the card is known."""

    def __init__(self, card: SignedCard) -> None:
        super().__init__(handle=card.card.handle, port=0, realm=card.card.realm)
        self._card = card

    @property
    def card(self) -> SignedCard:
        return self._card


def _iss(asked: Asked) -> str:
    claims = asked.headers.get("authorization", "").partition(".")[2].partition(".")[0]
    if not claims:
        return ""
    iss: str = msgspec.json.decode(b64decode(claims))["iss"]
    return iss


@contextlib.asynccontextmanager
async def log_relay(tmp_path: Path, realm: str = "relay.example") -> AsyncGenerator[LogRelay]:
    """Run one on a free port of the loopback interface."""
    relay = LogRelay(tmp_path, realm)
    async with canned_server(relay.respond) as server:
        relay.server = server
        yield relay
