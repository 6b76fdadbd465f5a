"""What caller and listener share: identity on disk, log-in, the link to a relay and pinned contacts."""

__all__: list[str] = []
