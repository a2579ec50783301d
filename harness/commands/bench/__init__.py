"""`parity bench`: times of deployed files and PyTorch, and the time of each module.

A round runs every case once, each in its own process. The report shows the measured
runs. Ratios come from runs of the same round.
"""
