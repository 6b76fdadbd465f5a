"""What every test may rely on, however the suite was started."""

import signal

# A shell that runs the suite in the background ignores SIGINT for it, and ignoring is inherited: a Ctrl-C
# that a test sends would go unheard. A handler, unlike ignoring, is not inherited by what a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
