"""Any network: its calls recorded, and a verdict for a live module.

calls         what a module was called with, and what it returned
forms         the folder of recorded calls: tensors, names, and which sizes are open
live          how a module reaches a worker process: a pickle in this user's own store
suites        the suite of recorded calls, as text
check         `harness.check` and its verdict
command       `parity capture`
"""

from harness.core.plugins import Plugin

PLUGIN = Plugin(commands=("harness.plugins.capture.command:capture",))
