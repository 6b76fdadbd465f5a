"""The command ``ringline-conformance``. It ends with 0, 1 or 2: conformant, not conformant, not judged."""

import asyncio
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from ringline.conformance import html_report, report
from ringline.conformance.registry import ROLES, Case, Level, load, select, short_bounds
from ringline.conformance.runner import UNJUDGED, Plan, Run, run
from ringline.conformance.subject import Patience, Subject, Unjudgeable

__all__ = ["app", "main"]

_SPEC: Final = "../spec/ringline.md"
_LEVELS: Final = [level.value.lower() for level in Level]


@click.group("ringline-conformance", context_settings={"help_option_names": ["-h", "--help"]})
def app() -> None:
    """Hold an implementation of the Ringline protocol against its requirements.

    Exit code 0: it keeps every MUST that was judged. 1: a MUST is broken, or could not be tested. 2: nothing
    is known, because the subject is not there, hangs or talks rubbish, or because the command is wrong.
    """


def _selectors(command: Callable[..., Any]) -> Callable[..., Any]:
    level = click.option(
        "--level", type=click.Choice(_LEVELS), help="Cases of this level only. [default: all]"
    )
    without = click.option(
        "--without",
        metavar="FEATURE",
        multiple=True,
        help="Leave out the cases that need this feature, such as durable; may be repeated.",
    )
    timed = click.option(
        "--timed/--untimed",
        default=None,
        help="Only the cases that need shorter bounds than usual, or only the others.",
    )
    selectors = click.argument("selectors", nargs=-1, metavar="[SELECTOR]...")
    return selectors(level(without(timed(command))))


def _running(command: Callable[..., Any]) -> Callable[..., Any]:
    writable = click.Path(dir_okay=False, writable=True, path_type=Path)
    options = [
        click.option("--strict", is_flag=True, help="SHOULD counts like MUST, and neutral like failed."),
        click.option("--json", "json_file", type=writable, help="Write everything that was seen to FILE."),
        click.option("--junit", "junit_file", type=writable, help="Write a JUnit report to FILE."),
        click.option("--html", "html_file", type=writable, help="Write a report for a browser to FILE."),
        click.option(
            "--expected-failures",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Ids of cases that may fail, one a line; one of them that passes counts against.",
        ),
        click.option(
            "--timeout-scale",
            type=click.FloatRange(0.1, 100),
            default=1.0,
            show_default=True,
            help="Give a slow subject so many times the time.",
        ),
        click.option("--seed", type=int, help="Run the cases in an order drawn from this number."),
        click.option(
            "--jobs", type=click.IntRange(1, 64), default=8, show_default=True, help="Cases at once."
        ),
        click.option(
            "--time-limit",
            type=click.FloatRange(1, 86_400),
            default=600.0,
            show_default=True,
            help="Seconds for the whole run; then what was not judged is not tested.",
        ),
        click.option(
            "-v", "--verbose", is_flag=True, help="Show every case, and all that passed over the wire."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return _selectors(command)


@app.command("list")
@click.option("--role", type=click.Choice(ROLES), help="Cases for this role only. [default: all]")
@click.option("--set", "as_settings", is_flag=True, help="Print the bounds with which no case is neutral.")
@_selectors
def list_cases(
    role: str | None,
    as_settings: bool,
    level: str | None,
    without: tuple[str, ...],
    timed: bool | None,
    selectors: tuple[str, ...],
) -> None:
    """List the cases: id, level, requirements, and what is required."""
    roles = ROLES if role is None else (role,)
    found = [each for name in roles for each in load(name)]
    chosen = _chosen(found, selectors, level, without, timed)
    if as_settings:
        click.echo(" ".join(f"--set {name.upper()}={most}" for name, most in short_bounds(chosen).items()))
        return
    for each in chosen:
        click.echo(f"{each.id}  {each.level}  {' '.join(each.requirements)}\n    {each.sentence}")
    click.echo(f"{len(chosen)} cases", err=True)


@app.command("relay")
@click.option("--url", required=True, help="Base URL of the relay, such as http://127.0.0.1:7575.")
@click.option("--invite", help="An invite with uses for every identity of the suite, if enrolment needs one.")
@_running
def judge_relay(url: str, invite: str | None, **options: Any) -> None:
    """Judge a relay: the suite is its callers and its listeners."""
    from ringline.conformance.relay_subject import RelaySubject

    _judge("relay", lambda patience: RelaySubject(url, patience, invite=invite), **options)


def _command_role(role: str, help_text: str) -> None:
    @app.command(role, help=help_text)
    @click.option("--command", "command_line", required=True, help="What to run, as in a shell.")
    @_running
    def judge_command(command_line: str, **options: Any) -> None:
        try:
            module = importlib.import_module(f"ringline.conformance.{role}_subject")
        except ModuleNotFoundError:
            _give_up(f"this version of the suite has no cases for the role {role}")

        def make(patience: Patience) -> Subject:
            subject: Any = module.make(command_line, patience)
            subject.without = frozenset(options["without"])
            made: Subject = subject
            return made

        _judge(role, make, **options)


_command_role(
    "listener", "Judge a listener by the command that starts it: the suite is its relay and its callers."
)
_command_role("caller", "Judge a caller by the command that calls: the suite is its relay and its listener.")
_command_role("vectors", "Judge an implementation's bytes by a command that reads JSON lines.")


@app.command("report")
@click.argument(
    "documents",
    nargs=-1,
    required=True,
    metavar="JSON...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--html",
    "html_file",
    required=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the page to FILE.",
)
@click.option(
    "--spec", default=_SPEC, show_default=True, help="Where the normative text is, seen from the page."
)
def make_report(documents: tuple[Path, ...], html_file: Path, spec: str) -> None:
    """Put the JSON reports of several runs side by side on one page for a browser."""
    runs: list[html_report.RunReport] = []
    for file in documents:
        try:
            runs.append(html_report.read(file.read_bytes()))
        except (OSError, ValueError) as error:
            _give_up(f"{file}: {error}")
    try:
        html_file.write_bytes(html_report.as_html(runs, spec=spec))
    except OSError as error:
        _give_up(f"the page cannot be written: {error}")


def _chosen(
    found: Sequence[Case],
    selectors: Sequence[str],
    level: str | None,
    without: Sequence[str],
    timed: bool | None,
) -> list[Case]:
    wanted = None if level is None else Level(level.upper())
    chosen = select(found, selectors, level=wanted, without=without, timed=timed)
    for selector in selectors:
        if not select(found, [selector]):
            _give_up(f"no case is named by {selector!r}; see ringline-conformance list")
    if not chosen:
        _give_up("no case is left to run")
    return chosen


def _judge(
    role: str,
    make: Callable[[Patience], Subject],
    *,
    selectors: tuple[str, ...],
    level: str | None,
    without: tuple[str, ...],
    timed: bool | None,
    strict: bool,
    json_file: Path | None,
    junit_file: Path | None,
    html_file: Path | None,
    expected_failures: Path | None,
    timeout_scale: float,
    seed: int | None,
    jobs: int,
    time_limit: float,
    verbose: bool,
) -> None:
    every = load(role)
    chosen = _chosen(every, selectors, level, without, timed)
    patience = Patience(timeout_scale)
    plan = Plan(
        cases=chosen,
        patience=patience,
        jobs=jobs,
        seconds=time_limit,
        strict=strict,
        seed=seed,
        expected_failures=_expected(expected_failures, every),
    )
    try:
        subject = make(patience)
    except Unjudgeable as error:
        _give_up(str(error))
    done = asyncio.run(
        run(
            subject,
            plan,
            told=lambda result: report.tell_result(result, click.echo, strict=strict, verbose=verbose),
        )
    )
    try:
        _write(done, json_file, junit_file, html_file)
    except OSError as error:
        _give_up(f"the report cannot be written: {error}")
    report.tell_run(done, click.echo)
    sys.exit(done.exit_code)


def _expected(file: Path | None, every: Sequence[Case]) -> frozenset[str]:
    if file is None:
        return frozenset()
    lines = (line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
    names = frozenset(filter(None, lines))
    unknown = names - {each.id for each in every}
    if unknown:
        _give_up(f"{file} names what is no case: {', '.join(sorted(unknown))}")
    return names


def _write(done: Run, json_file: Path | None, junit_file: Path | None, html_file: Path | None) -> None:
    if json_file is not None:
        json_file.write_bytes(report.as_json(done))
    if junit_file is not None:
        junit_file.write_bytes(report.as_junit(done))
    if html_file is not None:
        page = html_report.as_html([html_report.read(report.as_json(done))], spec=_SPEC)
        html_file.write_bytes(page)


def _give_up(why: str) -> NoReturn:
    click.echo(f"Not judged: {why}", err=True)
    sys.exit(UNJUDGED)


def main() -> None:
    """Run the command."""
    app()
