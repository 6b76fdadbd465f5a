"""A Ringline peer of the realm `localhost`, written from the two design documents alone.

It shares no code with the product, so what the two agree on is what the documents say; comments name the
chapter of a rule. Left out for size: reconnecting, re-sending, rotation of keys, conversations, tasks.
"""

import argparse
import base64
import hashlib
import json
import os
import struct
import sys
import time
import uuid
from pathlib import Path
from typing import Any
from urllib import request

from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric import mlkem, x25519
from nacl.bindings import crypto_core_ed25519_is_valid_point
from nacl.bindings import crypto_hash_sha256 as sha
from nacl.signing import SigningKey, VerifyKey
from websockets import Subprotocol
from websockets.sync.client import ClientConnection, connect

# fmt: off
Json = dict[str, Any]
Sealed = tuple[Json, bytes]  # an envelope, and the digest of what was signed in it (RL-ENVELOPE-037)
REALM, HOUR, DAY, SKEW = "localhost", 3_600_000, 86_400_000, 120_000  # milliseconds
REQUEST, OUTCOME, CAP = 1, 2, {1: 393_000, 2: 1_545_000}  # RL-ENVELOPE-013
MODES, LIFE = {"sync": 0, "durable": 1}, {"sync": 600_000, "durable": 3 * DAY}  # RL-ENVELOPE-015
ENVELOPE, TERMINALS = {"v", "suite", "kid", "sid", "iat", "exp", "ct"}, {"completed": 1, "failed": 2}
ASKED = {"message", "task", "args", "query", "context_id", "turn", "prev", "traceparent", "kt", "ext"}
TOLD = {"reply", "failure", "reason", "offered", "kt", "ext"}  # RL-ENVELOPE-046
KEMS = {1: hpke.KEM.X25519, 2: hpke.KEM.MLKEM768_X25519}
SUITES = {id: hpke.Suite(kem, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305) for id, kem in KEMS.items()}
CARD, PREKEY = struct.Struct(">32sIQQ32s32s"), struct.Struct(">IQQB")  # RL-ENVELOPE-001

def demand(kept: bool, rule: str) -> None:
    if not kept:
        raise ValueError(rule)
def now() -> int:
    return time.time_ns() // 1_000_000
def v(data: bytes) -> bytes:  # RL-ENVELOPE-001
    return len(data).to_bytes(2, "big") + data
def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
def unb64(text: str) -> bytes:
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    demand(b64(data) == text, "canonical unpadded base64url")  # RL-CONV-003
    return data
def unique(pairs: list[tuple[str, Any]]) -> Json:
    demand(len(dict(pairs)) == len(pairs), "duplicate member")  # RL-FRAME-003
    return dict(pairs)
pack = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
unpack = json.JSONDecoder(object_pairs_hook=unique).decode
LABEL = {use: v(b"ringline-v1/" + use.encode()) for use in ("card", "prekey", "key", "ctx", "sig", "hpke")}

def private_key(suite: int, seed: bytes) -> tuple[Any, bytes]:
    """The KEM key of a seed, and its public bytes (RL-ENVELOPE-005)."""
    wide = seed if suite == 1 else hashlib.shake_256(seed).digest(96)
    curve = x25519.X25519PrivateKey.from_private_bytes(wide[-32:])
    raw = curve.public_key().public_bytes_raw()
    if suite == 1:
        return curve, raw
    lattice = mlkem.MLKEM768PrivateKey.from_seed_bytes(wide[:64])
    return hpke.MLKEM768X25519PrivateKey(lattice, curve), lattice.public_key().public_bytes_raw() + raw
def public_key(suite: int, raw: bytes) -> tuple[Any, bytes]:  # the key, if it is a good one, and its key_id
    demand(len(raw) == (32 if suite == 1 else 1216) and raw[-1] < 0x80, "KEM key")
    curve, key_id = x25519.X25519PublicKey.from_public_bytes(raw[-32:]), struct.pack(">H", suite) + raw
    x25519.X25519PrivateKey.generate().exchange(curve)  # refuses points of low order
    lattice = mlkem.MLKEM768PublicKey.from_public_bytes(raw[:-32]) if suite == 2 else None
    key: Any = hpke.MLKEM768X25519PublicKey(lattice, curve) if lattice else curve
    return key, sha(LABEL["key"] + key_id)
def verify(key: bytes, message: bytes, signature: bytes) -> None:
    demand(crypto_core_ed25519_is_valid_point(key), "weak Ed25519 key")  # RL-ENVELOPE-007
    VerifyKey(key).verify(message, signature)
def read_card(keys: Json, handle: str) -> Json:  # RL-KEYS-003
    raw, head = unb64(keys["card"]), LABEL["card"] + v(REALM.encode()) + v(handle.encode())
    demand(raw.startswith(head), "card of another handle or realm")
    ipk, serial, start, end, spk, _ = CARD.unpack(raw[len(head) :])
    verify(ipk, raw, unb64(keys["card_sig"]))
    demand(crypto_core_ed25519_is_valid_point(spk) and ipk != spk and serial > 0, "keys of the card")
    demand(0 < end - start <= 90 * DAY + HOUR and b64(sha(raw)) not in keys.get("revoked", []), "dead card")
    return {"id": sha(raw), "ipk": ipk, "spk": spk, "start": start - SKEW, "end": end + SKEW}
def read_prekey(keys: Json, card: Json) -> tuple[int, bytes]:
    """The highest suite known here, and its public bytes (RL-ENVELOPE-008)."""
    raw, head = unb64(keys["prekey"]), LABEL["prekey"] + card["id"]
    verify(card["spk"], raw, unb64(keys["prekey_sig"]))
    demand(raw.startswith(head), "prekey of another card")
    _, start, end, count = PREKEY.unpack_from(raw, len(head))
    rest, offers = raw[len(head) + PREKEY.size :], dict[int, bytes]()
    for _ in range(count):
        suite, size = struct.unpack_from(">HH", rest)
        offers[suite], rest = rest[4 : 4 + size], rest[4 + size :]
    demand(not rest and len(offers) == count and list(offers) == sorted(offers), "list of prekeys")
    demand(end - start <= 14 * DAY + HOUR and start - SKEW <= now() < end, "dead prekey")
    return max((suite, key) for suite, key in offers.items() if suite in SUITES)

def context(way: int, call: Json, ends: bytes, tail: bytes) -> bytes:
    """H(CTX), from what this end knows; `call` is a frame and its envelope in one (RL-ENVELOPE-018)."""
    head = LABEL["ctx"] + struct.pack(">BH", way, call["suite"]) + v(REALM.encode()) + ends
    mode, message_id = MODES[call.get("delivery_mode", "sync")], call.get("message_id", "")
    ids = struct.pack(">B", mode) + v(message_id.encode()) + v(call["correlation_id"].encode())
    return sha(head + ids + struct.pack(">QQ", call["iat"], call["exp"]) + tail)
def padded(way: int, size: int) -> int:
    demand(size <= CAP[way], "message_too_large")
    exponent = max(size, 2048).bit_length() - 1
    step = 1 << (exponent - exponent.bit_length())
    return min(-(-max(size, 2048) // step) * step, CAP[way])
def unseal(way: int, call: Json, ends: bytes, key: Any, spk: bytes, tail: bytes = b"") -> tuple[bytes, bytes]:
    """The body, and the digest of what was signed (RL-ENVELOPE-028 to RL-ENVELOPE-031)."""
    ctx = context(way, call, ends, tail)
    plain = SUITES[call["suite"]].decrypt(unb64(call["ct"]), key, LABEL["hpke"] + ctx)
    end = 69 + int.from_bytes(plain[65:69], "big")
    demand(plain[0] == 1 and end <= len(plain) == padded(way, end), "length of the padding")
    demand(plain[end:] == bytes(len(plain) - end), "padding")
    to_sign = LABEL["sig"] + ctx + sha(plain[69:end])
    verify(spk, to_sign, plain[1:65])
    return plain[69:end], sha(to_sign)
def spread(frame: Json) -> Json:  # a frame and the envelope in it, side by side
    sealed: Json = frame["envelope"]
    known = pack([sealed["v"], sealed["suite"]]) in ("[1,1]", "[1,2]")
    demand(known and sealed.keys() == ENVELOPE and None not in frame.values(), "envelope")
    return frame | sealed

class Peer:  # one handle on one relay; its keys, pins and journal are one file
    def __init__(self, base: str, handle: str, path: str, suite: int) -> None:
        self.base, self.handle, self.path = base, handle, Path(path)
        self.state: Json = json.loads(self.path.read_text()) if self.path.exists() else self.mint(suite)
        self.save()
        self.signer, self.card = SigningKey(unb64(self.state["ssk"])), read_card(self.state["keys"], handle)
        self.key, raw = private_key(self.state["suite"], unb64(self.state["seed"]))
        self.me, self.kid = v(handle.encode()) + self.card["ipk"], public_key(self.state["suite"], raw)[1]
        demand(self.http("GET", "/v1/relay")["realm"] == REALM, "another realm")  # RL-HTTP-016
    def mint(self, suite: int) -> Json:  # a new identity, its card and prekey: RL-KEYS-006, RL-KEYS-021
        isk, ssk, seed, start = SigningKey.generate(), SigningKey.generate(), os.urandom(32), now() - HOUR
        body = CARD.pack(bytes(isk.verify_key), 1, start, start + 90 * DAY, bytes(ssk.verify_key), bytes(32))
        card, epoch = LABEL["card"] + v(REALM.encode()) + v(self.handle.encode()) + body, now() // DAY
        body = PREKEY.pack(epoch, epoch * DAY - HOUR, (epoch + 14) * DAY, 1) + struct.pack(">H", suite)
        prekey = LABEL["prekey"] + sha(card) + body + v(private_key(suite, seed)[1])
        signed = {"card": card, "card_sig": isk.sign(card).signature, "prekey": prekey}
        keys = {name: b64(raw) for name, raw in (signed | {"prekey_sig": ssk.sign(prekey).signature}).items()}
        fresh = {"suite": suite, "keys": keys, "pins": {}, "journal": {}, "instance": str(uuid.uuid4())}
        return fresh | {"isk": b64(bytes(isk)), "ssk": b64(bytes(ssk)), "seed": b64(seed)}
    def save(self) -> None:
        (fresh := self.path.with_suffix(".new")).write_text(pack(self.state))
        fresh.replace(self.path)
    def token(self, method: str, path: str) -> Json:  # the log-in header: RL-AUTH-002, RL-AUTH-003
        at, head = int(time.time()), {"alg": "EdDSA", "typ": "JWT", "kid": b64(self.card["id"])}
        claims = {"iss": self.handle, "sub": head["kid"], "aud": REALM, "iat": at, "exp": at + 60}
        claims |= {"jti": os.urandom(16).hex(), "htm": method, "htu": path}
        signed = b64(pack(head).encode()) + "." + b64(pack(claims).encode())
        return {"Authorization": f"Bearer {signed}.{b64(self.signer.sign(signed.encode()).signature)}"}
    def http(self, method: str, path: str, query: str = "", body: Json | None = None) -> Json:
        headers = self.token(method, path) | {"Content-Type": "application/json"}
        data = pack(body).encode() if body else None
        ask = request.Request(self.base + path + query, data, headers, method=method)
        with request.build_opener(request.ProxyHandler({})).open(ask, timeout=20) as answer:
            return dict(unpack(answer.read().decode()))
    def dial(self, path: str, query: str = "") -> ClientConnection:
        url, headers = "ws" + self.base.removeprefix("http") + path + query, self.token("GET", path)
        offer = [Subprotocol("ringline.v1")]
        return connect(url, additional_headers=headers, subprotocols=offer, compression=None, proxy=None)
    def peer(self, handle: str, sid: str = "") -> tuple[Json, Json]:  # keys and card, pinned on first use
        keys = self.http("GET", f"/v1/handles/{handle}", f"?card={sid}" if sid else "")
        card = read_card(keys, handle)
        pin = self.state["pins"].setdefault(handle, b64(card["ipk"]))
        demand(pin == b64(card["ipk"]) and sid in ("", b64(card["id"])), f"{handle} is not who was pinned")
        self.save()
        return keys, card
    def seal(self, way: int, call: Json, ends: bytes, raw: bytes, body: bytes, tail: bytes) -> Sealed:
        ctx, key = context(way, call, ends, tail), public_key(call["suite"], raw)[0]
        to_sign = LABEL["sig"] + ctx + sha(body)
        plain = b"\x01" + self.signer.sign(to_sign).signature + len(body).to_bytes(4, "big") + body
        plain = plain.ljust(padded(way, len(plain)), b"\x00")
        ct = SUITES[call["suite"]].encrypt(plain, key, LABEL["hpke"] + ctx)
        ids = {"v": 1, "suite": call["suite"], "kid": b64(ends[-32:]), "sid": b64(self.card["id"])}
        return ids | {"iat": call["iat"], "exp": call["exp"], "ct": b64(ct)}, sha(to_sign)
    def call(self, to: str, message: str, mode: str = "sync") -> str:  # the text of the reply
        keys, card = self.peer(to)
        (suite, raw), iat = read_prekey(keys, card), now()
        demand(card["start"] <= iat <= card["end"] and len(message.encode()) <= 64_000, "card or message")
        ids: Json = {name: os.urandom(16).hex() for name in ("message_id", "correlation_id")}
        ids["delivery_mode"] = mode
        call: Json = ids | {"suite": suite, "iat": iat, "exp": iat + LIFE[mode]}
        key, reply_raw = private_key(suite, os.urandom(32))  # for one outcome only
        them, body = v(to.encode()) + card["ipk"], v(reply_raw) + pack({"message": message}).encode()
        ends = self.me + self.card["id"] + them + public_key(suite, raw)[1]
        sealed, digest = self.seal(REQUEST, call, ends, raw, body, b"")
        with self.dial(f"/v1/call/{to}") as socket:
            socket.send(pack({"type": "call_request", "envelope": sealed} | ids))
            frame, call_id = unpack(str(socket.recv(370))), ""
            while frame["type"] in ("call_status", "call_queued"):
                call_id, frame = frame["call_id"], unpack(str(socket.recv(370)))
        demand(frame["type"] == "call_outcome" and frame["call_id"] == call_id, f"relay: {frame.get('code')}")
        call = spread(frame) | ids | {"exp": call["exp"]}
        card = self.peer(to, call["sid"])[1]
        ends = them + card["id"] + self.me + public_key(suite, reply_raw)[1]
        tail = v(call_id.encode()) + bytes([TERMINALS[frame["terminal"]]]) + digest
        outcome = unpack(unseal(OUTCOME, call, ends, key, card["spk"], tail)[0].decode())
        good = frame["terminal"] == "completed"  # the sealed reason must agree with what CTX bound
        demand(outcome.keys() <= TOLD and (outcome["reason"] == "completed") == good, "sealed outcome")
        demand(good, f"peer: {outcome['reason']}, {outcome.get('failure', {}).get('code')}")
        return str(outcome["reply"]["text"])
    def take(self, frame: Json) -> Json:  # opens a request into the journal: RL-ENVELOPE-018
        call, mode = spread(frame), frame.get("delivery_mode", "sync")
        card = self.peer(frame["from"], call["sid"])[1]
        demand(card["start"] <= call["iat"] <= card["end"] and call["kid"] == b64(self.kid), "card or key")
        demand(0 < call["exp"] - call["iat"] <= LIFE[mode] and call["iat"] <= now() + SKEW, "times")
        demand(now() < min(call["exp"] + SKEW, call.get("execute_by", call["exp"] + SKEW)), "too late")
        them = v(frame["from"].encode()) + card["ipk"]
        ends = them + card["id"] + self.me + self.kid
        body, call["digest"] = unseal(REQUEST, call, ends, self.key, card["spk"])
        size = 2 + int.from_bytes(body[:2], "big")
        call["reply_raw"], text = body[2:size], body[size:]
        call["ends"] = self.me + self.card["id"] + them + public_key(call["suite"], call["reply_raw"])[1]
        try:  # from here on the sender is authenticated, and a refusal is sealed for him
            asked = unpack(text.decode())
            demand(asked.keys() <= ASKED and len(asked["message"].encode()) <= 64_000, "sealed request")
            refusals = {"context_unknown": "context_id" in asked, "task_unknown": "task" in asked}
        except Exception:
            asked, refusals = {"message": ""}, {"agent_error": True}
        fresh = {"payload": b64(sha(text)), "state": "taken", "call_id": call["call_id"]}
        name = b64(card["ipk"]) + frame.get("message_id", call["digest"].hex())
        row = self.state["journal"].setdefault(name, fresh)
        ended = row["state"] == "cancelled" and row["call_id"] != call["call_id"]
        if ended or row["payload"] != fresh["payload"]:
            row, refusals = fresh, {"agent_error" if ended else "duplicate_conflict": True}
        call |= {"row": row, "message": asked["message"]}
        call["refusal"] = next((code for code, holds in refusals.items() if holds), "")
        self.save()
        return call
    def outcome(self, call: Json) -> tuple[str, Json]:  # journalled before it is sent: RL-IDEM-024
        reply: Json = {"reply": {"text": call["message"].upper()}, "reason": "completed"}
        body: Json = {"failure": {"code": call["refusal"]}, "reason": "failed"} if call["refusal"] else reply
        call["row"]["state"], call["iat"] = "finished", now()
        self.save()
        tail = v(call["call_id"].encode()) + bytes([TERMINALS[body["reason"]]]) + call["digest"]
        sealed, _ = self.seal(OUTCOME, call, call["ends"], call["reply_raw"], pack(body).encode(), tail)
        return "call_outcome", {"terminal": body["reason"], "envelope": sealed}
    def react(self, frame: Json, calls: Json) -> list[tuple[str, Json]]:  # RL-DURABLE-040
        kind, lease, call = frame["type"], frame.get("lease_id"), calls.get(frame.get("call_id", ""))
        if kind == "incoming_call":
            try:
                call = calls[frame["call_id"]] = call or self.take(frame)
            except Exception as reason:  # one answer for every fault
                sys.stderr.write(f"rejected: {reason!r}\n")
                return [("call_rejected", {"code": "protocol_error"})]
            call["lease"] = lease
            if call["row"]["state"] == "cancelled":
                return [("call_cancelled", {"phase": "pending"})]
            if call["refusal"]:
                return [("call_accepted", {}), self.outcome(call)]
            end = [] if lease else [self.outcome(call)]  # a durable start must be granted first
            return [("call_accepted", {}), ("call_started", {}), *end]
        if kind == "call_started" and call and call["lease"] == lease and call["row"]["state"] != "cancelled":
            call["lease"] = ""  # a second grant is ignored
            return [self.outcome(call)]
        if kind != "cancel_call":
            return []
        if call is None or call["row"]["state"] == "finished":
            return [("call_not_cancelled", {"reason": "already_terminal" if call else "unknown"})]
        call["row"]["state"] = "cancelled"
        self.save()
        return [("call_cancelled", {"phase": "pending"})]
    def answer(self, count: int) -> None:  # in upper case; a count below 0 is no limit
        query, calls = f"?instance={self.state['instance']}&boot={uuid.uuid4()}&capacity=8", dict[str, Any]()
        with self.dial(f"/v1/listen/{self.handle}", query) as socket:
            sys.stderr.write("listening\n")
            while count:
                frame = unpack(str(socket.recv()))
                ids = {name: frame[name] for name in ("call_id", "lease_id") if name in frame}
                for kind, members in self.react(frame, calls):
                    socket.send(pack({"type": kind} | ids | members))
                    count -= kind == "call_outcome"

def main() -> None:
    os.umask(0o077)
    (parser := argparse.ArgumentParser()).add_argument("command", choices=("publish", "call", "answer"))
    for name in ("--relay", "--handle", "--state"):
        parser.add_argument(name, required=True)
    parser.add_argument("--suite", type=int, choices=SUITES, default=2)
    parser.add_argument("--count", type=int, default=-1)
    parser.add_argument("--to")
    parser.add_argument("message", nargs="?")
    args = parser.parse_intermixed_args()
    peer = Peer(args.relay.rstrip("/"), args.handle, args.state, args.suite)
    if args.command == "publish":
        peer.http("PUT", f"/v1/handles/{args.handle}", body=peer.state["keys"])
    elif args.command == "call":
        sys.stdout.write(peer.call(args.to, args.message) + "\n")
    else:
        peer.answer(args.count)

if __name__ == "__main__":
    main()
