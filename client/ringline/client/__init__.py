"""What the two clients of a relay share: identity on disk, HTTP, log-in, connections, pinned keys."""

from ringline.client.account import Account
from ringline.client.address import DEFAULT_RELAY, LOCAL_REALM, RelayAddress
from ringline.client.background import Background
from ringline.client.backoff import Backoff
from ringline.client.clock import RelayClock
from ringline.client.contacts import Contacts, Pin
from ringline.client.generation import Passphrase
from ringline.client.home import Home
from ringline.client.http import CancelAnswer, RelayHttp
from ringline.client.keylog import KeyLog
from ringline.client.keyring import OwnKey
from ringline.client.link import Link, LinkUser
from ringline.client.peers import Peer, Peers, Sender
from ringline.client.usual import keep_usual, meant_relay

__all__ = [
    "DEFAULT_RELAY",
    "LOCAL_REALM",
    "Account",
    "Background",
    "Backoff",
    "CancelAnswer",
    "Contacts",
    "Home",
    "KeyLog",
    "Link",
    "LinkUser",
    "OwnKey",
    "Passphrase",
    "Peer",
    "Peers",
    "Pin",
    "RelayAddress",
    "RelayClock",
    "RelayHttp",
    "Sender",
    "keep_usual",
    "meant_relay",
]
