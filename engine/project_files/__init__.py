"""Which files of a user's project may be read into a prompt or written to.

`secrets` tells it from a name alone, `ignore_rules` from what git is told to leave out, and `tree`
walks a folder by both. Clients import it besides the protocol, so that the chat and the editor hold
to one list. It knows neither of them, nor a model, nor what a file contains.

Invariant: no file but git's own rules is opened here.
"""
