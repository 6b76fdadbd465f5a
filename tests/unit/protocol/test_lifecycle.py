"""The table of §6.1, and what it must never allow."""

import pytest

from ringline.protocol.lifecycle import (
    FINAL,
    TRANSITIONS,
    WITH_CANCEL_FLAG,
    Event,
    IllegalTransition,
    Mode,
    State,
    advance,
)

# RL-DURABLE-036: these three mean that no handler of a durable call has begun.
NOT_BEGUN = {State.QUEUED, State.LEASED, State.ACCEPTED}


def steps() -> list[tuple[Mode, State, Event, State]]:
    plain = [(*key, step.to) for key, step in TRANSITIONS.items()]
    return plain + [(*key, step.to) for key, step in WITH_CANCEL_FLAG.items() if step is not None]


def test_no_step_leaves_a_final_state() -> None:
    assert not [step for step in steps() if step[1] in FINAL]


def test_every_state_that_is_not_final_can_reach_a_final_one() -> None:
    for mode in Mode:
        open_states = {state for m, state, _, _ in steps() if m is mode}
        reached = set(FINAL)
        while grown := {s for m, s, _, to in steps() if m is mode and to in reached} - reached:
            reached |= grown
        assert open_states <= reached


def test_completed_comes_only_from_started() -> None:
    assert {state for _, state, event, _ in steps() if event is Event.COMPLETE} == {State.STARTED}


def test_a_durable_call_is_expired_or_parked_only_before_its_start() -> None:
    for mode, state, event, to in steps():
        if mode is Mode.DURABLE and to is State.PARKED:
            assert state in NOT_BEGUN
        if mode is Mode.DURABLE and to is State.EXPIRED:
            # After a start only a confirmed stop ends so.
            assert state in NOT_BEGUN or event is Event.STOPPED


def test_a_call_is_canceled_only_when_nobody_has_it_or_the_listener_confirmed() -> None:
    for mode, state, event, to in steps():
        if to is not State.CANCELED:
            continue
        confirmed = event in {Event.CANCELLED, Event.STOPPED}
        released = mode is Mode.DURABLE and state in NOT_BEGUN and event in {Event.RELEASE, Event.PARK}
        with_nobody = event is Event.CANCEL and state in {State.QUEUED, State.PARKED}
        assert confirmed or released or with_nobody


def test_a_call_in_a_listeners_hands_is_not_canceled_by_asking() -> None:
    for state in (State.RINGING, State.LEASED, State.ACCEPTED, State.STARTED):
        for mode in Mode:
            with pytest.raises(IllegalTransition):
                advance(mode, state, Event.CANCEL, cancel_requested=True)


def test_a_flagged_call_is_neither_handed_out_nor_granted() -> None:
    for state, event in (
        (State.QUEUED, Event.LEASE),
        (State.LEASED, Event.START),
        (State.ACCEPTED, Event.START),
    ):
        assert advance(Mode.DURABLE, state, event).to is not State.CANCELED
        with pytest.raises(IllegalTransition):
            advance(Mode.DURABLE, state, event, cancel_requested=True)


def test_a_release_with_the_flag_ends_the_call() -> None:
    assert advance(Mode.DURABLE, State.LEASED, Event.RELEASE).to is State.QUEUED
    assert advance(Mode.DURABLE, State.LEASED, Event.RELEASE, cancel_requested=True).to is State.CANCELED


@pytest.mark.parametrize(
    ("state", "event", "to", "error"),
    [
        (State.RINGING, Event.RING_BOUND, State.EXPIRED, "timeout"),
        (State.RINGING, Event.INSTANCE_LOST, State.EXPIRED, "timeout"),
        (State.ACCEPTED, Event.CALL_BOUND, State.INDETERMINATE, "timeout"),
        (State.STARTED, Event.CALL_BOUND, State.INDETERMINATE, "timeout"),
        (State.STARTED, Event.INSTANCE_LOST, State.INDETERMINATE, "timeout"),
        (State.RINGING, Event.REJECT, State.DELIVERY_FAILED, "protocol_error"),
        (State.STARTED, Event.CANCELLED, State.CANCELED, "canceled"),
    ],
)
def test_how_sync_calls_end(state: State, event: Event, to: State, error: str) -> None:
    step = advance(Mode.SYNC, state, event)
    assert (step.to, step.error) == (to, error)


def test_acceptance_is_not_start() -> None:
    assert advance(Mode.SYNC, State.RINGING, Event.ACCEPT).status == "answered"
    assert advance(Mode.SYNC, State.ACCEPTED, Event.START).status == "working"
    with pytest.raises(IllegalTransition):
        advance(Mode.SYNC, State.ACCEPTED, Event.COMPLETE)


def test_the_record_shows_a_parked_call_as_delivery_failed() -> None:
    assert State.PARKED.record == "delivery_failed"
    assert all(state.record == state.value for state in State if state is not State.PARKED)


def test_an_illegal_step_says_what_could_not_happen() -> None:
    with pytest.raises(IllegalTransition, match="a sync call that is ringing cannot take complete") as caught:
        advance(Mode.SYNC, State.RINGING, Event.COMPLETE)
    assert (caught.value.mode, caught.value.state, caught.value.event) == (
        Mode.SYNC,
        State.RINGING,
        Event.COMPLETE,
    )
