"""One model, decoded with self-speculative drafts: the text is the full model's, the speed is not.

Reading order: `decode` (a round), `verify` (what of a draft is kept), `draft_length` (whether and
how far to draft), `cache`, `model`; then `answer` (one request, step by step), `session` (what
answers share), `slots` (whose KV is kept), `jobs` (whose turn it is), `service` (the thread and its
async face). `protocol` is all that clients may import.

Letters of shapes: B rows, T new tokens, K drafted, S cache slots, N layers, L exit layer, H query
heads, G kv heads, E head dim, D hidden, V vocabulary.
"""
