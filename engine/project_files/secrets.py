"""Which files are never shown to a model nor written to, told by their names alone.

Owns the list: keys and passwords, a version control's own state, what shells remember, copies that
editors leave of any file. It knows no file system: a path goes in, a reason or None comes out, so
that whoever asks first never has to read the file.

Invariant: names are compared without case and without what file systems ignore, and every part of
the path counts; published examples (`.env.example`) hold no secrets.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from fnmatch import translate
from pathlib import PurePath

_SECRET = "may hold keys or passwords"
_TYPED = "holds what was typed in a shell"
_COPY = "is a copy that an editor left"
_CONTROL = "belongs to the version control"
_NAMES = {
    _SECRET: """
        .env .env.* *.env .envrc *.pem *.key *.p8 *.p12 *.pfx *.der *.jks *.keystore *.keytab
        *.kdb *.kdbx *.ppk *.gpg *.pgp *.age *.ovpn id_rsa* id_dsa* id_ecdsa* id_ed25519*
        .netrc _netrc .npmrc .yarnrc .yarnrc.yml .pypirc .pgpass .my.cnf .mylogin.cnf .htpasswd
        .git-credentials .vault-token .dockercfg .dockerconfigjson .s3cfg .boto .terraformrc
        credentials credentials.json credentials.toml credentials.yml credentials.yaml
        *_credentials *credentials.json client_secret*.json service-account*.json
        service_account*.json auth.json secret secrets secrets.json secrets.toml secrets.yml
        secrets.yaml secrets.ini secrets.txt secrets.enc* *.secret *.secrets
        *.tfstate *.tfstate.* *.tfvars *.tfvars.json kubeconfig
    """,
    _TYPED: """
        .bash_history .zsh_history .sh_history .python_history .psql_history .mysql_history
        .node_repl_history .sqlite_history fish_history
    """,
    _COPY: "*.swp *.swo *.swn .*.sw[a-p] *~ .#* #*# .*.un~ .*.kate-swp *___jb_tmp___ *___jb_old___",
}
_KINDS = {
    reason: re.compile("|".join(map(translate, names.split()))) for reason, names in _NAMES.items()
}
_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults", ".pub")
_SECRET_FOLDERS = frozenset(
    (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store", ".gcloud", ".vault", ".oci")
) | frozenset((".terraform.d", ".1password", "keychains"))
_SECRET_PLACES = frozenset(((".docker", "config.json"), (".config", "gcloud"), (".config", "gh")))
_CONTROL_FOLDERS = frozenset({".git", "git~1", ".hg", ".svn", ".jj"})
_IGNORED = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
"""What some file systems leave out when they compare names."""


def secret_reason(path: PurePath) -> str | None:
    """Why no model should see what is at `path`, as the end of a sentence about it, or None."""
    parts = [_folded(part) for part in path.parts]
    if not _CONTROL_FOLDERS.isdisjoint(parts):
        return _CONTROL
    pairs = itertools.pairwise(parts)
    if not _SECRET_FOLDERS.isdisjoint(parts) or not _SECRET_PLACES.isdisjoint(pairs):
        return _SECRET
    name = parts[-1] if parts else ""
    for reason, names in _KINDS.items():
        if names.match(name) and not (reason is _SECRET and name.endswith(_EXAMPLES)):
            return reason
    return None


def is_version_control(path: PurePath) -> bool:
    """Whether the path lies in, or is, a version control's own folder or file."""
    return any(_folded(part) in _CONTROL_FOLDERS for part in path.parts)


def _folded(part: str) -> str:
    """A name as the most forgiving file system would compare it."""
    if not part.isascii():
        part = _IGNORED.sub("", unicodedata.normalize("NFKC", part))
    folded = part.casefold()
    return folded.split(":", 1)[0].rstrip(". ") or folded
