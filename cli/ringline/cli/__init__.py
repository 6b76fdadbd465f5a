"""The `ringline` command. Sub-commands are imported when they are used."""

from ringline.cli.app import main

__all__ = ["main"]
