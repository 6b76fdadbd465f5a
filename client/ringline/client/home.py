"""The folder of a person's keys, pins and calls, and how files in it are read and written.

What is secret is 0600 in folders of 0700, is created by ``O_EXCL``, flushed and renamed into place, so
that it exists whole or not at all, and is refused when others could read it (RL-KEYS-051).
"""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import platformdirs

from ringline.client.address import RelayAddress
from ringline.protocol.errors import ConfigError
from ringline.protocol.names import HANDLE_RULE, is_handle

__all__ = ["Home", "locked", "read_private", "stamp_of", "write_private"]

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_LOCK_WAIT_S: Final = 10.0
_LOCK_POLL_S: Final = 0.02
_FILE_LIMIT: Final = 16 * 1_048_576


@final
class Home:
    """The state folder. Nothing is created before something is written.

    ::

        <root>/<realm>/contacts.toml
        <root>/<realm>/keylog.db                          what was seen of the relay's key log
        <root>/<realm>/evidence/                          what contradicts it, one file each
        <root>/<realm>/identities/<handle>/identity.key   identity key; may live elsewhere
        <root>/<realm>/identities/<handle>/agent.key      operational key, card, prekey chain
        <root>/<realm>/identities/<handle>/outbox.db      sealed requests, reply keys, receipts
        <root>/<realm>/identities/<handle>/journal.db     what a listener has taken and done
    """

    def __init__(self, root: Path) -> None:
        """Use the folder ``root``, which need not exist."""
        self.root = root

    @classmethod
    def default(cls) -> "Home":
        """Return the folder that ``RINGLINE_HOME`` names, else the platform's place for user data."""
        given = os.environ.get("RINGLINE_HOME")
        if given:
            return cls(Path(given).expanduser().absolute())
        return cls(Path(platformdirs.user_data_dir("ringline", appauthor=False)))

    def realm_folder(self, address: RelayAddress) -> Path:
        """Return the folder of one realm; of one relay in the development realm (RL-NAME-005)."""
        return self.root / address.state_key

    def contacts_file(self, address: RelayAddress) -> Path:
        """Return the file of the pins of one realm."""
        return self.realm_folder(address) / "contacts.toml"

    def keylog_file(self, address: RelayAddress) -> Path:
        """Return the place of what was seen of the key log of one realm."""
        return self.realm_folder(address) / "keylog.db"

    def evidence_folder(self, address: RelayAddress) -> Path:
        """Return the folder of what a relay cannot explain, one file each."""
        return self.realm_folder(address) / "evidence"

    def identity_folder(self, address: RelayAddress, handle: str) -> Path:
        """Return the folder of one identity. Raises `ConfigError` for what is no handle."""
        if not is_handle(handle):
            raise ConfigError(
                f"{handle!r} is not a handle: {HANDLE_RULE}",
                next_step="choose another name with --as",
            )
        return self.realm_folder(address) / "identities" / handle

    def identity_key_file(self, address: RelayAddress, handle: str) -> Path:
        """Return the place of the identity key."""
        return self.identity_folder(address, handle) / "identity.key"

    def agent_key_file(self, address: RelayAddress, handle: str) -> Path:
        """Return the place of the operational key, the card and the prekey chain."""
        return self.identity_folder(address, handle) / "agent.key"

    def outbox_file(self, address: RelayAddress, handle: str) -> Path:
        """Return the place of the outbox of a calling identity."""
        return self.identity_folder(address, handle) / "outbox.db"

    def journal_file(self, address: RelayAddress, handle: str) -> Path:
        """Return the place of the journal of a listening identity."""
        return self.identity_folder(address, handle) / "journal.db"

    def handles(self, address: RelayAddress) -> tuple[str, ...]:
        """Return the handles of the identities kept for this realm, in order."""
        try:
            folders = list((self.realm_folder(address) / "identities").iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unusable(self.root, error) from error
        return tuple(
            sorted(
                entry.name for entry in folders if is_handle(entry.name) and (entry / "agent.key").exists()
            )
        )

    def default_handle(self, address: RelayAddress) -> str:
        """Return the handle that calls when no other is named; the first time, one is made up.

        Raises `ConfigError` when it cannot be read or written.
        """
        folder = self.realm_folder(address)
        path = folder / "default-handle"
        with self.lock(folder):
            try:
                handle = read_private(path).strip()
            except FileNotFoundError:
                # Handles are taken once for the whole relay, so chance names this one.
                handle = f"caller-{secrets.token_hex(5)}"
                write_private(path, f"{handle}\n")
        if not is_handle(handle):
            raise ConfigError(f"{path} names no handle", next_step=f"write a handle into it, or: rm {path}")
        return handle

    def own_handle(self, address: RelayAddress) -> str:
        """Return the handle that is meant when no identity is named: the only one, else that which calls.

        Raises `ConfigError` when there is none, or several and none that calls by default.
        """
        handles = self.handles(address)
        if len(handles) == 1:
            return handles[0]
        if not handles:
            raise ConfigError(
                f"there is no identity for {address.base_url} in {self.root}",
                next_step="make one: ringline init --as NAME, or with an invite: ringline accept",
            )
        try:
            chosen = read_private(self.realm_folder(address) / "default-handle").strip()
        except FileNotFoundError:
            chosen = ""
        if chosen not in handles:
            raise ConfigError(
                f"there are several identities for {address.base_url}: {', '.join(handles)}",
                next_step="name one of them: --as NAME",
            )
        return chosen

    def call_as(self, address: RelayAddress, handle: str) -> None:
        """Have ``handle`` call when no other is named, unless that was decided before."""
        folder = self.realm_folder(address)
        with self.lock(folder):
            if not (folder / "default-handle").exists():
                write_private(folder / "default-handle", f"{handle}\n")

    def make(self, folder: Path) -> None:
        """Create ``folder`` inside this home, with every folder above it up to the root, as 0700.

        Raises `ConfigError` when that cannot be done, or one of them can be written by others: they
        could put other keys in the place of these.
        """
        chain = [folder, *(parent for parent in folder.parents if parent.is_relative_to(self.root))]
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            for entry in reversed(chain):
                try:
                    entry.mkdir(mode=_FOLDER_MODE)
                except FileExistsError:
                    mode = entry.stat().st_mode
                    if mode & (stat.S_IWGRP | stat.S_IWOTH):
                        raise ConfigError(
                            f"refusing to use {entry}: others can write in it (mode {mode & 0o777:04o})",
                            next_step=f"chmod 700 {entry}",
                        ) from None
        except OSError as error:
            raise _unusable(folder, error) from error

    @contextmanager
    def lock(self, folder: Path) -> Generator[None]:
        """Hold the lock of a folder of this home, which is created if need be. Raises `ConfigError`."""
        self.make(folder)
        with locked(folder / ".lock"):
            yield


def read_private(path: Path) -> str:
    """Return the text of a file that only its owner can read or write.

    Raises `FileNotFoundError`; `ConfigError` when others can read or write it, and when it cannot be
    read or is no text.
    """
    try:
        # Without waiting: a pipe in the place of a file would hold whoever opens it, for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise ConfigError(f"{path} is not a file", next_step=f"look at it: ls -l {path}")
        with os.fdopen(descriptor, "rb") as file:
            # Looked at through the open file: a path could be another file a moment later.
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigError(
                    f"refusing to use {path}: it can be read or changed by others (mode {mode & 0o777:04o})",
                    next_step=f"chmod 600 {path}",
                )
            data = file.read(_FILE_LIMIT + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        if len(data) > _FILE_LIMIT:
            raise ValueError
        return data.decode("utf-8")
    except ValueError:
        raise ConfigError(f"{path} is not a text file of Ringline", next_step=f"look at it: {path}") from None


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 so that it is there whole, or as it was before.

    The folder must exist. Hold a lock when two processes may write. Raises `ConfigError`.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        # The new name is only safe on disk when its folder is.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise _unusable(path, error) from error


def stamp_of(path: Path) -> tuple[int, int] | None:
    """Return what tells that a file was written anew; None when it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the operating system's lock on the file ``path``, which stays behind empty.

    Other processes, and other threads of this one, wait for it, at most ten seconds. Raises
    `ConfigError` after that, and when the file cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        _wait_for(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, path: Path) -> None:
    """Take the lock. Polled, because a blocking ``flock`` has no bound."""
    end = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise ConfigError(
                    f"another process of yours has held {path} for {_LOCK_WAIT_S:.0f} seconds",
                    next_step=f"find it: fuser {path}",
                ) from None
            time.sleep(_LOCK_POLL_S)
        except OSError as error:
            raise _unusable(path, error) from error
        else:
            return


def _unusable(path: Path, error: OSError) -> ConfigError:
    reason = error.strerror or type(error).__name__
    # The name within the error is a number when the file was already open.
    named = error.filename if isinstance(error.filename, str) else path
    return ConfigError(
        f"cannot use {named}: {reason}",
        next_step="choose another place: RINGLINE_HOME=/path/to/folder",
    )
