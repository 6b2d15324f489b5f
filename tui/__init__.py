"""The terminal chat. Built in its own issue."""
