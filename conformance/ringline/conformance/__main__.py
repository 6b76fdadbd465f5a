"""``python -m ringline.conformance``."""

from ringline.conformance.cli import main

__all__: list[str] = []

main()
