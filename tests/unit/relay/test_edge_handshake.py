"""Requests read and answers written, without a socket."""

import json

import pytest

from ringline.relay.edge import Handshake, Refused
from ringline.relay.edge_handshake import UpgradeError, answer, read_upgrade, switching_protocols

# The example of RFC 6455 §1.3.
SAMPLE_KEY = "dGhlIHNhbXBsZSBub25jZQ=="
SAMPLE_ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

USUAL = {
    "host": "relay",
    "upgrade": "websocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": SAMPLE_KEY,
}


def read(target: str = "/", method: str = "GET", /, **changes: str | None) -> Handshake:
    """Read the usual request with other headers; ``_`` stands for ``-``, None leaves one out."""
    headers = {**USUAL, **{name.replace("_", "-"): value for name, value in changes.items()}}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    request = "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode("latin-1")
    upgrade = read_upgrade(request, remote=("::1", 1), secure=True, received=1.5)
    assert upgrade.key == SAMPLE_KEY
    return upgrade.handshake


def refused(target: str = "/", method: str = "GET", /, **changes: str | None) -> Refused:
    """Return the answer to a request that cannot be granted."""
    with pytest.raises(UpgradeError) as caught:
        read(target, method, **changes)
    problem = json.loads(caught.value.refused.body)
    assert problem["status"] == caught.value.refused.status
    return caught.value.refused


def test_a_request_is_read() -> None:
    request = read("/v1/call/bob?x=1?2", x_more="a: b")
    assert (request.path, request.query) == ("/v1/call/bob", "x=1?2")
    assert request.one("x-more") == "a: b"
    assert (request.remote, request.secure, request.received) == (("::1", 1), True, 1.5)
    assert request.subprotocols() == ()


def test_subprotocols_are_a_list_of_tokens() -> None:
    assert read(sec_websocket_protocol=" b , a,,").subprotocols() == ("b", "a")


@pytest.mark.parametrize("upgrade", ["WebSocket", "websocket"])
@pytest.mark.parametrize("connection", ["upgrade", "Upgrade", "x, UPGRADE"])
def test_upgrade_and_connection_are_tokens_of_any_case(upgrade: str, connection: str) -> None:
    read(upgrade=upgrade, connection=connection)


@pytest.mark.parametrize(
    "changes",
    [
        {"upgrade": None},
        {"upgrade": "h2c"},
        {"upgrade": "websocket, h2c"},
        {"connection": None},
        {"connection": "close"},
        {"connection": "upgraded"},
        {"host": None},
        {"content_length": "1"},
        {"content_length": "00"},
        {"transfer_encoding": "chunked"},
        {"sec_websocket_key": None},
        {"sec_websocket_key": ""},
        {"sec_websocket_key": "AAAAAAAAAAAAAAAAAAAAAAAA"},
        {"sec_websocket_key": "AAAAAAAAAAAAAAAAAAA=AA=="},
        {"sec_websocket_key": "\xe9AAAAAAAAAAAAAAAAAAAAA=="},
    ],
)
def test_what_is_missing_or_wrong_is_malformed(changes: dict[str, str | None]) -> None:
    assert refused(**changes).status == 400


def test_an_empty_body_is_no_body() -> None:
    read(content_length="0")


@pytest.mark.parametrize("version", [None, "8", "013", "13, 8"])
def test_another_version_is_told_which_one_is_spoken(version: str | None) -> None:
    answer_ = refused(sec_websocket_version=version)
    assert answer_.status == 426
    assert dict(answer_.headers)["sec-websocket-version"] == "13"


@pytest.mark.parametrize("method", ["POST", "HEAD", "get"])
def test_only_get_opens(method: str) -> None:
    assert refused("/", method).status == 405
    assert ("allow", "GET") in refused("/", method).headers


@pytest.mark.parametrize("target", ["", "*", "a/b", "/\xe9", "/a#b", "ws://x/", "http://[/"])
def test_a_target_is_a_path_or_an_http_uri(target: str) -> None:
    assert refused(target).status == 400


def test_an_absolute_target_is_its_path() -> None:
    assert (read("https://x:1/a?b").path, read("https://x:1/a?b").query) == ("/a", "b")
    assert read("http://x").path == "/"


def test_the_answer_proves_to_have_read_the_key() -> None:
    lines = switching_protocols(SAMPLE_KEY, "ringline.v1", (("date", "now"),)).decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 101 Switching Protocols"
    assert f"sec-websocket-accept: {SAMPLE_ACCEPT}" in lines
    assert "sec-websocket-protocol: ringline.v1" in lines
    assert "date: now" in lines
    assert lines[-2:] == ["", ""]
    assert b"protocol:" not in switching_protocols(SAMPLE_KEY, None, ())


def test_a_refusal_names_its_length_and_the_end() -> None:
    refused_ = Refused(status=401, headers=(("Server", "mine"),), body=b"no")
    assert answer(refused_, (("date", "now"), ("server", "other"))) == (
        b"HTTP/1.1 401 Unauthorized\r\ndate: now\r\nServer: mine\r\n"
        b"content-length: 2\r\nconnection: close\r\n\r\nno"
    )


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\rb"])
def test_a_line_break_cannot_be_written(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        answer(Refused(status=400, headers=(("x", value),)), ())
    with pytest.raises(ValueError, match="line break"):
        switching_protocols(SAMPLE_KEY, value, ())
