"""Tasks: what a function says of itself, and what becomes of arguments and results."""

import datetime
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET

from ringline.listener.effects import Broken, Produced
from ringline.listener.tasks import Answer, Call, make_task, produced
from ringline.protocol.errors import ConfigError


@dataclass
class Range:
    """An argument with members of its own."""

    start: int
    end: int = 9


class Point(msgspec.Struct):
    """A result with members."""

    x: int
    y: int


def call() -> Call:
    return Call(caller="alice", fingerprint="f", message="hi", call_id="call-1")


def run(function: Callable[..., Any], args: dict[str, Any]) -> Any:
    task = make_task(function, name="task")
    return task.bind(call(), task.check(args))()


class TestArguments:
    def test_they_are_passed_by_name_and_what_is_left_out_is_the_functions_own(self) -> None:
        own: list[int] = [1]

        def task(a: int, b: str = "own", c: list[int] = own) -> tuple[int, str, list[int]]:
            return a, b, c

        assert run(task, {"a": 1}) == (1, "own", own)
        assert run(task, {"a": 1, "b": "x", "c": [2]}) == (1, "x", [2])

    def test_the_call_goes_where_its_type_or_name_says(self) -> None:
        def by_type(a: int, what: Call) -> str:
            return f"{a}{what.message}"

        def by_name(call, a: int) -> str:  # type: ignore[no-untyped-def]  # pyright: ignore
            return f"{a}{call.message}"  # pyright: ignore

        def an_argument_that_is_called_call(call: str) -> str:
            return call

        assert run(by_type, {"a": 1}) == "1hi"
        assert run(by_name, {"a": 1}) == "1hi"  # pyright: ignore
        assert run(an_argument_that_is_called_call, {"call": "x"}) == "x"

    def test_members_are_made_of_their_types(self) -> None:
        def task(span: Range, when: datetime.date, kind: Literal["a", "b"]) -> object:
            return span, when, kind

        assert run(task, {"span": {"start": 1}, "when": "2026-03-02", "kind": "a"}) == (
            Range(1, 9),
            datetime.date(2026, 3, 2),
            "a",
        )

    @pytest.mark.parametrize(
        ("args", "told"),
        [
            ({}, "missing required field `a`"),
            ({"a": "1"}, "Expected `int`, got `str` - at `$.a`"),
            ({"a": True}, "Expected `int`"),
            ({"a": 1.5}, "Expected `int`"),
            ({"a": None}, "got `null`"),
            ({"a": 1, "c": 1}, "unknown field `c`"),
            ({"a": 1, "b": [1]}, "$.b[0]"),
            ({"a": 1, "limited": 11}, "<= 10"),
        ],
    )
    def test_what_does_not_fit_is_refused_with_its_place(self, args: dict[str, Any], told: str) -> None:
        def task(
            a: int, b: list[str] | None = None, limited: Annotated[int, msgspec.Meta(le=10)] = 1
        ) -> None:
            pytest.fail("it must not run")

        with pytest.raises(ValueError) as error:
            run(task, args)
        assert told in str(error.value)

    def test_a_type_may_refuse_its_arguments_in_any_way(self) -> None:
        @dataclass
        class Picky:
            a: int

            def __post_init__(self) -> None:
                raise KeyError("a secret")

        def task(a: Picky) -> None: ...

        task.__annotations__["a"] = Picky
        with pytest.raises(ValueError) as error:
            run(task, {"a": {"a": 1}})
        assert "secret" not in str(error.value)

    def test_names_that_are_words_of_the_struct_are_arguments_like_others(self) -> None:
        def task(self: int, cls: int, name: int) -> int:
            return self + cls + name

        assert run(task, {"self": 1, "cls": 2, "name": 3}) == 6

    def test_any_callable_will_do(self) -> None:
        class Adder:
            def __init__(self, start: int) -> None:
                self.start = start

            def __call__(self, a: int) -> int:
                return self.start + a

            async def later(self, a: int) -> int:
                return a

        def add(a: int, b: int) -> int:
            return a + b

        assert run(Adder(10), {"a": 1}) == 11
        assert run(functools.partial(add, b=5), {"a": 1}) == 6
        assert make_task(Adder(1).later, name="later").is_async
        assert not make_task(Adder(1), name="now").is_async
        assert make_task(functools.partial(Adder(1).later), name="partial").is_async


class TestDefinition:
    def test_name_and_summary_come_from_the_function(self) -> None:
        def review_a_diff() -> None:
            """Review a unified diff.

            And more that is for readers of the source.
            """

        task = make_task(review_a_diff)
        assert (task.id, task.summary) == ("review-a-diff", "Review a unified diff.")
        assert make_task(review_a_diff, name="other", summary="Other.").offer().summary == "Other."

    def test_the_schema_is_that_of_the_arguments(self) -> None:
        def task(call: Call, span: Range, strict: bool = False) -> None: ...

        offer = make_task(task).offer()
        assert offer.summary is UNSET
        schema: Any = offer.args_schema
        assert (schema["type"], schema["required"], schema["additionalProperties"]) == (
            "object",
            ["span"],
            False,
        )
        assert schema["properties"]["strict"] == {"type": "boolean"}
        assert set(schema["$defs"]) == {"Range"}

    @pytest.mark.parametrize("name", ["", "Upper", "with space", "-x", "a" * 65, "default", "über"])
    def test_a_name_must_be_a_task_id(self, name: str) -> None:
        def x() -> None: ...

        x.__name__ = ""
        with pytest.raises(ConfigError):
            make_task(x, name=name)

    def test_parameters_must_have_names_that_arguments_can_have(self) -> None:
        def some(*numbers: int) -> None: ...
        def any_name(**named: int) -> None: ...
        def by_place(a: int, /) -> None: ...

        for function in (some, any_name, by_place):
            with pytest.raises(ConfigError) as error:
                make_task(function)
            assert error.value.next_step

    def test_types_must_be_checkable(self) -> None:
        class Opaque: ...

        def task(a: Opaque) -> None: ...
        def missing(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore

        with pytest.raises(ConfigError, match="cannot be checked"):
            make_task(task)
        with pytest.raises(ConfigError, match="cannot be read"):
            make_task(missing)  # pyright: ignore

    def test_the_default_task_gets_the_call_and_nothing_else(self) -> None:
        def with_argument(call: Call, a: int) -> None: ...
        def plain(call: Call) -> str:
            return call.message

        with pytest.raises(ConfigError):
            make_task(with_argument, name="default", is_default=True)
        task = make_task(plain, name="default", is_default=True)
        assert task.check({"whatever": 1}) == {}
        assert task.bind(call(), {})() == "hi"
        assert task.offer().args_schema is UNSET


class TestResults:
    @pytest.mark.parametrize(
        ("result", "comes_to"),
        [
            (None, Produced("")),
            ("text", Produced("text")),
            ("", Produced("")),
            ({"a": [1, None]}, Produced('{"a": [1, null]}', {"a": [1, None]})),
            (3.5, Produced("3.5", 3.5)),
            (True, Produced("true", True)),
            (Point(1, 2), Produced('{"x": 1, "y": 2}', {"x": 1, "y": 2})),
            (Range(1), Produced('{"start": 1, "end": 9}', {"start": 1, "end": 9})),
            (datetime.date(2026, 3, 2), Produced('"2026-03-02"', "2026-03-02")),
            ({1: "x"}, Produced('{"1": "x"}', {"1": "x"})),
            (Answer("both", [1]), Produced("both", [1])),
            (Answer("text only"), Produced("text only")),
            (Answer("null", None), Produced("null", None)),
        ],
    )
    def test_what_a_result_comes_to(self, result: object, comes_to: Produced) -> None:
        assert produced(result) == comes_to

    @pytest.mark.parametrize(
        "result",
        [object(), float("nan"), [float("inf")], {(1, 2): 3}, run, Answer(5), Answer("x", object())],  # type: ignore[arg-type]  # pyright: ignore
    )
    def test_what_is_no_json_fails_without_its_text(self, result: object) -> None:
        made = produced(result)
        assert isinstance(made, Broken)
        assert made.detail == "the task's result is no JSON"

    def test_something_that_contains_itself(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        assert isinstance(produced(endless), Broken)
