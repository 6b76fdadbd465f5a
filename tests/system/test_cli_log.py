"""`ringline log`: the whole key log read, its fork told on one screen, and cards for the own handle."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from ringline.protocol.encoding import b64decode
from ringline.protocol.identity import SignedCard
from ringline_testing.canned import Asked, reply
from ringline_testing.commands import Scene
from ringline_testing.lying_log import LogRelay, log_relay

pytestmark = pytest.mark.system


@pytest.fixture
def scene(tmp_path: Path) -> Generator[Scene]:
    with Scene(tmp_path) as made:
        yield made


def enrolling(relay: LogRelay) -> None:
    """Have the scripted relay take cards, as a real one does."""
    answer = relay.server.respond

    def respond(asked: Asked) -> bytes | None:
        if asked.method != "PUT":
            return answer(asked)
        body = json.loads(asked.body)
        card = SignedCard.parse(b64decode(body["card"]), b64decode(body["card_sig"]))
        relay.honest.append(card)
        told = {"handle": card.card.handle, "card_id": "A" * 43, "serial": 1, "prekey_epoch": 1}
        return reply(200, told)

    relay.server.respond = respond


def told(answer: "subprocess.CompletedProcess[bytes]", code: int) -> str:
    assert answer.returncode == code, answer
    text = answer.stderr.decode()
    assert "Traceback" not in text
    return text


def test_a_whole_log_is_read_and_nothing_contradicts(scene: Scene) -> None:
    scene.start_relay(words=("--db", str(scene.folder / "relay.db")))
    scene.start_listener("echo", "cat")
    assert scene.run("call", "echo", "hello", "--as", "alice").returncode == 0
    answer = scene.run("log", "verify", "--as", "alice")
    assert (answer.returncode, told(answer, 0)) == (0, "")
    text = answer.stdout.decode()
    assert re.search(r"^  entries +2, root [A-Za-z0-9_-]{43}$", text, re.MULTILINE)
    assert re.search(r"^  holds +2 cards of 2 handles, 0 successions, 0 revocations$", text, re.MULTILINE)
    assert re.search(r"^  yours +entry 1$", text, re.MULTILINE)
    assert re.search(r"^  pinned +2 of the 2 ", text, re.MULTILINE)
    assert text.endswith("✓ nothing contradicts\n")
    document = json.loads(scene.run("log", "verify", "--as", "alice", "--json").stdout)
    assert document["ok"]
    assert (document["log"]["size"], document["log"]["own_entries"]) == (2, [1])
    answer = scene.run("log", "watch", "--as", "alice", "--once")
    assert (answer.returncode, answer.stdout.decode()) == (
        0,
        f"watching the key log of {scene.relay} as alice\n",
    )


def test_a_relay_without_a_log_is_said_to_have_none(scene: Scene) -> None:
    scene.start_relay()
    for words in (("verify",), ("watch", "--once")):
        answer = scene.run("log", *words)
        assert "this relay keeps no key log" in told(answer, 2)
        assert answer.stdout == b""


async def test_lies_of_the_relay_are_told_on_one_screen_each(tmp_path: Path) -> None:
    async with log_relay(tmp_path) as relay:
        enrolling(relay)
        relay.honest.publish(relay.owner("bob"))
        relay.honest.publish(relay.owner("carol"))
        with Scene(tmp_path, relay.server.url) as scene:

            async def run(*words: str, code: int) -> str:
                options = ("--realm", relay.realm, "--as", "alice")
                answer = await asyncio.to_thread(scene.run, *words, *options)
                text = told(answer, code)
                assert len(text.splitlines()) <= 20
                return text

            await run("log", "verify", "--plain", code=0)

            # A card for the own handle.
            relay.honest.append(relay.owner("alice", serial=2).card)
            text = await run("log", "watch", "--once", code=26)
            assert "a card for your handle alice that you did not publish" in text
            assert "log_forked · exit 26" in text
            text = await run("log", "verify", "--seen", code=26)
            assert "does not hold in one place" in text
            assert "you did not publish" not in text
            assert (await run("log", "watch", "--once", code=0)) == ""

            # Another history.
            relay.honest.entries[1] = relay.honest.entries[0]
            relay.honest.publish(relay.owner("dave"))
            for words in (("log", "verify"), ("call", "dave", "hello", "--trust-new")):
                text = await run(*words, code=26)
                assert "is not what it was" in text
                assert "seen before  4 entries" in text
                assert "shown now    5 entries" in text
            (evidence,) = scene.home.rglob("evidence/*.txt")
            assert os.stat(evidence).st_mode & 0o777 == 0o600
            assert str(evidence) in text
