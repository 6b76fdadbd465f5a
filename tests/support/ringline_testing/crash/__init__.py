"""Killing relay, listener and caller at every step that they store, and judging what is left.

`matrix` reads which step is killed in which story, `stories` tells what is done, `stage` runs the parties as
processes, `parties` and `deeds` are what those processes do, `verdict` compares what all of them say in the
end, and `rounds` is the command line of it.
"""
