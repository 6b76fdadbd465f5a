"""The derived numbers follow from the ones they are derived from."""

from math import ceil

from ringline.protocol import limits


def test_frame_limits_hold_the_worst_message_and_the_worst_reply() -> None:
    assert ceil((64_000 * 6 + 8_192) * 4 / 3) + 4_096 == limits.CALLER_FRAME_BYTES == 527_019
    assert ceil((256_000 * 6 + 8_192) * 4 / 3) + 4_096 == limits.LISTENER_FRAME_BYTES == 2_063_019


def test_a_sealed_text_at_its_cap_fits_the_frame_of_its_direction() -> None:
    around = 1_504  # frame JSON beside the ciphertext
    assert limits.REQUEST_CT_CHARS + around <= limits.CALLER_FRAME_BYTES
    assert limits.OUTCOME_CT_CHARS + around <= limits.LISTENER_FRAME_BYTES


def test_the_listener_stops_work_before_the_relay_ends_the_call() -> None:
    assert limits.WORK_BOUND_MS < limits.WORK_BOUND_MAX_MS < limits.CALL_BOUND_MS


def test_tokens_are_remembered_for_as_long_as_they_could_be_replayed() -> None:
    assert limits.TOKEN_MEMORY_S >= limits.TOKEN_SKEW_S + limits.TOKEN_LIFE_S
