"""Calibration: which way of drafting pays for one's own requests on one's own machine.

`requests` (what is asked) → `engine.train.answers` (the model's own answers) → `agreement` (how
often a shorter path says the same) → `path_costs` (what it takes) → `figures` (both put into the
formula) → `speed` (real rounds beside it) → `engine.profile` (what the next start uses).
"""
