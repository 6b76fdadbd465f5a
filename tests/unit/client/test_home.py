"""Files that are secret are whole, private, or refused."""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ringline.client.address import RelayAddress
from ringline.client.home import Home, locked, read_private, write_private
from ringline.protocol.errors import ConfigError

ADDRESS = RelayAddress.parse("http://127.0.0.1:7575")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_home_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RINGLINE_HOME", str(tmp_path / "here"))
    assert Home.default().root == tmp_path / "here"
    monkeypatch.delenv("RINGLINE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert Home.default().root.name == "ringline"


def test_folders_are_made_private(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    folder = home.identity_folder(ADDRESS, "alice")
    home.make(folder)
    assert [mode(path) for path in (folder, folder.parent, home.root)] == [0o700] * 3


def test_a_folder_that_others_can_write_in_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make(home.root)
    home.root.chmod(0o770)
    with pytest.raises(ConfigError, match="others can write in it") as caught:
        home.make(home.identity_folder(ADDRESS, "alice"))
    assert caught.value.next_step == f"chmod 700 {home.root}"


@pytest.mark.parametrize("handle", ["", "A", "../x", "a/b", "x" * 32, "-a"])
def test_only_a_handle_names_a_folder(tmp_path: Path, handle: str) -> None:
    with pytest.raises(ConfigError, match="not a handle"):
        Home(tmp_path).identity_folder(ADDRESS, handle)


def test_a_private_file_is_written_whole_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, "one\n")
    write_private(path, "two ü\n")
    assert (read_private(path), mode(path)) == ("two ü\n", 0o600)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_private(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        write_private(path, "new")
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("bits", [0o604, 0o640, 0o660, 0o606, 0o610])
def test_a_file_that_others_can_use_is_refused_with_the_command(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "file"
    write_private(path, "secret")
    path.chmod(bits)
    with pytest.raises(ConfigError, match=f"mode {bits:04o}") as caught:
        read_private(path)
    assert caught.value.next_step == f"chmod 600 {path}"
    assert "secret" not in str(caught.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, "")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not a text file"):
        read_private(path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_and_not_waited_for(
    make: Callable[[Path, int], None], tmp_path: Path
) -> None:
    make(tmp_path / "thing", 0o600)
    with pytest.raises(ConfigError, match="is not a file"):
        read_private(tmp_path / "thing")


def test_a_home_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = Home(tmp_path / "file" / "home")
    with pytest.raises(ConfigError, match="cannot use") as caught:
        home.make(home.root)
    assert "RINGLINE_HOME" in (caught.value.next_step or "")


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    def enter() -> None:
        nonlocal inside, most
        for _ in range(5):
            with locked(tmp_path / ".lock"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == 1


def test_a_lock_that_is_not_let_go_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringline.client.home._LOCK_WAIT_S", 0.05)
    lock = tmp_path / ".lock"
    with locked(lock), pytest.raises(ConfigError, match="another process"), locked(lock):
        pass


def test_whoever_asks_gets_the_same_default_handle(tmp_path: Path) -> None:
    handles: list[str] = []
    threads = [
        threading.Thread(target=lambda: handles.append(Home(tmp_path).default_handle(ADDRESS)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(handles) == 4
    assert set(handles) == {Home(tmp_path).default_handle(ADDRESS)}


def test_a_default_handle_that_is_none_is_told(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.default_handle(ADDRESS)
    write_private(home.realm_folder(ADDRESS) / "default-handle", "../../etc\n")
    with pytest.raises(ConfigError, match="names no handle"):
        home.default_handle(ADDRESS)
