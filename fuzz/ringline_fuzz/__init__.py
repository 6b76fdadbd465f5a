"""Targets that feed damaged input to Ringline, and what each of them promises."""
