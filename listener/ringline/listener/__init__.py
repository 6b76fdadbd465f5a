"""The listener: serves a handle, opens sealed calls, runs the work and seals the outcome."""

__all__: list[str] = []
