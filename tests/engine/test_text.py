"""Prompts as ids: what transformers would give, and never a marker that a user spelled."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from engine.protocol import ChatPrompt, FillPrompt, ModelError, RequestError, Snippet, Turn
from engine.text import TextCodec

from .tiny_tokenizers import CHAT_MARKERS, QWEN_FILL, QWEN_REPO, byte_fallback, byte_level, save

if TYPE_CHECKING:
    from pathlib import Path


CHATML = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content"
    " + '<|im_end|>\\n' }}{%- else %}{{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}"
    "{%- endif %}{%- for m in messages %}{%- if m.role != 'system' or not loop.first %}"
    "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
    "{%- if tools %}{{ '<tool_call>' + tools | tojson + '</tool_call>' }}{%- endif %}"
)
HEADERS = (
    "{% set ns = namespace(first=true) %}\n"
    "{% for m in messages %}\n"
    "    {% if ns.first %}{{ bos_token }}{% set ns.first = false %}{% endif %}\n"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim }}"
    "{{ '<|eot_id|>' }}\n"
    "    {% if m.role == 'nobody' %}{% break %}{% endif %}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
PLAIN_LOOP = (
    "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}{% generation %}"
    "{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}"
    "{% endgeneration %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{{ m.content | trim }}{% endfor %}"
)
LLAMA_MARKERS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
SPECIAL = CHAT_MARKERS + QWEN_REPO
UNMARKED = ("<tool_call>", "</tool_call>", "  \n", *QWEN_FILL)
"""Added tokens that the file does not call special, as in the published Qwen2.5 tokenizer."""

TOKENIZER = byte_level(SPECIAL, UNMARKED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(
        tmp_path_factory.mktemp("codec") / "qwen",
        TOKENIZER,
        template=CHATML,
        config={"eos_token": "<|im_end|>", "bos_token": None},
        generation_config={"eos_token_id": [TOKENIZER.token_to_id("<|endoftext|>")]},
    )


@pytest.fixture(scope="module")
def codec(folder: Path) -> TextCodec:
    return TextCodec.from_folder(folder)


def user(*contents: str, snippets: tuple[Snippet, ...] = ()) -> ChatPrompt:
    roles = ("user", "assistant")
    turns = [Turn(role=roles[i % 2], content=text) for i, text in enumerate(contents)]
    return ChatPrompt(turns=tuple(turns), snippets=snippets)


def id_of(marker: str, tokenizer: Tokenizer = TOKENIZER) -> int:
    found = tokenizer.token_to_id(marker)
    assert found is not None
    return int(found)


CONVERSATIONS = [
    user("What does this function return?"),
    user("\n\n  Grüße 你好 👩‍💻 \n\n", "It returns\n\n```\nx\n```", "why <|?\n"),
    ChatPrompt(
        turns=(Turn(role="system", content="Be brief.\n"), Turn(role="user", content="hi |>  \n"))
    ),
]


@pytest.mark.parametrize(
    ("template", "markers", "texts"),
    [
        (CHATML, CHAT_MARKERS, {"eos_token": "<|im_end|>"}),
        (HEADERS, LLAMA_MARKERS, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
        (PLAIN_LOOP, CHAT_MARKERS, {"bos_token": "<|im_start|>", "unk_token": "<|endoftext|>"}),
    ],
)
@pytest.mark.parametrize("prompt", CONVERSATIONS)
def test_harmless_text_gets_the_ids_of_transformers(
    tmp_path: Path,
    template: str,
    markers: tuple[str, ...],
    texts: dict[str, str],
    prompt: ChatPrompt,
) -> None:
    where = save(tmp_path / "m", byte_level(markers, UNMARKED), template=template, config=texts)
    expected = PreTrainedTokenizerFast.from_pretrained(where).apply_chat_template(
        [{"role": t.role, "content": t.content} for t in prompt.turns],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert TextCodec.from_folder(where).chat_ids(prompt) == expected


def test_a_template_may_stand_in_a_file_or_among_several(tmp_path: Path) -> None:
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": CHATML}]
    listed = save(tmp_path / "a", TOKENIZER, config={"chat_template": several})
    single = save(tmp_path / "b", TOKENIZER, template="no")
    (single / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    assert (
        TextCodec.from_folder(listed).chat_ids(CONVERSATIONS[0])
        == TextCodec.from_folder(single).chat_ids(CONVERSATIONS[0])
        != []
    )


ALL_MARKERS = [*SPECIAL, *QWEN_FILL, "<tool_call>", "</tool_call>"]
spellings = st.lists(
    st.one_of(st.sampled_from([*ALL_MARKERS, "<|im_", "end|>", "\n", " "]), st.text(max_size=5)),
    max_size=8,
).map("".join)


@given(text=spellings, system=spellings)
@settings(max_examples=150, deadline=None)
def test_no_turn_can_spell_a_marker(codec: TextCodec, text: str, system: str) -> None:
    turns = (Turn(role="system", content=system), Turn(role="user", content=text))
    ids = codec.chat_ids(ChatPrompt(turns=turns))
    counts = {m: ids.count(id_of(m)) for m in ALL_MARKERS if id_of(m) in ids}
    assert counts == {"<|im_start|>": 3, "<|im_end|>": 2}
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@given(text=spellings)
@settings(max_examples=150, deadline=None)
def test_plain_text_holds_no_marker_and_comes_back_whole(codec: TextCodec, text: str) -> None:
    ids = codec.encode_plain(text)
    assert not {id_of(m) for m in ALL_MARKERS} & set(ids)
    assert codec.decode(ids) == text


def test_private_characters_of_the_user_stay_what_they_are(codec: TextCodec) -> None:
    ids = codec.chat_ids(user("\U000f0000<|im_end|>\U000f0001"))
    assert "\U000f0000<|im_end|>\U000f0001" in TOKENIZER.decode(ids, skip_special_tokens=False)
    assert ids.count(id_of("<|im_end|>")) == 2


def test_an_assistants_own_words_keep_what_the_template_looks_for(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
    thinking = byte_level(CHAT_MARKERS, ("<think>", "</think>"))
    codec = TextCodec.from_folder(save(tmp_path / "m", thinking, template=template))
    ids = codec.chat_ids(user("</think>q", "idea</think>done <|im_end|>", "?"))
    assert thinking.decode(ids, skip_special_tokens=False) == "</think>qdone <|im_end|>?"
    assert id_of("<|im_end|>", thinking) not in ids


def test_ordinary_added_tokens_stay_in_use(codec: TextCodec) -> None:
    assert id_of("  \n") in codec.encode_plain("a  \nb")
    assert id_of("  \n") in codec.chat_ids(user("a  \nb"))


def test_snippets_are_quoted_before_the_last_question(codec: TextCodec) -> None:
    snippets = (Snippet(path="src/a.py", text="x = 1"), Snippet(path="b.md", text="```\nq\n```\n"))
    ids = codec.chat_ids(user("first", "answer", "second <|im_end|>", snippets=snippets))
    text = TOKENIZER.decode(ids, skip_special_tokens=False)
    assert "user\nfirst<|im_end|>" in text
    assert (
        "user\nsrc/a.py\n```\nx = 1\n```\n\nb.md\n````\n```\nq\n```\n````\n\nsecond <|im_end|>"
    ) in text


@pytest.mark.parametrize(
    ("template", "turns", "code"),
    [
        (None, (Turn(role="user", content="hi"),), "no_chat_template"),
        (CHATML, (), "no_question"),
        (CHATML, (Turn(role="system", content="x"),), "no_question"),
        (
            NO_SYSTEM,
            (Turn(role="system", content="x"), Turn(role="user", content="hi")),
            "no_system_role",
        ),
        (
            NO_SYSTEM,
            (Turn(role="user", content="hi"), Turn(role="user", content="hi")),
            "template_refused",
        ),
    ],
)
def test_what_a_template_cannot_do_is_told_in_a_sentence(
    tmp_path: Path, template: str | None, turns: tuple[Turn, ...], code: str
) -> None:
    codec = TextCodec.from_folder(save(tmp_path / "m", TOKENIZER, template=template))
    assert codec.can_chat == (template is not None)
    with pytest.raises(RequestError) as caught:
        codec.chat_ids(ChatPrompt(turns=turns))
    assert caught.value.code == code
    assert caught.value.hint.endswith(".")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{% if %}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}{{ ns.__class__ }}",
        "{{ namespace(_x=1) }}",
        "{{ messages.append(1) }}",
        "{{ 1 // 0 }}",
        "{{ messages[0]['content'] + none }}",
    ],
)
def test_a_template_that_fails_or_reaches_out_is_told_in_a_sentence(
    tmp_path: Path, template: str
) -> None:
    codec = TextCodec.from_folder(save(tmp_path / "m", TOKENIZER, template=template))
    with pytest.raises(ModelError, match="Completion still works") as caught:
        codec.chat_ids(user("hi"))
    assert caught.value.code == "bad_template"


HOLE = FillPrompt(prefix="def f():\n    return '<|fim_suffix|>' + ", suffix="\n# <|im_end|>\n")


def test_a_hole_is_markers_around_plain_text(codec: TextCodec) -> None:
    pre, mid, suf, _ = map(id_of, QWEN_FILL)
    assert codec.can_fill
    assert codec.fill_ids(HOLE) == [
        pre,
        *codec.encode_plain(HOLE.prefix),
        suf,
        *codec.encode_plain(HOLE.suffix),
        mid,
    ]


def test_other_files_come_first_with_repository_markers(codec: TextCodec) -> None:
    name, separator = map(id_of, QWEN_REPO)
    prompt = FillPrompt(
        prefix="x", suffix="", path="a.py", snippets=(Snippet(path="b.py", text="<|file_sep|>"),)
    )
    ids = codec.fill_ids(prompt)
    assert (ids[0], ids.count(separator)) == (name, 2)
    assert "b.py\n<|file_sep|>\n<|file_sep|>a.py" in TOKENIZER.decode(
        ids, skip_special_tokens=False
    )


def test_without_fill_markers_a_sentence_says_so(tmp_path: Path) -> None:
    codec = TextCodec.from_folder(save(tmp_path / "m", byte_level(CHAT_MARKERS)))
    assert not codec.can_fill
    with pytest.raises(RequestError) as caught:
        codec.fill_ids(HOLE)
    assert caught.value.code == "no_fill_tokens"


@pytest.mark.parametrize(
    ("config", "leads"),
    [({}, True), ({"add_bos_token": False}, False), ({"add_bos_token": True}, True)],
)
def test_a_fill_begins_as_the_tokenizer_wants_it(
    tmp_path: Path, config: dict[str, bool], leads: bool
) -> None:
    tokenizer = byte_level(SPECIAL, UNMARKED)
    start = id_of("<|endoftext|>", tokenizer)
    if "add_bos_token" not in config:
        tokenizer.post_processor = TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", start)]
        )
    texts = {"bos_token": {"content": "<|endoftext|>"}, **config}
    ids = TextCodec.from_folder(save(tmp_path / "m", tokenizer, config=texts)).fill_ids(HOLE)
    assert (ids[0] == start) is leads
    assert ids.count(start) == leads


INFILL = ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>")
PATH_TO_PRE = (("▁", "<"), ("P", "R"), ("PR", "E"), ("PRE", ">"), ("▁<", "PRE>"))


def test_a_sentencepiece_vocabulary_fills_without_added_spaces(tmp_path: Path) -> None:
    tokenizer = byte_fallback(INFILL)
    codec = TextCodec.from_folder(save(tmp_path / "m", tokenizer, config={"bos_token": "<s>"}))
    tokens = [tokenizer.id_to_token(i) for i in codec.fill_ids(FillPrompt(prefix="ab", suffix="c"))]
    assert tokens == ["<s>", "▁<PRE>", "▁", "a", "b", "▁<SUF>", "c", "▁<MID>"]


def test_merges_that_lead_to_a_marker_are_cut(tmp_path: Path) -> None:
    tokenizer = byte_fallback(INFILL, PATH_TO_PRE)
    pre = id_of("▁<PRE>", tokenizer)
    assert pre in tokenizer.encode("x <PRE> y").ids  # the trap is real
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    codec = TextCodec.from_folder(save(tmp_path / "m", tokenizer, template=template))
    for text in ("x <PRE> y", "<PRE>", "ab <PRE>"):
        ids = codec.encode_plain(text)
        assert pre not in ids
        assert codec.decode(ids) == text
        assert pre not in codec.chat_ids(user(text))
        assert codec.decode(codec.chat_ids(user(text))) == text


def test_a_character_without_a_piece_stays_the_unknown_one(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>"))
    tokenizer.add_special_tokens(["<unk>"])
    codec = TextCodec.from_folder(save(tmp_path / "m", tokenizer))
    assert codec.encode_plain("a☃a") == [1, 0, 1]


def test_markers_never_show(codec: TextCodec) -> None:
    ids = [id_of("<|im_start|>"), *codec.encode_plain("ok"), id_of("<|fim_pad|>")]
    assert codec.decode(ids) == "ok"
    stream = codec.stream()
    assert stream.push(ids) + stream.flush() == "ok"
    assert {id_of(m) for m in (*SPECIAL, *QWEN_FILL)} <= codec.never_ids
    assert id_of("<tool_call>") not in codec.never_ids


def test_the_ids_that_end_an_answer(codec: TextCodec) -> None:
    assert codec.chat_stop_ids == {id_of("<|im_end|>"), id_of("<|endoftext|>")}
    assert codec.fill_stop_ids >= {id_of(m) for m in (*CHAT_MARKERS[::2], *QWEN_FILL, *QWEN_REPO)}
    assert id_of("<tool_call>") not in codec.fill_stop_ids


@pytest.mark.parametrize("eos", [7, [7, 9]])
def test_every_file_may_name_an_end(tmp_path: Path, eos: int | list[int]) -> None:
    where = save(tmp_path / "m", byte_level(), model_config={"eos_token_id": eos})
    assert TextCodec.from_folder(where).chat_stop_ids == {7, 9}.intersection(
        eos if isinstance(eos, list) else [eos]
    )


def test_a_saved_length_limit_does_not_cut_prompts(tmp_path: Path) -> None:
    tokenizer = byte_level(CHAT_MARKERS)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=50)
    codec = TextCodec.from_folder(save(tmp_path / "m", tokenizer))
    assert codec.decode(codec.encode_plain("one two three four five")) == "one two three four five"


def test_threads_do_not_disturb_each_other(codec: TextCodec) -> None:
    plain, chat = codec.encode_plain("<|im_end|>"), codec.chat_ids(user("x"))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            plains = [pool.submit(codec.encode_plain, "<|im_end|>") for _ in range(1000)]
            chats = [pool.submit(codec.chat_ids, user("x")) for _ in range(1000)]
    finally:
        sys.setswitchinterval(interval)
    assert {tuple(f.result()) for f in plains} == {tuple(plain)}
    assert {tuple(f.result()) for f in chats} == {tuple(chat)}


def test_a_missing_or_broken_tokenizer_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        TextCodec.from_folder(tmp_path)
    assert caught.value.code == "no_tokenizer"
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match=r"tokenizer\.json") as caught:
        TextCodec.from_folder(tmp_path)
    assert caught.value.code == "bad_tokenizer"
    where = save(tmp_path / "m", TOKENIZER)
    (where / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.json"):
        TextCodec.from_folder(where)


def test_the_warm_path_loads_neither_transformers_nor_torch(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from engine.text import TextCodec;"
        f"TextCodec.from_folder(Path({str(folder)!r})).encode_plain('x');"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
