"""What the relay does with each connection: events of the socket become events of the hub.

A line is the receiver of its connection (`ringline.relay.edge.Receiver`), and knows who has logged in on it.
"""

from typing import final

from ringline.relay.auth import Login
from ringline.relay.edge import Connection
from ringline.relay.switchboard import Switchboard

__all__ = ["CallerLine", "ListenerLine"]


@final
class CallerLine:
    """The `Receiver` of one caller's connection."""

    __slots__ = ("_board", "_callee", "_connection", "_login")

    _connection: Connection

    def __init__(self, board: Switchboard, login: Login, callee: str) -> None:
        self._board = board
        self._login = login
        self._callee = callee

    def opened(self, connection: Connection) -> None:
        """See `Receiver.opened`."""
        self._connection = connection
        board, login = self._board, self._login
        board.join(connection, login, "caller")
        board.perform(
            board.hub.connect_caller(connection.id, login.handle, self._callee, login.card_id, board.clock())
        )

    def message(self, payload: bytes) -> None:
        """See `Receiver.message`."""
        board = self._board
        board.perform(board.hub.receive(self._connection.id, payload, board.clock()))

    def binary(self, payload: bytes) -> None:
        """See `Receiver.binary`."""
        self._board.perform(self._board.hub.binary(self._connection.id, self._board.clock()))

    def closed(self, code: int | None, clean: bool) -> None:
        """See `Receiver.closed`."""
        self._board.leave(self._connection, self._login, code, clean)


@final
class ListenerLine:
    """The `Receiver` of one listener's connection."""

    __slots__ = ("_board", "_boot", "_capacity", "_connection", "_durable", "_instance", "_login")

    _connection: Connection

    def __init__(
        self,
        board: Switchboard,
        login: Login,
        *,
        instance: str,
        boot: str,
        capacity: int,
        durable: bool,
    ) -> None:
        self._board = board
        self._login = login
        self._instance = instance
        self._boot = boot
        self._capacity = capacity
        self._durable = durable

    def opened(self, connection: Connection) -> None:
        """See `Receiver.opened`."""
        self._connection = connection
        board, login = self._board, self._login
        board.join(connection, login, "listener")
        board.perform(
            board.hub.connect_listener(
                connection.id,
                login.handle,
                login.card_id,
                self._instance,
                self._boot,
                self._capacity,
                self._durable,
                board.clock(),
            )
        )

    def message(self, payload: bytes) -> None:
        """See `Receiver.message`."""
        board = self._board
        board.perform(board.hub.receive(self._connection.id, payload, board.clock()))

    def binary(self, payload: bytes) -> None:
        """See `Receiver.binary`."""
        self._board.perform(self._board.hub.binary(self._connection.id, self._board.clock()))

    def closed(self, code: int | None, clean: bool) -> None:
        """See `Receiver.closed`."""
        self._board.leave(self._connection, self._login, code, clean)
