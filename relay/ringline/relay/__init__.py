"""The relay: routes sealed calls between callers and listeners without being able to read them."""

__all__: list[str] = []
