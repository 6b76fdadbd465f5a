"""The Ringline protocol: frames, envelope, identities, limits and errors, without any input or output."""

__all__: list[str] = []
