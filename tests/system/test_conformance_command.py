"""`ringline-conformance` as a command: what it ends with, what it says, and that it always ends."""

import asyncio
import contextlib
import json
import socket
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringline.conformance.cli import app
from ringline_testing.relay import running_relay

SUITE = Path(sys.executable).with_name("ringline-conformance")
SLOW_CASE = "relay.admit.unknown_handle_is_not_told_at_once"


def command(*arguments: str) -> tuple[int, str]:
    """Run the command in this process; return its exit code and all that it said."""
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


@contextlib.contextmanager
def answering(reply: bytes | None) -> Generator[str]:
    """Serve something that is no relay: each connection gets ``reply``, or nothing at all for None."""
    listening = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                held.append(connection)
                if reply is not None:
                    connection.recv(65_536)
                    connection.sendall(reply)
                    connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)
        for connection in held:
            connection.close()


def page(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


HALF_A_RELAY = json.dumps(
    {
        "realm": "localhost",
        "version": "1",
        "protocols": ["ringline.v1"],
        "suites": [1, 2],
        "features": [],
        "limits": {},
        "budgets": {},
        "started_at": 0,
    }
).encode()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (None, "does not answer GET /v1/relay"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Len", "is no HTTP"),
        (page(b"<html>It works!</html>"), "no description of a relay"),
        (page(b"\xff\xfe"), "no description of a relay"),
        (page(HALF_A_RELAY), "cannot enrol"),
        (page(HALF_A_RELAY.replace(b"ringline.v1", b"ringline.v9")), "not ringline.v1"),
        (
            page(HALF_A_RELAY.replace(b'"budgets": {', b'"budgets": {"claims_per_minute": 20')),
            "set CLAIMS_PER_MINUTE=0",
        ),
    ],
)
def test_what_is_no_relay_is_not_judged_and_it_says_why(reply: bytes | None, said: str) -> None:
    with answering(reply) as url:
        code, output = command("relay", "--url", url, "--timeout-scale", "0.1", "sync")
    assert (code, said in output) == (2, True), output


def test_nobody_at_the_port_is_not_judged() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        code, output = command("relay", "--url", f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert code == 2
    assert "is not reachable" in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["relay"], "--url"),
        (["relay", "--url", "localhost:7575"], "no base URL"),
        (["relay", "--url", "ftp://localhost"], "no base URL"),
        (["relay", "--url", "http://127.0.0.1:7575/v1"], "no base URL"),
        (["relay", "--url", "http://127.0.0.1:99999"], "no URL"),
        (["relay", "--url", "http://127.0.0.1:1", "relay.sink"], "no case is named by 'relay.sink'"),
        (["list", "no-such-case"], "no case is named by 'no-such-case'"),
        (["relay", "--url", "http://127.0.0.1:1", "--seed", "x"], "--seed"),
    ],
)
def test_a_wrong_command_is_told_and_ends_with_2(arguments: list[str], said: str) -> None:
    code, output = command(*arguments)
    assert (code, said in output) == (2, True), output


def test_an_expected_failure_that_is_no_case_is_told(tmp_path: Path) -> None:
    listed = tmp_path / "expected.txt"
    listed.write_text("# known\nrelay.sync.no_such_case  # of ours\n")
    code, output = command("relay", "--url", "http://127.0.0.1:1", "--expected-failures", str(listed))
    assert (code, "relay.sync.no_such_case" in output) == (2, True), output


def test_the_list_names_every_case_and_the_settings_that_run_them() -> None:
    code, output = command("list", "--role", "relay")
    assert code == 0
    assert f"{SLOW_CASE}  MUST  RL-ADMIT-017" in output
    code, output = command("list", "--role", "relay", "--set")
    assert code == 0
    assert "--set RING_BOUND_MS=" in output


async def judge(url: str, *arguments: str) -> tuple[int, str]:
    """Run the command as a process of its own on a relay in this one."""
    process = await asyncio.create_subprocess_exec(
        SUITE, "relay", "--url", url, *arguments, stdout=-1, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_a_relay_that_keeps_the_rules_is_conformant_and_the_reports_say_what_was_seen(
    tmp_path: Path,
) -> None:
    reports = {name: tmp_path / f"report.{name}" for name in ("json", "junit")}
    options = [part for name, file in reports.items() for part in (f"--{name}", str(file))]
    async with running_relay() as relay:
        code, output = await judge(relay.url, "RL-SYNC-002", "RL-SYNC-012", *options)
    assert (code, "Conformant." in output) == (0, True), output
    told = json.loads(reports["json"].read_bytes())
    assert told["counts"]["pass"] >= 1
    assert told["counts"]["neutral"] == 1
    assert "--set RING_BOUND_MS=" in output
    passed = next(case for case in told["cases"] if case["id"] == "relay.sync.answered_after_accepted")
    assert any('"state": "answered"' in event[3] for event in passed["timeline"])
    suite = ElementTree.fromstring(reports["junit"].read_bytes())
    names = [case["id"].rpartition(".")[2] for case in told["cases"]]
    assert [case.get("name") for case in suite.iter("testcase")] == names


async def test_a_relay_that_breaks_a_rule_is_not_conformant_until_that_is_expected(tmp_path: Path) -> None:
    listed = tmp_path / "expected.txt"
    listed.write_text(f"{SLOW_CASE}\n")
    async with running_relay(settings={"unknown_handle_release_ms": 0}) as relay:
        code, output = await judge(relay.url, SLOW_CASE)
        assert code == 1, output
        assert "expected 10 ms at least" in output
        assert "Not conformant." in output
        code, output = await judge(relay.url, SLOW_CASE, "--expected-failures", str(listed))
        assert code == 0, output
