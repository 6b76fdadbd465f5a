"""A development relay that keeps nothing, started again: whoever was there before is let in as he was."""

from pathlib import Path

import pytest

from ringline.caller import AsyncCaller
from ringline.client import Account, Home, RelayAddress, RelayClock, RelayHttp
from ringline.client.renewal import IdentityKey
from ringline.client.rotation import rotate, succeed
from ringline.listener import Call, Listener
from ringline.protocol.errors import HttpProblem
from ringline.protocol.statements import Reason
from ringline_testing.relay import running_relay
from ringline_testing.signed import Owner, now_ms

BOUND_S = 60.0


def place_of(account: Account) -> IdentityKey:
    return IdentityKey(account.home.identity_key_file(account.address, account.handle))


async def test_an_identity_past_its_first_card_is_let_in_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "bob")
    async with running_relay() as relay:
        address, port = RelayAddress.parse(relay.url), relay.port
        account = Account.create(home, address, "bob", now_ms(), plain=True, suites=[1])
        http = RelayHttp(address, account, RelayClock())
        await http.publish()
        # A second card, and a third of the next identity key: the succession comes along.
        assert (await rotate(http, place_of(account), reason=Reason.RETIRED)).made
        assert (await succeed(http, place_of(account), place_of(account))).made
        assert account.card.card.serial == 3
    async with running_relay(port=port) as relay:
        listener = Listener("bob", relay=relay.url, home=home)

        @listener.answer
        def answer(call: Call) -> str:
            return f"heard {call.message}"

        del answer
        async with (
            listener.serving(),
            AsyncCaller("alice", relay=relay.url, home=tmp_path / "alice", note=lambda text: None) as alice,
        ):
            reply = await alice.call("bob", "x", timeout=BOUND_S)
        assert (reply.text, reply.signed_by.fingerprint) == ("heard x", account.fingerprint)


async def test_a_handle_that_somebody_else_has_taken_meanwhile_stays_his(tmp_path: Path) -> None:
    home = Home(tmp_path / "bob")
    async with running_relay() as relay:
        address, port = RelayAddress.parse(relay.url), relay.port
        account = Account.create(home, address, "bob", now_ms(), plain=True, suites=[1])
        http = RelayHttp(address, account, RelayClock())
        await http.publish()
        assert (await rotate(http, place_of(account))).made
    async with running_relay(port=port) as relay:
        other = await Owner.enrolled("bob", relay.port)
        with pytest.raises(HttpProblem, match="is taken") as caught:
            await http.publish()
        assert "without --db" in (caught.value.next_step or "")
        assert (await other.ask("GET", "/v1/handles/bob")).json()["card"] == other.publication()["card"]
