"""Cases for the bytes of an implementation: one for each vector of the specification."""

__all__: list[str] = []
