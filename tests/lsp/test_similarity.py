"""What counts as near: shared names, imports, the kind of file, what is open, what just changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp.similarity import (
    Candidate,
    Query,
    identifiers,
    imported_names,
    kinship,
    module_name,
    ranked,
)
from lsp.windows import Window


def candidate(name: str, text: str, *, age_s: float = 1e6, is_open: bool = False) -> Candidate:
    return Candidate(
        name=name,
        window=Window(first=0, body=text),
        words=identifiers(text),
        age_s=age_s,
        is_open=is_open,
    )


def order(text: str, *candidates: Candidate, imports: str = "", suffix: str = ".py") -> list[str]:
    query = Query(words=identifiers(text), imports=frozenset(imports.split()), suffix=suffix)
    return [one.candidate.name for one in ranked(query, candidates)]


def test_names_count_whole_and_in_parts() -> None:
    assert identifiers("parseHTTPHeader(raw_bytes, n)") >= {
        *("parseHTTPHeader", "parse", "header", "raw_bytes", "raw", "bytes"),
    }
    assert identifiers("größe = früher_wert") >= {"größe", "früher_wert", "früher", "wert"}
    assert identifiers("12 + 3.5e7 - ab") == frozenset()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("from app.model_store import listing", {"app", "model_store", "listing"}),
        ("import numpy as np, sys", {"numpy", "sys"}),
        ("import { a } from './Lib/wire.js'", {"lib", "wire"}),
        ("const fs = require('./store')", {"store"}),
        ("} from '../shared/types';", {"shared", "types"}),
        ("export * from './shape'", {"shape"}),
        ('#include "core/queue.h"', {"core", "queue"}),
        ("use crate::engine::cache;", {"engine", "cache"}),
        ("pub mod tokens;", {"tokens"}),
        ("import com.acme.Invoice;", {"invoice"}),
        ('\t"github.com/acme/wire"', {"wire"}),
        ("require_relative 'helper'", {"helper"}),
    ],
)
def test_imports_are_found_in_many_languages(line: str, names: set[str]) -> None:
    assert imported_names(["", line]) >= names
    assert imported_names(["x = 1", "important = compute(line)"]) == frozenset()


def test_a_module_is_named_by_its_file_or_its_folder() -> None:
    assert module_name("a/Wire.test.ts") == "wire"
    assert module_name("engine/__init__.py") == "engine"
    assert module_name("src\\shape\\index.ts") == "shape"
    assert module_name("mod.rs") == "mod"


def test_rare_names_count_more_than_common_ones() -> None:
    noise = [candidate(f"n{n}.py", "value result index total other") for n in range(20)]
    found = order(
        "value result index invoice_total = tax_rate",
        *noise,
        candidate("tax.py", "def apply(invoice_total, tax_rate): ..."),
    )
    assert found[0] == "tax.py"


def test_one_name_in_common_is_not_enough() -> None:
    assert order("alpha = 1", candidate("a.py", "alpha")) == []
    assert order("", candidate("a.py", "alpha beta")) == []
    assert order("alpha beta") == []


def test_what_tips_the_scales_between_equals() -> None:
    text = "alpha beta gamma"
    plain = candidate("m.py", text)
    assert order(text, plain, candidate("z.py", text), imports="z")[0] == "z.py"
    assert order(text, plain, candidate("z.py", text, is_open=True))[0] == "z.py"
    assert order(text, plain, candidate("z.py", text, age_s=5))[0] == "z.py"
    assert order(text, candidate("a.md", text), plain)[0] == "m.py"
    assert (
        order(
            text,
            candidate("m.py", text + " " + " ".join(f"w{n}x" for n in range(99))),
            candidate("z.py", text),
        )[0]
        == "z.py"
    )
    assert order(text, candidate("z.py", text), plain) == ["m.py", "z.py"]


def test_kinship_knows_families() -> None:
    assert kinship(".ts", ".ts") > kinship(".ts", ".js") > kinship(".ts", ".py")
    assert kinship("", ".py") == kinship(".rs", ".py")


WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta_one", "epsilonTwo"]))


@given(WORDS, st.lists(WORDS, max_size=6))
def test_any_text_can_be_compared(query: list[str], others: list[list[str]]) -> None:
    made = [candidate(f"{n}.py", " ".join(words)) for n, words in enumerate(others)]
    found = ranked(
        Query(words=identifiers(" ".join(query)), imports=frozenset(), suffix=".py"), made
    )
    assert all(one.score >= 0 for one in found)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
