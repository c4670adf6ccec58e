"""The built-in list of secrets."""

import pytest

from lsp_server.exclusion.secret_files import secret_reason

SECRETS = """
/w/.env /w/.ENV /w/.env.production /w/prod.env /w/.envrc /w/.envrc.local /w/env.local c:/w/.env .env /w/.env~
/w/.env-prod /w/.env_prod /w/.envs/prod /w/.flaskenv

/w/server.pem /w/tls/Server.KEY /home/u/.ssh/id_rsa /home/u/.ssh/config /w/id_rsa.bak /w/id_ed25519 /w/cert.p12
/w/cert.pfx /w/app.jks /w/debug.keystore /w/mail.gpg /w/key.asc /w/my-private.asc /w/home.ovpn /w/wg0.conf
/w/http.keytab /w/prod.age /w/deploy_key /w/privkey.txt /w/api_key.txt

/home/u/.netrc /home/u/.pgpass /home/u/.pg_service.conf /home/u/.password-store/mail.gpg /w/vault.kdbx /w/.vault_pass
/w/vault.yml /home/u/.passwd-s3fs /home/u/.mozilla/firefox/x/logins.json /home/u/.mozilla/firefox/x/key4.db
/w/password.txt /w/passwords.txt /w/.git/config

/home/u/.npmrc /root/.npmrc /Users/u/.npmrc c:/Users/u/.npmrc /home/u/.yarnrc.yml /home/u/.gradle/gradle.properties
/home/u/.nuget/NuGet/NuGet.Config c:/Users/u/AppData/Roaming/NuGet/NuGet.Config /home/u/.pypirc /home/u/pip.conf
/home/u/.condarc /home/u/.docker/config.json /home/u/.m2/settings.xml /home/u/.m2/settings-security.xml
/home/u/.dbt/profiles.yml /home/u/.config/hub /home/u/.config/glab-cli/config.yml /home/u/.fly/config.yml /w/.mcp.json

/home/u/.aws/credentials /home/u/.aws/config /home/u/.kube/config /home/u/.config/gcloud/access_tokens.db
/w/kubeconfig /w/kubeconfig.yaml /w/kubeconfig.yml /w/kubeconfig-prod
/w/client_secret_123-abc.apps.googleusercontent.com.json /w/shop-firebase-adminsdk-x1.json /w/my-service-account.json
/w/serviceAccountKey.json

/w/credentials.json /w/gcp-credentials.json /w/credentials.toml /w/aws_credentials.py /w/auth.json /w/.token
/w/tokens.json /w/secrets.yaml /w/Secrets.toml /w/secret.yaml /w/prod-secrets.yaml /w/prod.secrets.yaml
/w/secrets/token.txt /w/secrets/prod/db /w/secrets.sh

/w/terraform.tfstate /w/terraform.tfstate.backup /w/prod.tfvars /w/prod.auto.tfvars.json
/home/u/.bash_history /home/u/.lesshst
"""
HARMLESS = """
/w/.env.example /w/.env.sample /w/.env.local.example /w/.env.development.example /w/.env.test.template /w/example.env
/w/.envrc.example /w/environment.py /w/env.py /w/keys.py /w/monkey.py /w/pem.rs /w/config /w/docker/config.json

/w/credentials-service/src/main.py /w/secrets.d/readme.md /w/credentials.py /w/Credentials.java /w/secrets.go
/w/src/secrets/manager.rs /w/secret_manager.ts /w/password.tsx /w/my_secrets_test.py /w/kubeconfig.go /w/api_key.rb

/w/manage_secrets.sh /w/secrets.tf /w/secrets.nix /w/secrets.sql /w/docs/passwords.md /w/docs/secrets.md
/w/docs/secrets.adoc /w/book/chapter.asc /w/docs/secrets.asc /w/secrets.ipynb

/w/gradle.properties /w/.npmrc /w/web/.yarnrc.yml /w/NuGet.Config /w/nuget.config /w/main.tf /w/package.json /w/history
"""


@pytest.mark.parametrize("path", SECRETS.split())
def test_a_secret_is_reported(path: str) -> None:
    assert (secret_reason(path) or "").endswith(" in the built-in list of secrets")


@pytest.mark.parametrize("path", [*HARMLESS.split(), ""])
def test_what_is_harmless_is_no_secret(path: str) -> None:
    assert secret_reason(path) is None


def test_the_reason_names_the_pattern() -> None:
    assert secret_reason("/w/a.pem") == "*.pem in the built-in list of secrets"
