"""Names: what clients call a language, and what its files are called.

Two clients name one language differently (`shellscript`, `sh`, `bash`), and some name none. Knows
nothing of the languages themselves: `lsp.languages` does.

Invariant: every value is the name of a language in that table; every key is in lower case.
"""

from __future__ import annotations

ALIASES = {
    "py": "python", "jsx": "javascriptreact", "tsx": "typescriptreact", "js": "javascript",
    "ts": "typescript", "javascript.jsx": "javascriptreact", "typescript.tsx": "typescriptreact",
    "c++": "cpp", "cs": "csharp", "c_sharp": "csharp", "cuda": "cpp", "cuda-cpp": "cpp",
    "arduino": "cpp", "objc": "objective-c", "objcpp": "objective-c",
    "objective-cpp": "objective-c", "sh": "shellscript", "bash": "shellscript",
    "zsh": "shellscript", "ksh": "shellscript", "shell": "shellscript", "jsonc": "json",
    "json5": "json", "jsonl": "json", "less": "scss", "sass": "scss", "htmldjango": "html",
    "django-html": "html", "jinja-html": "html", "handlebars": "html", "xhtml": "html",
    "svg": "xml", "xsl": "xml", "make": "makefile", "docker": "dockerfile",
    "containerfile": "dockerfile", "tf": "terraform", "hcl": "terraform", "proto": "protobuf",
    "proto3": "protobuf", "tex": "latex", "plaintex": "latex", "text": "plaintext",
    "txt": "plaintext", "rst": "restructuredtext", "md": "markdown", "mdx": "markdown",
    "quarto": "markdown", "gitcommit": "git-commit", "tsv": "csv", "dosini": "ini",
    "properties": "ini", "conf": "ini", "plsql": "sql", "mysql": "sql", "dockercompose": "yaml",
    "yaml.docker-compose": "yaml", "yml": "yaml", "rb": "ruby", "rs": "rust", "golang": "go",
    "kt": "kotlin", "hs": "haskell", "ex": "elixir", "python3": "python", "starlark": "python",
    "bzl": "python", "cython": "python",
}  # fmt: skip
"""Other names that clients use."""

SUFFIXES = {
    ".py": "python", ".pyi": "python", ".pyw": "python", ".js": "javascript", ".mjs": "javascript",
    ".cjs": "javascript", ".jsx": "javascriptreact", ".ts": "typescript", ".mts": "typescript",
    ".cts": "typescript", ".tsx": "typescriptreact", ".rs": "rust", ".go": "go", ".java": "java",
    ".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hpp": "cpp", ".hh": "cpp",
    ".cs": "csharp", ".kt": "kotlin", ".kts": "kotlin", ".swift": "swift", ".scala": "scala",
    ".dart": "dart", ".zig": "zig", ".php": "php", ".rb": "ruby", ".lua": "lua",
    ".sh": "shellscript", ".bash": "shellscript", ".zsh": "shellscript", ".json": "json",
    ".jsonc": "json", ".css": "css", ".scss": "scss", ".less": "scss", ".html": "html",
    ".htm": "html", ".xml": "xml", ".svg": "xml", ".vue": "vue", ".svelte": "svelte",
    ".ex": "elixir", ".exs": "elixir", ".jl": "julia", ".sql": "sql", ".hs": "haskell",
    ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".ini": "ini", ".cfg": "ini",
    ".mk": "makefile", ".cmake": "cmake", ".tex": "latex", ".md": "markdown",
    ".rst": "restructuredtext", ".txt": "plaintext", ".log": "log", ".csv": "csv", ".tsv": "csv",
    ".tf": "terraform", ".proto": "protobuf", ".graphql": "graphql", ".gql": "graphql",
    ".nix": "nix", ".pl": "perl", ".pm": "perl", ".r": "r", ".m": "objective-c",
    ".groovy": "groovy", ".gradle": "groovy",
}  # fmt: skip
"""By the file name's last suffix."""

FILES = {
    "makefile": "makefile", "gnumakefile": "makefile", "dockerfile": "dockerfile",
}  # fmt: skip
"""By the whole file name."""
