"""The cases, one folder for each role and one file for each chapter of the normative text."""

__all__: list[str] = []
