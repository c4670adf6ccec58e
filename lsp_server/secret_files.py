"""The built-in list of files that hold secrets; no ignore file can take a name off it."""

from __future__ import annotations

from collections.abc import Sequence

from lsp_server.ignore_rules import Rule, last_match, parse_rule

# A pattern without a slash is held against the file's name alone, so that a project in a folder called
# credentials-service is not lost; what lies in a folder is named by `folder/**`.
_PATTERNS = """
# environments
*.env
.env
.env.*
.envrc
.dev.vars
!.env.example
!.env.sample
!.env.template
!.env.dist
!example.env
!sample.env
!template.env

# private keys and key stores
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
credentials*
*[-_.]credentials
*credentials.json
*credentials.y*ml
*credentials.csv
secrets
secrets.*
*.secret
*.secrets
.npmrc
.pypirc
.dockercfg
.vault-token
.terraformrc
terraform.rc
local.settings.json
**/.docker/config.json
**/.config/gh/hosts.yml
**/.m2/settings.xml
**/.gradle/gradle.properties

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


class SecretFiles:
    """Tells a secret by its path; upper and lower case are the same."""

    def __init__(self) -> None:
        lines = enumerate(_PATTERNS.splitlines(), start=1)
        rules = (parse_rule(text, number, ignore_case=True) for number, text in lines)
        self._rules: Sequence[Rule] = [rule for rule in rules if rule is not None]

    def reason(self, path: str) -> str | None:
        """Which pattern of the list the path matches, for people; `path` has forward slashes."""
        rule = last_match(self._rules, path.lstrip("/"), is_folder=False)
        if rule is None or rule.negated:
            return None
        return f"{rule.text} in the built-in list of secrets"
