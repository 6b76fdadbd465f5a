"""The ringline command."""

__all__: list[str] = []
