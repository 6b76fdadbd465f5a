"""Programs run for calls: their streams, their bounds, and their end, with real processes."""

import asyncio
import contextlib
import errno
import os
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ringline.listener.effects import Broken, Produced, Result
from ringline.listener.processes import Family
from ringline.listener.runtime import Command, CommandRun, environment
from ringline.listener.tasks import Call, Conversation
from ringline_testing.pids import alive

BOUND_S = 60.0
Outcome = tuple[Result, bool]


def call(message: str = "hello", **members: Any) -> Call:
    """Return a call with that message."""
    return Call(caller="alice", fingerprint="cpq9 p73j", message=message, call_id="call-1", **members)


def python(source: str, **members: Any) -> Command:
    """Return a command that runs this source."""
    return Command(argv=(sys.executable, "-c", textwrap.dedent(source)), **members)


async def run(command: Command, message: str = "hello") -> Outcome:
    """Run a command to its end."""
    return await asyncio.wait_for(CommandRun(command, call(message)).run(), BOUND_S)


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(BOUND_S):
        while not true():  # noqa: ASYNC110 - nobody but the process itself knows
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EMFILE, "busy"), (errno.EAGAIN, "busy"), (errno.ENOENT, "agent_error")]
)
async def test_without_room_for_a_process_the_call_is_told_busy(
    monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(*args: Any, **members: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("ringline.listener.runtime.subprocess.Popen", refuse)
    result, stopped = await run(python("pass"))
    assert isinstance(result, Broken)
    assert (result.code, stopped) == (code, False)
    assert os.strerror(number) in result.local


class Started:
    """A command that was started and writes the pids of its processes into a file, one a line."""

    def __init__(self, command: Command, pids: Path) -> None:
        self.execution = CommandRun(command, call(str(pids)))
        self.task = asyncio.ensure_future(self.execution.run())
        self._pids = pids

    async def pids(self, count: int) -> list[int]:
        """Return the pids once there are that many."""
        await until(lambda: self._pids.exists() and self._pids.read_text().count("\n") >= count)
        return [int(line) for line in self._pids.read_text().split()]

    async def ended(self) -> Outcome:
        return await asyncio.wait_for(self.task, BOUND_S)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[[Command], Started]]:
    """Start commands whose message is the file for their pids; what is left is killed afterwards."""
    started: list[Started] = []
    pids = tmp_path / "pids"

    def begin(command: Command) -> Started:
        one = Started(command, pids)
        started.append(one)
        return one

    yield begin
    for one in started:
        one.task.cancel()
        await asyncio.gather(one.task, return_exceptions=True)
    for line in pids.read_text().split() if pids.exists() else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line), signal.SIGKILL)


class TestStreams:
    async def test_the_message_goes_in_and_the_reply_comes_out(self) -> None:
        assert await run(Command(argv=("cat",)), "hällo ☎\n") == (Produced("hällo ☎\n"), False)

    async def test_a_long_message_through_a_full_pipe(self) -> None:
        message = "0123456789" * 6_400
        result, _ = await run(
            python("import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d * 4)"), message
        )
        assert result == Produced(message * 4)

    async def test_a_program_that_never_reads_its_stdin(self) -> None:
        assert (await run(Command(argv=("echo", "done")), "x" * 64_000))[0] == Produced("done\n")

    async def test_a_program_that_closes_its_stdin_and_goes_on(self) -> None:
        source = "import os; os.close(0); print('still here')"
        assert (await run(python(source), "x" * 64_000))[0] == Produced("still here\n")

    async def test_stdin_ends_after_the_message(self) -> None:
        assert (await run(python("import sys; print(len(sys.stdin.read()))"), "abc"))[0] == Produced("3\n")

    async def test_output_that_is_no_utf8_is_replaced(self) -> None:
        source = r"import sys; sys.stdout.buffer.write(b'a\xff\xed\xa0\x80b')"
        result, _ = await run(python(source))
        assert isinstance(result, Produced)
        assert result.text.startswith("a�")
        assert result.text.endswith("b")
        result.text.encode("utf-8")

    async def test_a_flood_of_output_is_stopped(self) -> None:
        source = """
            import sys
            while True:
                sys.stdout.write("x" * 65536)
        """
        result, stopped = await run(python(source, output_bytes=300_000))
        assert isinstance(result, Broken)
        assert result.detail == "the program wrote more than 300,000 bytes"
        assert not stopped

    async def test_output_at_its_bound_is_no_flood(self) -> None:
        result, _ = await run(python("print('x' * 99, end='')", output_bytes=99))
        assert result == Produced("x" * 99)
        result, _ = await run(python("print('x' * 100, end='')", output_bytes=99))
        assert isinstance(result, Broken)

    async def test_a_flood_of_errors_is_drained_and_its_end_kept_here(self) -> None:
        source = """
            import sys
            for _ in range(200):
                sys.stderr.write("noise " * 2000)
            sys.stderr.write("last words")
            sys.exit(3)
        """
        result, _ = await run(python(source))
        assert isinstance(result, Broken)
        assert result.detail is None
        assert "exit code 3" in result.local
        assert result.local.endswith("last words")
        assert len(result.local) < 3_000


class TestEnds:
    async def test_exit_code_zero_is_a_reply_whatever_was_written_to_stderr(self) -> None:
        result, _ = await run(python("import sys; sys.stderr.write('warning'); print('ok')"))
        assert result == Produced("ok\n")

    @pytest.mark.parametrize(
        ("source", "how"),
        [
            ("raise SystemExit(7)", "exit code 7"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV"),
        ],
    )
    async def test_everything_else_fails_and_its_text_stays_here(self, source: str, how: str) -> None:
        result, stopped = await run(python("print('half an answer');" + source))
        assert isinstance(result, Broken)
        assert (result.code, result.detail, stopped) == ("agent_error", None, False)
        assert how in result.local

    async def test_a_program_that_does_not_exist(self) -> None:
        result, stopped = await run(Command(argv=("/nowhere/at-all",)))
        assert isinstance(result, Broken)
        assert result.detail is None
        assert "/nowhere/at-all" in result.local
        assert not stopped

    async def test_the_call_is_over_when_its_program_has_exited(
        self, start: Callable[[Command], Started]
    ) -> None:
        # A child in the background keeps stdout open; it is ended, and its output is not waited for.
        script = 'read pids; sleep 600 & echo $! > "$pids"; echo answer'
        started = start(Command(argv=("sh", "-c", script)))
        assert await started.ended() == (Produced("answer\n"), False)
        assert not alive((await started.pids(1))[0])

    async def test_a_daemon_that_left_for_good_does_not_hold_up_the_reply(
        self, start: Callable[[Command], Started]
    ) -> None:
        source = """
            import os, sys, time
            pids = sys.stdin.read()
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    open(pids, "a").write(f"{os.getpid()}\\n")
                    time.sleep(600)
                os._exit(0)
            os.wait()
            while not os.path.exists(pids):
                time.sleep(0.01)
            print("answer")
        """
        started = start(python(source))
        assert await started.ended() == (Produced("answer\n"), False)


class TestStopping:
    """RL-CANCEL-016: confirmed when the process group was seen to exit, and not before."""

    async def test_a_program_is_asked_to_end(self, start: Callable[[Command], Started]) -> None:
        script = 'read pids; echo $$ > "$pids"; exec sleep 600'
        started = start(Command(argv=("sh", "-c", script)))
        (pid,) = await started.pids(1)
        started.execution.stop(at_once=False)
        result, stopped = await started.ended()
        assert stopped
        assert isinstance(result, Broken)
        assert not alive(pid)

    async def test_its_children_and_their_children_are_gone_too(
        self, start: Callable[[Command], Started]
    ) -> None:
        script = """
            read pids
            sh -c 'sleep 600 & echo $! >> "$0"; sleep 600 & echo $! >> "$0"; wait' "$pids" &
            echo $! >> "$pids"
            echo $$ >> "$pids"
            exec sleep 600
        """
        started = start(Command(argv=("sh", "-c", script)))
        pids = await started.pids(4)
        started.execution.stop(at_once=False)
        assert (await started.ended())[1]
        assert [pid for pid in pids if alive(pid)] == []

    async def test_a_child_with_a_group_or_a_session_of_its_own_is_gone_too(
        self, start: Callable[[Command], Started]
    ) -> None:
        source = """
            import os, sys, time
            pids = sys.stdin.read()
            for leave in (os.setpgrp, os.setsid):
                if os.fork() == 0:
                    leave()
                    open(pids, "a").write(f"{os.getpid()}\\n")
                    time.sleep(600)
            time.sleep(600)
        """
        started = start(python(source))
        pids = await started.pids(2)
        started.execution.stop(at_once=False)
        assert (await started.ended())[1]
        assert [pid for pid in pids if alive(pid)] == []

    async def test_a_grandchild_that_outlives_its_leader_is_waited_for(
        self, start: Callable[[Command], Started]
    ) -> None:
        # The leader ends at SIGTERM; its child ignores it, and is killed after the grace.
        script = """
            read pids
            sh -c 'trap "" TERM; echo $$ >> "$0"; while :; do sleep 0.05; done' "$pids" &
            wait
        """
        started = start(Command(argv=("sh", "-c", script), grace_s=0.4))
        (pid,) = await started.pids(1)
        started.execution.stop(at_once=False)
        assert (await started.ended())[1]
        assert not alive(pid)

    async def test_a_program_that_ignores_sigterm_is_killed_after_its_grace(
        self, start: Callable[[Command], Started]
    ) -> None:
        source = """
            import os, signal, sys, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(sys.stdin.read(), "w").write(f"{os.getpid()}\\n")
            while True:
                time.sleep(600)
        """
        started = start(python(source, grace_s=0.3))
        (pid,) = await started.pids(1)
        started.execution.stop(at_once=False)
        result, stopped = await started.ended()
        assert stopped
        assert isinstance(result, Broken)
        assert "SIGKILL" in result.local
        assert not alive(pid)

    async def test_at_once_there_is_no_grace(self, start: Callable[[Command], Started]) -> None:
        source = """
            import os, signal, sys, time
            signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1], "a").write("asked\\n"))
            open(pids := sys.stdin.read(), "w").write(f"{os.getpid()}\\n")
            sys.argv.append(pids)
            while True:
                time.sleep(600)
        """
        started = start(python(source, grace_s=600))
        await started.pids(1)
        started.execution.stop(at_once=True)
        assert (await started.ended())[1]
        assert "asked" not in started._pids.read_text()

    async def test_a_grace_can_be_cut_short(self, start: Callable[[Command], Started]) -> None:
        script = 'trap "" TERM; read pids; echo $$ > "$pids"; while :; do sleep 0.05; done'
        started = start(Command(argv=("sh", "-c", script), grace_s=600))
        (pid,) = await started.pids(1)
        started.execution.stop(at_once=False)
        started.execution.stop(at_once=True)
        assert (await started.ended())[1]
        assert not alive(pid)

    async def test_a_program_that_is_frozen_is_ended(self, start: Callable[[Command], Started]) -> None:
        script = 'read pids; echo $$ > "$pids"; kill -STOP $$'
        started = start(Command(argv=("sh", "-c", script), grace_s=0.2))
        (pid,) = await started.pids(1)
        started.execution.stop(at_once=False)
        assert (await started.ended())[1]
        assert not alive(pid)

    async def test_what_a_stopped_program_still_says_is_marked_as_such(
        self, start: Callable[[Command], Started]
    ) -> None:
        source = """
            import os, signal, sys, time
            signal.signal(signal.SIGTERM, lambda *_: (print("half"), sys.stdout.flush(), os._exit(0)))
            open(sys.stdin.read(), "w").write(f"{os.getpid()}\\n")
            while True:
                time.sleep(600)
        """
        started = start(python(source))
        await started.pids(1)
        started.execution.stop(at_once=False)
        result, stopped = await started.ended()
        assert (result, stopped) == (Produced("half\n"), True)

    async def test_a_program_that_had_exited_before_was_not_stopped(
        self, start: Callable[[Command], Started]
    ) -> None:
        script = 'read pids; echo $$ > "$pids"; sleep 0.2; echo whole'
        started = start(Command(argv=("sh", "-c", script)))
        (pid,) = await started.pids(1)
        # Without a turn of the loop, so that its exit was not noticed yet.
        end = time.monotonic() + BOUND_S
        while alive(pid):
            assert time.monotonic() < end
            time.sleep(0.005)  # noqa: ASYNC251
        started.execution.stop(at_once=False)
        assert await started.ended() == (Produced("whole\n"), False)

    async def test_stopped_before_it_started_it_never_starts(self, tmp_path: Path) -> None:
        execution = CommandRun(Command(argv=("touch", str(tmp_path / "ran"))), call())
        execution.stop(at_once=False)
        _, stopped = await asyncio.wait_for(execution.run(), BOUND_S)
        assert stopped
        assert not (tmp_path / "ran").exists()

    async def test_nothing_outlives_its_watcher(self, start: Callable[[Command], Started]) -> None:
        script = 'read pids; sleep 600 & echo $! > "$pids"; exec sleep 600'
        started = start(Command(argv=("sh", "-c", script)))
        (pid,) = await started.pids(1)
        started.task.cancel()
        await asyncio.gather(started.task, return_exceptions=True)
        await until(lambda: not alive(pid))


class TestEnvironment:
    def test_the_facts_of_the_call_are_there(self) -> None:
        made = environment(call(conversation=Conversation("ctx_x", 3), message_id="1" * 32), {"PATH": "/bin"})
        assert made == {
            "PATH": "/bin",
            "RINGLINE_CALL_ID": "call-1",
            "RINGLINE_FROM": "alice",
            "RINGLINE_FROM_FINGERPRINT": "cpq9 p73j",
            "RINGLINE_MESSAGE_ID": "1" * 32,
            "RINGLINE_TASK": "default",
            "RINGLINE_CONTEXT": "ctx_x",
            "RINGLINE_TURN": "3",
        }

    def test_nothing_that_may_be_secret_of_ours_is_passed_on(self) -> None:
        base = {
            "RINGLINE_PASSPHRASE": "secret",
            "RINGLINE_PASSPHRASE_FILE": "/secret",
            "RINGLINE_CALL_ID": "of the outer call",
            "RINGLINE_MESSAGE_ID": "of the outer call",
            "CREDENTIALS_DIRECTORY": "/run/credentials",
            "RINGLINE_HOME": "/home",
            "HOME": "/root",
        }
        made = environment(call(), base)
        assert {"RINGLINE_HOME", "HOME"} <= set(made)
        assert "secret" not in str(made)
        assert "outer" not in str(made)
        assert "CREDENTIALS_DIRECTORY" not in made

    async def test_neither_message_nor_arguments_reach_the_command_line(self) -> None:
        source = "import sys; print(sys.argv, sys.stdin.read() in open('/proc/self/cmdline').read())"
        result, _ = await run(python(source), "a secret")
        assert result == Produced("['-c'] False\n")

    async def test_it_runs_in_its_folder(self, tmp_path: Path) -> None:
        assert (await run(Command(argv=("pwd",), folder=tmp_path)))[0] == Produced(f"{tmp_path}\n")

    async def test_no_descriptor_of_ours_is_inherited(self, tmp_path: Path) -> None:
        with (tmp_path / "open").open("w") as file:
            os.set_inheritable(file.fileno(), True)
            result, _ = await run(python("import os; print(sorted(os.listdir('/proc/self/fd'))[:5])"))
        assert isinstance(result, Produced)
        assert str(file) not in result.text
        assert result.text.strip().strip("[]").replace("'", "").split(", ")[:3] == ["0", "1", "2"]


def test_a_family_that_is_gone_is_not_alive() -> None:
    process = os.posix_spawn("/bin/true", ["true"], os.environ, setsid=True)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    assert not Family(process).alive()
    os.waitpid(process, 0)
