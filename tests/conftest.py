"""Every test: Ctrl-C means what it means at a terminal.

A CI may start its tests in the background, where Ctrl-C is ignored; so it would be by
every process that a test starts, and then interrupts.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
