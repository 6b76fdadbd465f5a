"""Relays that break one rule each, and whether the conformance suite notices."""

__all__: list[str] = []
