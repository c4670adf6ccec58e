"""The built-in list of secrets."""

import pytest

from lsp_server.exclusion.secret_files import secret_reason

SECRETS = """
/w/.env /w/.ENV /w/.env.production /w/prod.env /w/.envrc /w/server.pem /w/tls/Server.KEY /home/u/.ssh/id_rsa
/home/u/.ssh/config /w/id_rsa.bak /w/id_ed25519 /w/cert.p12 /w/cert.pfx /w/app.jks /w/debug.keystore /home/u/.netrc
/home/u/.pgpass /home/u/.npmrc /home/u/.pypirc /home/u/.aws/credentials /home/u/.aws/config /home/u/.kube/config
/home/u/.config/gcloud/access_tokens.db /home/u/.docker/config.json /home/u/.password-store/mail.gpg
/w/credentials.json /w/gcp-credentials.json /w/secrets.yaml /w/Secrets.toml /w/terraform.tfstate
/w/terraform.tfstate.backup /w/prod.tfvars /w/prod.auto.tfvars.json /w/my-service-account.json
/w/serviceAccountKey.json /w/vault.kdbx /home/u/.bash_history /w/.git/config c:/w/.env .env /w/.env~ /w/.env-prod
/w/.env_prod /w/.envs/prod /w/.flaskenv /w/secret.yaml /w/prod-secrets.yaml /w/prod.secrets.yaml /w/secrets/token.txt
/w/secrets/prod/db /w/password.txt /w/passwords.txt /w/.vault_pass /w/mail.gpg /w/key.asc /w/home.ovpn /w/wg0.conf
/w/aws_credentials.py /w/gradle.properties /w/.yarnrc.yml /w/NuGet.Config /w/credentials.toml
"""
SOURCES = """
/w/.env.example /w/.env.sample /w/example.env /w/environment.py /w/env.py /w/keys.py /w/monkey.py /w/pem.rs /w/config
/w/docker/config.json /w/credentials-service/src/main.py /w/secrets.d/readme.md /w/credentials.py /w/Credentials.java
/w/secrets.go /w/src/secrets/manager.rs /w/secret_manager.ts /w/password.tsx /w/my_secrets_test.py /w/history
/w/main.tf /w/package.json
"""


@pytest.mark.parametrize("path", SECRETS.split())
def test_a_secret_is_told(path: str) -> None:
    assert secret_reason(path).endswith(" in the built-in list of secrets")


@pytest.mark.parametrize("path", [*SOURCES.split(), ""])
def test_source_code_is_no_secret(path: str) -> None:
    assert secret_reason(path) is None


def test_the_reason_names_the_pattern() -> None:
    assert secret_reason("/w/a.pem") == "*.pem in the built-in list of secrets"
