"""The built-in list of file names that say that the file holds secrets; no ignore file can take a name off it."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

from lsp_server.exclusion.ignore_rules import IgnoreRules

# A pattern without a slash matches only a file's name, so that a project in a folder called credentials-service is
# not excluded; `**/folder/**` matches the files of a folder.
_PATTERNS = """
# Environments: variables of one machine, with its passwords. What projects hand out as an example has none.
*.env
.env
.env.*
.env[-_~]*
.envrc
.envrc.*
env.local
.flaskenv
.dev.vars
**/.envs/**
!.env*.example
!.env*.sample
!.env*.template
!.env*.dist
!example.env
!sample.env
!template.env

# Private keys, key stores, and what is encrypted with keys: an editor may show it decrypted. A bare `*.asc` is not
# here, since AsciiDoc has that ending too.
*.pem
*.key
*.p8
*.p12
*.pfx
*.pkcs12
*.jks
*.keystore
*.bks
*.ppk
*.age
*.agekey
*.gpg
*key.asc
*private.asc
*.keytab
*.ovpn
wg[0-9]*.conf
id_rsa*
id_dsa*
id_ecdsa*
id_ed25519*
*deploy[-_]key
**/.ssh/**
**/.gnupg/**

# Passwords: stores of password managers and browsers, and the files from which clients read them
*.kdb
*.kdbx
*.keychain
*.keychain-db
logins.json
key[34].db
**/.password-store/**
.vault_pass*
.vault-pass*
vault.y*ml
.htpasswd
.netrc
_netrc
.pgpass
pgpass.conf
.pg_service.conf
.my.cnf
.mylogin.cnf
.passwd-s3fs
.git-credentials
**/.git/config

# Credentials and tokens of tools and services. Variables of a shell are data, though in a script.
aws_credentials*
*[-_.]credentials
client_secret*.json
*-firebase-adminsdk-*.json
*service[-_]account*.json
*serviceaccount*.json
*.secret
*.secrets
secret.sh
secrets.sh
credentials.sh
.token
token.json
tokens.json
auth.json
.mcp.json
.pypirc
pip.conf
.condarc
.dockercfg
.vault-token
.terraformrc
terraform.rc
local.settings.json
**/.docker/config.json
**/.config/gh/hosts.yml
**/.config/glab-cli/config.yml
**/.config/hub
**/.dbt/profiles.yml
**/.fly/config.yml
**/.m2/settings.xml
**/.m2/settings-security.xml

# Settings of package managers that hold tokens in the user's own copy; a project's copy has none
/home/*/.npmrc
/home/*/.yarnrc.yml
/root/.npmrc
/root/.yarnrc.yml
**/Users/*/.npmrc
**/Users/*/.yarnrc.yml
**/.gradle/gradle.properties
**/NuGet/NuGet.Config

# Clouds and clusters: the accounts of their command-line tools
.boto
.s3cfg
.databrickscfg
rclone.conf
*.kubeconfig
**/.aws/**
**/.azure/**
**/.config/gcloud/**
**/.kube/**

# Terraform keeps what it created, passwords included
*.tfstate
*.tfstate.*
*.tfvars
*.tfvars.json

# What was typed into a shell or searched in a pager
.*_history
.lesshst
"""

# Names of secret data that code and prose about secrets may have too.
_DATA_PATTERNS = """
credentials*
*credentials.json
*credentials.y*ml
*credentials.csv
password
password.*
passwords
passwords.*
secret
secret.*
secrets
secrets.*
*[-._]secret.*
*[-._]secrets.*
api[-_]key*
apikey*
privkey*
kubeconfig*
**/secrets/**
"""

_CODE_SUFFIXES = """
.astro .bash .bzl .c .cc .cjs .clj .cljs .cpp .cs .css .cts .cu .cuh .cxx .d .dart .elm .erl .ex .exs .f90 .fish .fs
.fsx .go .graphql .groovy .h .hh .hpp .hrl .hs .html .java .jl .js .jsx .kt .kts .less .lua .m .mjs .ml .mli .mm .mts
.nim .nix .pas .php .pl .pm .proto .ps1 .py .pyi .pyx .r .rb .rkt .rs .sass .scala .scss .sh .sol .sql .sv .svelte
.swift .tf .ts .tsx .v .vb .vhd .vue .zig .zsh
"""
_PROSE_SUFFIXES = ".adoc .asc .ipynb .markdown .md .mdx .org .rst .tex"

_CODE_OR_PROSE = frozenset(f"{_CODE_SUFFIXES} {_PROSE_SUFFIXES}".split())
_ANY = IgnoreRules(_PATTERNS.splitlines(), ignore_case=True)
_DATA = IgnoreRules(_DATA_PATTERNS.splitlines(), ignore_case=True)
LIST_VERSION = hashlib.blake2b(f"{_PATTERNS}{_DATA_PATTERNS}{_CODE_SUFFIXES}{_PROSE_SUFFIXES}".encode(), digest_size=4).digest()
"""A value that changes with the list."""


def secret_reason(path: str) -> str | None:
    """The pattern of the list that the path matches, ignoring case, for messages; `path` has forward slashes."""
    is_about_secrets = PurePosixPath(path).suffix.lower() in _CODE_OR_PROSE
    for rules in (_ANY,) if is_about_secrets else (_ANY, _DATA):
        rule = rules.last_match(path.lstrip("/"), is_folder=False)
        if rule is not None and not rule.negated:
            return f"{rule.text} in the built-in list of secrets"
    return None
