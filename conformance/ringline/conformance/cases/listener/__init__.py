"""Cases for a listener: the suite is its relay and its callers."""

__all__: list[str] = []
