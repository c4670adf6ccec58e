"""The built-in list of files that hold secrets; no ignore file can take a name off it."""

from __future__ import annotations

from pathlib import PurePosixPath

from lsp_server.exclusion.ignore_rules import Rules

# A pattern without a slash matches only a file's name, so that a project in a folder called credentials-service is
# not excluded; `**/folder/**` matches the files of a folder.
_PATTERNS = """
# environments
*.env
.env
.env.*
.env[-_~]*
.envrc
.flaskenv
.dev.vars
**/.envs/**
!.env.example
!.env.sample
!.env.template
!.env.dist
!example.env
!sample.env
!template.env

# private keys, what is encrypted with them, and key stores
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
*.agekey
*.gpg
*.asc
*.ovpn
wg[0-9]*.conf
id_rsa*
id_dsa*
id_ecdsa*
id_ed25519*
**/.ssh/**
**/.gnupg/**

# passwords
*.kdb
*.kdbx
*.keychain
*.keychain-db
**/.password-store/**
.vault_pass*
.vault-pass*
.htpasswd
.netrc
_netrc
.pgpass
pgpass.conf
.my.cnf
.mylogin.cnf
.git-credentials
**/.git/config

# credentials and tokens
aws_credentials*
*[-_.]credentials
*.secret
*.secrets
.npmrc
.yarnrc.yml
.pypirc
nuget.config
gradle.properties
.dockercfg
.vault-token
.terraformrc
terraform.rc
local.settings.json
**/.docker/config.json
**/.config/gh/hosts.yml
**/.m2/settings.xml

# clouds and clusters
.boto
.s3cfg
.databrickscfg
rclone.conf
kubeconfig
*.kubeconfig
*service[-_]account*.json
*serviceaccount*.json
**/.aws/**
**/.azure/**
**/.config/gcloud/**
**/.kube/**

# Terraform keeps what it created, passwords included
*.tfstate
*.tfstate.*
*.tfvars
*.tfvars.json

# what was typed into a shell
.*_history
"""

# Names of secret data that source files may have too.
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
**/secrets/**
"""

_CODE_SUFFIXES = """
.astro .bzl .c .cc .cjs .clj .cljs .cpp .cs .css .cts .cu .cuh .cxx .d .dart .elm .erl .ex .exs .f90 .fs .fsx .go
.graphql .groovy .h .hh .hpp .hrl .hs .html .java .jl .js .jsx .kt .kts .less .lua .m .mjs .ml .mli .mm .mts .nim .pas
.php .pl .pm .proto .py .pyi .pyx .r .rb .rkt .rs .sass .scala .scss .sol .sv .svelte .swift .ts .tsx .v .vb .vhd .vue
.zig
"""

_CODE = frozenset(_CODE_SUFFIXES.split())
_ANY = Rules(_PATTERNS.splitlines(), ignore_case=True)
_DATA = Rules(_DATA_PATTERNS.splitlines(), ignore_case=True)


def secret_reason(path: str) -> str | None:
    """The pattern of the list that the path matches, ignoring case, for messages; `path` has forward slashes."""
    is_code = PurePosixPath(path).suffix.lower() in _CODE
    for rules in (_ANY,) if is_code else (_ANY, _DATA):
        rule = rules.last_match(path.lstrip("/"), is_folder=False)
        if rule is not None and not rule.negated:
            return f"{rule.text} in the built-in list of secrets"
    return None
