"""What a relay answers is read openly: a later relay may say more."""

import msgspec
import pytest

from ringline.client.answers import read_answer
from ringline.protocol import shapes


def answer(**members: object) -> bytes:
    return msgspec.json.encode(members)


def test_an_unknown_member_is_passed_over_in_a_shape_that_is_closed_when_it_is_sent() -> None:
    body = answer(offline=True, accept="anyone", allow=["bob"], block=[], more={"a": 1})
    assert read_answer(body, shapes.Policy) == shapes.Policy(
        offline=True, accept="anyone", allow=["bob"], block=[]
    )


def test_an_unknown_member_is_passed_over_within_a_known_one() -> None:
    statement = {"old_card_id": "A" * 43, "new_ipk": "AAAA", "ts": 1, "sig": "AAAA", "more": 1}
    keys: dict[str, object] = {
        "handle": "bob",
        "card": "A",
        "card_sig": "A",
        "prekey": "A",
        "prekey_sig": "A",
        "revoked": [],
    }
    read = read_answer(answer(**keys, succession=statement, more=None), shapes.Keys)
    assert isinstance(read.succession, shapes.SuccessionStatement)
    assert read.succession.ts == 1


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"offline":1,"accept":"anyone","allow":[],"block":[]}', b"{"]
)
def test_what_is_not_of_the_shape_is_refused(body: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        read_answer(body, shapes.Policy)
