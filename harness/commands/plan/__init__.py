"""`parity plan`: the smallest file whose values stay within a bound.

command.py   options and refusals
place.py     where errors are measured: a component's outputs, or a pipeline
search.py    from the effect of each layer to bits: an integer program
run.py       the order: measure, choose, convert, run, verify
keep.py      the plan's file, the tables of the suite, and the record
screen.py    lines to read
"""
