"""A subprocess is given everything but secrets, and what it is not given no text may hold."""

from pathlib import Path

import pytest

from orchestrator.agents.redaction.command_environment import only_named, without_secret_variables
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.secret_variables import secret_values
from orchestrator.agents.sandbox.sandbox import Sandbox

LONG = "swordfish"


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "APIKEY", "AWS_SECRET_ACCESS_KEY"),
        *("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "TOKEN"),
        *("HF_TOKEN", "NPM_TOKEN", "SLACK_BOT_TOKEN", "PGPASSWORD", "MYSQL_PWD"),
        *("MYSQL_ROOT_PASSWORD", "SMTP_PASS", "DB_PASSWD", "KEY_PASSPHRASE"),
        *("JWT_SECRET", "DJANGO_SECRET_KEY", "SECRET_KEY_BASE", "CLIENT_SECRETS"),
        *("AZURE_CREDENTIALS", "AUTH", "AUTH_HEADER", "REDIS_AUTH", "PRIVATE_KEY"),
        *("SSHPASS", "SENTRY_DSN", "SLACK_WEBHOOK_URL"),
        *("DOCKER_AUTH_CONFIG", "GITHUB_PAT", "OPENAI_API_KEY_2", "my_password"),
    ],
)
def test_a_variable_with_a_telling_name_is_secret(name: str) -> None:
    environ = {name: LONG}

    assert without_secret_variables(environ) == {}
    assert secret_values(environ) == [LONG]


@pytest.mark.parametrize(
    "name",
    [
        *("KEYBOARD", "XDG_SESSION_ID", "GPG_TTY", "COLORTERM", "PATH"),
        *("TOKENIZERS_PARALLELISM", "PWD", "OLDPWD", "GIT_AUTHOR_NAME", "XAUTHORITY"),
        *("SSH_ASKPASS", "MAX_TOKENS", "AUTH_URL", "TOKEN_URL", "SECRET_NAME", "MONKEY"),
        *("PASSWORD_STORE_DIR", "SSH_PUBLIC_KEY", "GNOME_KEYRING_CONTROL", "KEYTIMEOUT"),
        *("STRIPE_PUBLISHABLE_KEY", "COMPASS", "PATTERN", "HOME", "LANG", "_", "1"),
    ],
)
def test_a_variable_with_an_ordinary_name_is_passed_on(name: str) -> None:
    environ = {name: LONG}

    assert without_secret_variables(environ) == environ
    assert secret_values(environ) == []


@pytest.mark.parametrize("name", ["SSH_AUTH_SOCK", "DOCKER_HOST", "KUBECONFIG"])
def test_a_variable_that_points_to_credentials_is_withheld_but_not_secret(name: str) -> None:
    environ = {name: "/run/user/1000/it"}

    assert without_secret_variables(environ) == {}
    assert without_secret_variables(environ, hand_on=[name]) == environ
    assert secret_values(environ) == []


@pytest.mark.parametrize(
    "name",
    [
        *("STRIPE_SK", "COOKIE", "SIGNING_SEED", "ENCRYPTION_SALT", "MY_PSK", "BASIC_CREDS"),
        *("WEBHOOK_SIG", "TWILIO_SID", "ANSIBLE_VAULT_PASSWORD_FILE", "LICENSE"),
    ],
)
def test_a_variable_that_may_be_secret_is_withheld(name: str) -> None:
    environ = {name: "/x/a1b2c3"}

    assert without_secret_variables(environ) == {}
    assert without_secret_variables(environ, hand_on=[name]) == environ


def test_a_seed_of_digits_is_passed_on() -> None:
    environ = {"RANDOM_SEED": "42", "PYTHONHASHSEED": "0"}

    assert without_secret_variables(environ) == environ


def test_named_variables_exclude_all_others() -> None:
    environ = {"PATH": "/bin", "LC_ALL": "C", "CARGO_HOME": "/c", "EDITOR": "vi"}

    assert only_named(environ, ["CARGO_HOME", "MISSING"]) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "CARGO_HOME": "/c",
    }


def test_only_the_password_of_an_address_is_secret() -> None:
    environ = {"DATABASE_URL": "postgres://me:sword%20fish@host/db"}

    assert secret_values(environ) == ["sword%20fish", "sword fish"]
    assert without_secret_variables(environ) == {}


def test_a_value_that_looks_like_a_secret_is_withheld() -> None:
    environ = {"SETTINGS": '{"password": "swordfish"}', "PLAIN": '{"user": "me"}'}

    assert without_secret_variables(environ) == {"PLAIN": '{"user": "me"}'}


def test_a_path_is_not_secret(tmp_path: Path) -> None:
    """The file may hold a secret, but a text without its paths says little."""
    file = tmp_path / "credentials.json"
    file.touch()
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}

    assert secret_values(environ, ["GOOGLE_APPLICATION_CREDENTIALS"]) == []
    assert without_secret_variables(environ) == environ


def test_a_secret_value_may_begin_like_a_path() -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "/" + "aB3+" * 100, "API_KEY": "/a\0bcdefgh"}

    assert secret_values(environ) == [*environ.values()]


@pytest.mark.parametrize("value", ["", "true", "False", "none", "  "])
def test_a_plain_word_is_not_secret(value: str) -> None:
    assert secret_values({"USE_TOKEN": value}) == []


def test_a_short_secret_variable_is_withheld_but_not_redacted() -> None:
    environ = {"DB_PASSWORD": "abc1234"}

    assert without_secret_variables(environ) == {}
    assert secret_values(environ) == []


def test_a_declared_variable_is_secret() -> None:
    environ = {"A": "abcd", "B": "abc", "C": "abcd"}

    assert secret_values(environ, declared=["A", "B"]) == ["abcd"]
    assert without_secret_variables(environ, declared=["A", "B"]) == {"C": "abcd"}


def test_a_variable_named_in_hand_on_is_passed_on() -> None:
    environ = {"GITHUB_TOKEN": LONG, "NPM_TOKEN": LONG}

    assert without_secret_variables(environ, hand_on=["GITHUB_TOKEN"]) == {"GITHUB_TOKEN": LONG}


def test_the_longer_of_two_secrets_comes_first() -> None:
    environ = {"A_TOKEN": "swordfish", "B_TOKEN": " swordfishes\n"}

    assert secret_values(environ) == ["swordfishes", "swordfish"]


def test_a_withheld_variable_is_redacted_from_texts() -> None:
    redactor = Redactor(secret_values({"X_TOKEN": LONG, "HOME": "/root"}))

    assert redactor.redact("the swordfish in /root") == "the *** in /root"


@pytest.mark.parametrize(
    ("own", "parent", "both"),
    [
        (None, None, None),
        (["A"], None, ("A",)),
        (None, ["A"], ("A",)),
        (["A", "B"], ["B", "C"], ("B",)),
    ],
)
def test_down_the_tree_variables_only_become_fewer(
    own: list[str] | None, parent: list[str] | None, both: tuple[str, ...] | None
) -> None:
    within = Sandbox(environment=own).within(Sandbox(environment=parent))

    assert within.environment == both
