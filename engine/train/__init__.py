"""Making the fitted jump of the `exit_head` route: from prompts to one small file.

Reading order: `course` (the stages and the budget), `prompts` and `project_text` (what is asked),
`answers` (the model's own text), `samples` (its states), `moments` (the closed form), `tail` and
`unrolled` (the last layers as something to differentiate), `agreement` and `prospect` (what a jump
is worth), `distil` (training through the tail). The target's weights are read and never written.
"""
