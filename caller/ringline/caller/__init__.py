"""The caller: seals calls to a handle and opens their signed outcomes."""

__all__: list[str] = []
