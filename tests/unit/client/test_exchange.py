"""One HTTP exchange: bounded in size and time, ended when nobody waits, redirects not followed."""

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path

import pytest

from ringline.client.address import RelayAddress
from ringline.client.exchange import ANSWER_BYTES, exchange
from ringline.protocol.errors import TransportError
from ringline_testing.canned import canned_server, reply


async def get(url: str, *, timeout_s: float = 5.0) -> bytes:
    answer = await exchange(RelayAddress.parse(url), "GET", "/v1/relay", headers={}, timeout_s=timeout_s)
    return answer.body


async def test_a_request_goes_out_as_told_and_its_answer_comes_back() -> None:
    async with canned_server(
        lambda asked: reply(404, {"x": 1}, date="now", content_type="Text/Plain; x=y")
    ) as server:
        address = RelayAddress.parse(server.url + "/prefix")
        answer = await exchange(
            address, "PUT", "/v1/x?y=1", headers={"Authorization": "Bearer t"}, body=b"{}"
        )
        assert (answer.status, answer.body, answer.header("DATE")) == (404, b'{"x":1}', "now")
        assert answer.content_type == "text/plain"
        asked = server.asked[0]
        assert (asked.method, asked.target, asked.body) == ("PUT", "/prefix/v1/x?y=1", b"{}")
        assert asked.headers["authorization"] == "Bearer t"
        assert asked.headers["host"] == f"127.0.0.1:{server.port}"


async def test_a_redirect_is_an_answer_and_not_followed() -> None:
    async with canned_server(lambda asked: reply(302, location="http://127.0.0.1:1/")) as server:
        answer = await exchange(RelayAddress.parse(server.url), "GET", "/v1/relay", headers={})
        assert answer.status == 302
        assert len(server.asked) == 1


async def test_an_answer_that_is_too_large_is_not_read() -> None:
    async with canned_server(lambda asked: reply(200, b"x" * (ANSWER_BYTES + 1))) as server:
        with pytest.raises(TransportError, match="larger than any answer"):
            await get(server.url)


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    left = asyncio.Event()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        writer.close()
        left.set()

    server = await asyncio.start_server(pour, "127.0.0.1", 0)
    async with server:
        with pytest.raises(TransportError, match="larger than any answer"):
            await get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=20)
        await asyncio.wait_for(left.wait(), 30)


@pytest.mark.parametrize(
    "response", [b"\x00\x01\x02\r\n\r\n", b"SSH-2.0-x\r\n", b"", b"HTTP/1.1 abc\r\n\r\n"]
)
async def test_what_is_no_http_is_told(response: bytes) -> None:
    async with canned_server(lambda asked: response) as server:
        with pytest.raises(TransportError, match=r"does not speak HTTP|broke"):
            await get(server.url)


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n64\r\n{}",
    ],
    ids=["length", "chunk"],
)
async def test_an_answer_that_was_cut_off_is_no_answer(response: bytes) -> None:
    async with canned_server(lambda asked: response) as server:
        with pytest.raises(TransportError, match="broke before the answer was there"):
            await get(server.url)


async def test_silence_ends_in_time_and_the_connection_is_closed() -> None:
    async with canned_server(lambda asked: None) as server:
        with pytest.raises(TransportError, match="did not answer within 0 s"):
            await get(server.url, timeout_s=0.2)
        await asyncio.wait_for(server.gone.wait(), 30)


async def test_dripping_bytes_do_not_stretch_the_time() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        with pytest.raises(TransportError, match="did not answer"):
            await get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=0.3)


async def test_a_cancelled_wait_ends_the_exchange_and_its_thread() -> None:
    async with canned_server(lambda asked: None) as server:
        task = asyncio.create_task(get(server.url, timeout_s=60))
        await asyncio.wait_for(server.came.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.gone.wait(), 30)
        for thread in threading.enumerate():
            if thread.name == "ringline-http":
                await asyncio.to_thread(thread.join, 5)
                assert not thread.is_alive()


async def test_nothing_listens() -> None:
    async with canned_server(lambda asked: None) as server:
        url = server.url
    with pytest.raises(TransportError, match=r"nothing listens at .* Nothing was sent"):
        await get(url)


async def test_a_name_that_does_not_exist() -> None:
    address = RelayAddress.parse("https://does-not-exist.invalid")
    with pytest.raises(TransportError, match="is not known"):
        await exchange(address, "GET", "/", headers={}, tls=ssl.create_default_context())


async def test_a_port_that_speaks_no_tls() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = RelayAddress.parse(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(TransportError, match="no TLS connection"):
            await exchange(address, "GET", "/", headers={}, tls=ssl.create_default_context())


async def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        address = RelayAddress.parse(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(TransportError, match=r"certificate of .* does not hold"):
            await exchange(address, "GET", "/", headers={}, tls=ssl.create_default_context())


def self_signed(folder: Path) -> Path:
    """Return a file with a key and a certificate for 127.0.0.1 that it signed itself."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
