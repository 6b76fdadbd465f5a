"""Cases for a caller; the suite is its relay and whom it calls."""

__all__: list[str] = []
