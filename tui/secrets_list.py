"""Which paths hold secrets or the version control's own state, so neither shown nor written to.

Owns the list of names; a name is compared without case and without what file systems ignore. Knows
no file system: it looks at names only, never at contents.

Invariant: a path is sensitive when any of its parts is, wherever in the path it stands; published
examples (`.env.example`) are not.
"""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase
from pathlib import PurePath

_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults", ".pub")
_SECRET_WORDS = """
    .env .env.* *.env .envrc *.pem *.key *.p12 *.pfx *.jks *.keystore *.kdbx *.ppk *.gpg
    id_rsa* id_dsa* id_ecdsa* id_ed25519* .netrc _netrc .npmrc .pypirc .pgpass .my.cnf .htpasswd
    .git-credentials .vault-token .dockercfg credentials credentials.json credentials.toml
    credentials.yml credentials.yaml client_secret*.json service-account*.json service_account*.json
    secrets.json secrets.toml secrets.yml secrets.yaml secrets.ini secrets.txt secrets.enc*
    *.tfstate *.tfstate.* *.tfvars .terraformrc kubeconfig
"""
_SECRET_FILES = tuple(_SECRET_WORDS.split())
_SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store"})
_CONTROL_FOLDERS = frozenset({".git", "git~1", ".hg", ".svn", ".jj"})
_IGNORED = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
"""What some file systems leave out when they compare names."""


def is_secret(path: PurePath) -> bool:
    """Whether the path names a file of keys or passwords, or lies in a folder of such."""
    parts = [_folded(part) for part in path.parts]
    if not parts:
        return False
    if any(part in _SECRET_FOLDERS for part in parts):
        return True
    name = parts[-1]
    if name.endswith(_EXAMPLES):
        return False
    return any(fnmatchcase(name, pattern) for pattern in _SECRET_FILES)


def is_version_control(path: PurePath) -> bool:
    """Whether the path lies in, or is, a version control's own folder or file."""
    return any(_folded(part) in _CONTROL_FOLDERS for part in path.parts)


def _folded(part: str) -> str:
    """A name as the most forgiving file system would compare it."""
    kept = _IGNORED.sub("", unicodedata.normalize("NFKC", part)).casefold()
    return kept.split(":", 1)[0].rstrip(". ") or kept
