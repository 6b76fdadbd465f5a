"""What `/metrics` shows: every counter of the relay, in the format of Prometheus, and nothing else."""

import re
from pathlib import Path

import ringline.relay
from ringline.protocol.codes import REGISTRY
from ringline.protocol.lifecycle import State
from ringline.relay.metrics import FAMILIES, render

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[a-z0-9_]+"\})? \d+')


def counted_names() -> set[str]:
    """Every name under which the relay's code counts something; a part that varies stands as a star."""
    found: set[str] = set()
    for folder in ringline.relay.__path__:
        for file in Path(folder).glob("*.py"):
            text = file.read_text()
            for index in re.findall(r"_counters\[([^\n]*?)\] \+= ", text):
                found |= {re.sub(r"\{[^}]*\}", "*", name) for name in re.findall(r'"([^"]*)"', index)}
            found |= (
                set(re.findall(r'"((?:now|upkeep)_[a-z_]+)":', text)) if file.name != "metrics.py" else set()
            )
    return found


def test_everything_that_is_counted_is_shown() -> None:
    names = counted_names()
    assert {"refused_*", "store_commits", "now_leases", "upkeep_failures", "connections_lost"} <= names
    for name in names:
        # A connection has one of two roles; what else varies is a word of ours.
        counted = name.replace("*", "caller" if name == "connections_*" else "x")
        assert " 12345" in render({counted: 12_345}), name


def test_counters_and_present_numbers_are_told_apart() -> None:
    text = render({"requests_200": 2, "requests_404": 1, "now_calls": 3, "repeated": 4})
    lines = text.splitlines()
    assert 'ringline_relay_requests_total{status="200"} 2' in lines
    assert 'ringline_relay_requests_total{status="404"} 1' in lines
    assert "ringline_relay_repeated_total 4" in lines
    assert "# TYPE ringline_relay_repeated_total counter" in lines
    assert "ringline_relay_calls 3" in lines
    assert "# TYPE ringline_relay_calls gauge" in lines
    # What was never counted is 0; of labels nothing is known before.
    assert "ringline_relay_frames_refused_total 0" in lines
    assert not [line for line in lines if line.startswith("ringline_relay_refused_total")]
    assert text.endswith("\n")


def test_every_line_is_of_the_format_and_every_name_stands_once() -> None:
    snapshot = {name: 1 for name in FAMILIES if FAMILIES[name].label is None}
    snapshot |= {f"stored_{state.value}": 1 for state in State}
    snapshot |= {f"refused_{code}": 1 for _, code in REGISTRY}
    lines = render(snapshot).splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(types) == len(set(types)) == len(FAMILIES)
    samples = [line for line in lines if not line.startswith("#")]
    assert [line for line in samples if SAMPLE.fullmatch(line) is None] == []
    assert all(line.partition("{")[0].partition(" ")[0] in types for line in samples)


def test_what_is_no_counter_of_the_relay_is_not_shown() -> None:
    text = render({"alice": 1, "refused_alice bob": 1, 'refused_"} 1\nx': 1, "stored_": 1, "now_alice": 1})
    assert not [line for line in text.splitlines() if line.endswith(" 1")]
