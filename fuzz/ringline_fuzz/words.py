"""Any words behind `ringline`, and any values in its environment."""

import json
from collections.abc import Sequence
from random import Random
from typing import Final

import click
import msgspec

from ringline.cli.app import app
from ringline.protocol.errors import ConfigError
from ringline.relay.options import RelayOptions
from ringline.relay.settings import TABLE, Settings
from ringline_fuzz.command import ROOMS, judge, run
from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.mutation import mutate_text
from ringline_fuzz.state import furnish
from ringline_fuzz.target import Broken, Target

__all__ = ["TARGETS"]

_VARIABLES: Final = (
    "RINGLINE_HOME",
    "RINGLINE_RELAY",
    "RINGLINE_REALM",
    "RINGLINE_AS",
    "RINGLINE_PASSPHRASE_FILE",
    "RINGLINE_FAULT",
    "RINGLINE_LOG",
    "COLUMNS",
    "TERM",
    "NO_COLOR",
    "LANG",
    "HOME",
)
_VALUES: Final = (
    *("alice", "bob", "carol", "-", "--", "~", "~nobody/x", "/dev/null", ".", "home", "hello", "out.key"),
    *(
        "http://127.0.0.1:9",
        "https://relay.example",
        "http://[::1",
        "http://127.0.0.1:99999999999",
        "relay.example",
    ),
    *("0", "1", "-1", "7", "1e9", "nan", "inf", "99999999999999999999", "30m", "3d", "9999999999d", "1.5h"),
    *("a=1", "a:=[1]", "a:=" + "[" * 5_000, "=", "begin.before", "prepare.after:1", "CALLS_PER_HOUR=1"),
    *(
        "completed",
        "compromised",
        "anyone",
        "bash",
        "picows",
        "0" * 31 + "1",
        "ringline://bob@relay.example/#k=AA",
    ),
    *(
        "rli1",
        "\udcff",
        "\u202e",
        "a\nb",
        "é" * 400,
        "x" * 5_000,
        "${HOME}",
        "@file",
        "%s",
        "{peer}",
        "-" + "a" * 21,
    ),
)


def _commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []

    def walk(command: click.Command, path: tuple[str, ...]) -> None:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                walk(child, (*path, name))
        else:
            options = (option for parameter in command.params for option in parameter.opts)
            found.append((" ".join(path), *options))

    walk(app, ())
    return found


_COMMANDS: Final = _commands()


def _seeds() -> list[bytes]:
    lines = [[*path.split(" "), *([] if not options else ["alice"])] for path, *options in _COMMANDS]
    lines += [[*path.split(" "), "--help"] for path, *_ in _COMMANDS]
    return [_written(words) for words in lines]


def _written(words: Sequence[str], variables: object = None) -> bytes:
    return json.dumps([list(words), variables or {}]).encode()


def _read(data: bytes) -> tuple[list[str], dict[str, str]] | None:
    """Words and variables; surrogates stand for bytes that are no text, as Python gives them to a program."""
    try:
        words, variables = json.loads(data)
        texts = [*words, *variables, *variables.values()]
        for text in texts:
            text.encode("utf-8", "surrogateescape")
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    if any("\0" in text for text in texts) or not set(variables) <= set(_VARIABLES):
        return None  # what no process can be given
    return words, variables


def _damaged(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    found = _read(random.choice(others) if random.randrange(6) == 0 else data)
    words, variables = found or ([], {})
    words, variables = list(words), dict(variables)
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        at = random.randrange(len(words) + 1)
        path, *options = next((row for row in _COMMANDS if " ".join(words).startswith(row[0])), _COMMANDS[0])
        match random.randrange(9):
            case 0:
                words = [*random.choice(_COMMANDS)[0].split(" "), *words[1:]]
            case 1 if words:
                words[at % len(words)] = mutate_text(random, words[at % len(words)])
            case 2:
                words.insert(at, random.choice(_VALUES))
            case 3 if words:
                del words[at % len(words)]
            case 4:
                name = random.choice(_VARIABLES)
                variables[name] = random.choice((*_VALUES, "", mutate_text(random, variables.get(name, "a"))))
            case _ if options:
                words[len(path.split(" ")) :] += [random.choice(options), random.choice(_VALUES)]
            case _:
                words.append("--json")
    return _written(
        [word.replace("\0", "") for word in words],
        {name: value.replace("\0", "") for name, value in variables.items()},
    )


def _words(data: bytes) -> str:
    found = _read(data)
    if found is None:
        return "no words"
    words, variables = found
    room = ROOMS.new()
    furnish(room)
    told = run(words, room, variables)
    return f"{' '.join(words[:2])[:20]} {judge(told, words)}"


# --- settings of a relay


def _setting(data: bytes) -> str:
    try:
        values = msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "no settings"
    try:
        settings = Settings().with_values(values)
        for name, row in TABLE.items():
            if not row.least <= getattr(settings, name.lower()) <= row.most:
                raise Broken(f"{name} is out of its range")
        RelayOptions(
            host=values.get("host", "127.0.0.1"),
            realm=values.get("realm", "localhost"),
            admin=values.get("admin"),
            trusted_proxies=tuple(values.get("proxies", "::1").split(",")),
            settings=settings,
        ).check()
    except ConfigError as error:
        return f"ConfigError {str(error)[:20]}"
    return "settings"


def _options(data: bytes) -> str:
    try:
        values = msgspec.json.decode(data, type=dict[str, str])
        options = RelayOptions(
            host=values.get("host", "127.0.0.1"),
            realm=values.get("realm", "localhost"),
            admin=values.get("admin"),
            trusted_proxies=tuple(values.get("proxies", "::1").split(",")),
        )
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "no options"
    try:
        options.check()
    except ConfigError as error:
        return f"ConfigError {str(error)[-20:]}"
    return "options"


TARGETS: Final = (
    Target(
        name="command",
        promise="any words and variables end with a code of the registry, on one screen, without traceback",
        seeds=_seeds,
        check=_words,
        mutate=_damaged,
        short=80,
        full=10_000,
        close=ROOMS.close,
    ),
    Target(
        name="relay-setting",
        promise="settings of a relay are within their range, or a ConfigError",
        seeds=lambda: [json.dumps({name: str(row.default)}).encode() for name, row in TABLE.items()],
        check=_setting,
        mutate=mutate_json,
        short=200,
    ),
    Target(
        name="relay-option",
        promise="options of a relay are such that it may run with, or a ConfigError",
        seeds=lambda: [
            json.dumps(
                {"host": "::1", "realm": "relay.example", "admin": "alice", "proxies": "10.0.0.0/8,::1"}
            ).encode()
        ],
        check=_options,
        mutate=mutate_json,
        short=200,
    ),
)
