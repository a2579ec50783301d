"""`parity bench`: how long deployed files take beside PyTorch, and where the time goes.

Rounds go through the cases in turn, each in a process of its own. The report shows the
measured runs, and ratios come from runs of the same round.
"""
