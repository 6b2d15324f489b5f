"""The editor side: a language server for inline completions. Built in its own issue."""
