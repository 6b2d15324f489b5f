"""The prompts that `verify` and `bench` run: one set for both, shipped with the engine.

Questions, edits and holes stand in text files beside this module, the files that the edits work on
in `files/`; long prompts are cut from the engine's own sources, which every installation has. Pure
data, no model. Invariant: of each kind the first cases stand for the kind; whoever wants fewer
takes those.
"""

from __future__ import annotations

from engine.cases.built_in import built_in_cases, first_of_each_kind
from engine.cases.case import KINDS, Case, Kind, LeftOut

__all__ = ["KINDS", "Case", "Kind", "LeftOut", "built_in_cases", "first_of_each_kind"]
