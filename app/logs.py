"""Logging, configured once per process: standard library, to stderr, never to stdout.

At the default level only warnings of this project appear; what torch, transformers and bitsandbytes
have to say about themselves is kept away unless `verbose` asks for it. Imports none of them.
"""

from __future__ import annotations

import logging
import os
import warnings

_NOISY = ("torch", "transformers", "bitsandbytes", "huggingface_hub", "urllib3", "filelock", "gguf")
_QUIET_ENVIRONMENT = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def configure(*, verbose: bool) -> None:
    """Send records to stderr, from INFO on if `verbose`, otherwise from WARNING on."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
        force=True,
    )
    logging.captureWarnings(True)
    if verbose:
        return
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module=rf"{name}(\.|$)")
    for variable, value in _QUIET_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
