"""Counts of completions that several tests show."""

from __future__ import annotations

from tui.editor_statistics import EditorStatistics, Kept, Latency, RouteCount

COUNTED = EditorStatistics(
    accepted=150,
    partial=30,
    typed=20,
    rejected=200,
    unseen=90,
    accepted_chars=4_200,
    kept=(
        Kept(after_s=30, measured=160, share=0.97),
        Kept(after_s=120, measured=150, share=0.912),
        Kept(after_s=600, measured=96, share=1.0),
    ),
    latency={
        "all": Latency(answers=1_000, p50_ms=12.0, p90_ms=540.0),
        "model": Latency(answers=350, p50_ms=380.0, p90_ms=1_290.0),
        "memory": Latency(answers=600, p50_ms=2.0, p90_ms=6.0),
        "prefetch": Latency(answers=50, p50_ms=3.0, p90_ms=8.0),
    },
    empty=44,
    cancelled=120,
    tokens_after_cancel=30,
    routes={
        "copy": RouteCount(rounds=800, drafted=2_400, tested=2_000, accepted=1_500),
        "plain": RouteCount(rounds=400, drafted=0, tested=0, accepted=0),
    },
)
