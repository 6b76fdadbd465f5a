"""One HTTP exchange: a request, its answer, bounds on both size and time.

The standard library's client runs in a thread of its own for each exchange. Whoever awaits it may be
cancelled at any moment: the socket is then shut down, which ends the thread. Redirects are answers like
any other and never followed, because the log-in token is for this relay alone.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Final, final

from ringline.client.address import RelayAddress
from ringline.protocol.errors import TransportError

__all__ = ["ANSWER_BYTES", "Answer", "exchange", "tls_context", "unreachable"]

ANSWER_BYTES: Final = 4 * 1_048_576
"""An answer above this is not read; the largest is a call record with its outcome."""

_CONNECT_S: Final = 10.0


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: status, headers (names in any case), body."""

    status: int
    headers: Message
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the first header of that name, or None."""
        value: str | None = self.headers.get(name)
        return value

    @property
    def content_type(self) -> str:
        """The media type without parameters, lower-case."""
        return (self.header("Content-Type") or "").partition(";")[0].strip().lower()


def tls_context(address: RelayAddress) -> ssl.SSLContext | None:
    """Return the TLS settings for a relay, None without TLS: the system's authorities, names checked."""
    return ssl.create_default_context() if address.is_secure else None


async def exchange(
    address: RelayAddress,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 15.0,
) -> Answer:
    """Send one request to ``path`` of the relay and return the answer, whatever its status.

    ``timeout_s`` bounds all of it, in seconds; cancelling the awaiting task ends it at once.

    Raises:
        TransportError: no connection, no HTTP, an answer that is too large, or no end in time.
    """
    attempt = _Attempt(address, method, path, headers, body, tls, timeout_s)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer] = loop.create_future()
    # A daemon, so that an exchange that hangs in a look-up of a name holds no program back from its end.
    thread = threading.Thread(target=attempt.run, args=(loop, future), name="ringline-http", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise TransportError(
            f"this computer gives no thread for a request: {error}. Nothing was sent.",
            next_step="end other programs, or raise the limit of processes",
        ) from None
    try:
        async with asyncio.timeout(timeout_s):
            return await future
    except TimeoutError:
        raise TransportError(
            f"the relay at {address.base_url} did not answer within {timeout_s:.0f} s",
            next_step="try again, or look at the relay: is it running, is it loaded?",
        ) from None
    finally:
        attempt.abort()


@final
class _Attempt:
    """The part that runs in the thread."""

    def __init__(
        self,
        address: RelayAddress,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        tls: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        self._address = address
        self._method = method
        self._path = path
        self._headers = headers
        self._body = body
        self._tls = tls
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = False
        self._connected = False

    def run(self, loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Answer]") -> None:
        """Do it and hand the result to the loop, if the loop is still there."""
        result: Answer | TransportError
        try:
            result = self._run()
        except TransportError as error:
            result = error
        except http.client.IncompleteRead:
            result = self._broken()
        except OSError as error:
            result = self._broken() if self._connected else unreachable(self._address, error)
        except (http.client.HTTPException, ValueError):
            result = _no_http(self._address)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, future, result)

    def abort(self) -> None:
        """End the exchange, from another thread."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> Answer:
        connection = self._connection()
        try:
            connection.connect()
            with self._lock:
                self._socket = connection.sock
                if self._aborted:
                    raise OSError("given up")
            # From here on every single read is bounded too.
            connection.sock.settimeout(self._timeout_s + 1)
            self._connected = True
            connection.request(
                self._method, self._address.prefix + self._path, body=self._body, headers=dict(self._headers)
            )
            # The response holds the socket open for itself, so it is closed too, read to its end or not.
            with connection.getresponse() as response:
                body = response.read(ANSWER_BYTES + 1)
                if len(body) > ANSWER_BYTES:
                    raise TransportError(
                        f"the answer of {self._address.base_url} is larger than any answer of a relay"
                    )
                if response.length:
                    # Less came than was announced, which the library leaves to its user to see.
                    raise OSError("cut off")
                return Answer(response.status, response.headers, body)
        finally:
            with self._lock:
                self._socket = None
                connection.close()

    def _broken(self) -> TransportError:
        return TransportError(
            f"the connection to {self._address.base_url} broke before the answer was there",
            next_step="try again",
        )

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        bound = min(_CONNECT_S, self._timeout_s)
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=bound, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=bound)


def _settle(future: "asyncio.Future[Answer]", result: Answer | TransportError) -> None:
    if future.done():
        return
    if isinstance(result, TransportError):
        future.set_exception(result)
    else:
        future.set_result(result)


def unreachable(address: RelayAddress, error: OSError) -> TransportError:
    """Return what to tell about a connection that was not made, naming the layer that failed."""
    url = address.base_url
    if isinstance(error, ssl.SSLCertVerificationError):
        return TransportError(
            f"the certificate of {url} does not hold: {error.verify_message}. Nothing was sent.",
            next_step="check the relay's name, its certificate and this computer's clock",
        )
    if isinstance(error, ssl.SSLError):
        return TransportError(
            f"no TLS connection to {url}. Nothing was sent.",
            next_step="check that the relay's port speaks TLS",
        )
    if isinstance(error, socket.gaierror):
        return TransportError(
            f"the name {address.host} is not known. Nothing was sent.",
            next_step="check the relay's base URL: --relay",
        )
    if isinstance(error, ConnectionRefusedError):
        start = "start one: ringline relay dev" if address.is_local else "check the relay's base URL: --relay"
        return TransportError(f"nothing listens at {url}. Nothing was sent.", next_step=start)
    if isinstance(error, TimeoutError):
        return TransportError(
            f"the relay at {url} does not answer. Nothing was sent.",
            next_step="check the relay's base URL and the network",
        )
    return TransportError(
        f"no connection to {url}: {error.strerror or type(error).__name__}. Nothing was sent.",
        next_step="check the relay's base URL and the network",
    )


def _no_http(address: RelayAddress) -> TransportError:
    return TransportError(
        f"what listens at {address.base_url} does not speak HTTP",
        next_step="check the port in --relay; a development relay prints its URLs when it starts",
    )
