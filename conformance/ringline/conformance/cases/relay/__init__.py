"""Cases for a relay: the suite is its callers and its listeners."""

__all__: list[str] = []
