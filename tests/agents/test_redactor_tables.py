"""Tables of secrets and of harmless texts in files, dumps, commands and source code.

Keys are put together here, so that nobody who looks for keys finds one in this file.
"""

import json

import pytest

from orchestrator.agents.redaction.key_shapes import KEY_PREFIXES
from orchestrator.agents.redaction.redactor import Redactor

RANDOM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fD3hJ6kL9nP2rS5tV8"
HEX = "0123456789abcdef0123456789abcdef"
JWT = f"eyJ{RANDOM[:20]}.eyJ{RANDOM[20:40]}.{RANDOM[:30]}"
PEM_LINE = "MIIEpAIBAAKCAQEA7q1W2e3R4t5Z6u7I8o9P0a1S2d3F4g5H6j7K8l9Y0x1C2v3B"


def pem(kind: str) -> str:
    begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
    return f"{begin}\n{PEM_LINE}\n{PEM_LINE}\nq1W2e3R4==\n{end}"


KEYS = {
    "openai": f"sk-{RANDOM}",
    "openai project": f"sk-proj-{RANDOM[:20]}_{RANDOM[20:]}-x",
    "openai service account": f"sk-svcacct-{RANDOM}",
    "anthropic": f"sk-ant-api03-{RANDOM}-AA",
    "openrouter": f"sk-or-v1-{HEX}{HEX}",
    "google": f"AIza{RANDOM[:35]}",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "aws for a while": "ASIA" + "IOSFODNN7EXAMPLE",
    "github": f"ghp_{RANDOM[:36]}",
    "github oauth": f"gho_{RANDOM[:36]}",
    "github user": f"ghu_{RANDOM[:36]}",
    "github server": f"ghs_{RANDOM[:36]}",
    "github refresh": f"ghr_{RANDOM[:36]}",
    "github fine": f"github_pat_{RANDOM[:22]}_{RANDOM}",
    "gitlab": f"glpat-{RANDOM[:20]}",
    "slack": f"xoxb-123456789012-{RANDOM[:24]}",
    "slack user": f"xoxp-123456789012-{RANDOM[:24]}",
    "slack app": f"xapp-1-A0123-456789-{RANDOM}",
    "stripe": f"sk_live_{RANDOM[:24]}",
    "stripe restricted": f"rk_live_{RANDOM[:24]}",
    "hugging face": f"hf_{RANDOM[:34]}",
    "groq": f"gsk_{RANDOM}",
    "xai": f"xai-{RANDOM}",
    "npm": f"npm_{RANDOM[:36]}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{RANDOM}",
    "sendgrid": f"SG.{RANDOM[:22]}.{RANDOM[:43]}",
    "telegram": f"123456789:AA{RANDOM[:33]}",
    "jwt": JWT,
    "pem": pem("PRIVATE KEY"),
    "rsa": pem("RSA PRIVATE KEY"),
    "openssh": pem("OPENSSH PRIVATE KEY"),
    "pgp": pem("PGP PRIVATE KEY BLOCK"),
}
PLACES = {
    "alone": "{}",
    "in prose": "use {} for now",
    "quoted": 'key = "{}"',
    "in code": "client(`{}`)",
    "in JSON in JSON": r"{{\"x\":\"{}\"}}",
    "after an escaped new line": r"one\n{}\ntwo",
    "in an address": "https://x.org/?q=%3D{}&b=1",
    "in colour": "\x1b[32m{}\x1b[0m",
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_keys_of_providers_go_wherever_they_stand(key: str, place: str) -> None:
    text = place.format(key)

    assert Redactor().redact(text) == place.format("***")
    assert Redactor().may_hold_secret(json.dumps({"text": text}).encode())


GO = [
    # Files of settings
    ("DB_PASSWORD=hunter2", "DB_PASSWORD=***"),
    ("POSTGRES_PASSWORD=swordfish", "POSTGRES_PASSWORD=***"),
    ("log in with password=swordfish now", "log in with password=*** now"),
    ("mysql --password=swordfish -u me", "mysql --password=*** -u me"),
    ("A=1\npassword=swordfish\nB=2", "A=1\npassword=***\nB=2"),
    ('export API_KEY="abc def"', 'export API_KEY="***"'),
    (f"export GITHUB_TOKEN={HEX}", "export GITHUB_TOKEN=***"),
    ("SECRET=ab&cd;ef1", "SECRET=***"),
    ("MYSQL_PASSWORD=mysql", "MYSQL_PASSWORD=***"),
    ('secret: "my-secret"', 'secret: "***"'),
    ("a" * 99 + "_password=hunter2", "a" * 99 + "_password=***"),
    (f"aws_secret_access_key = {RANDOM[:39]}/", "aws_secret_access_key = ***"),
    (f"aws_secret_access_key = /{RANDOM[:39]}", "aws_secret_access_key = ***"),
    ("[db]\nuser = me\npassword = hunter2\n", "[db]\nuser = me\npassword = ***\n"),
    ("db:\n  password: hunter2\n  port: 1", "db:\n  password: ***\n  port: 1"),
    ("password: swordfish", "password: ***"),
    ("db:\n  user: me\n  password: swordfish\n", "db:\n  user: me\n  password: ***\n"),
    ("- name: a\n- api_key: swordfish\n  b: 1", "- name: a\n- api_key: ***\n  b: 1"),
    ("password: swordfish\r\nssl: true\r\n", "password: ***\r\nssl: true\r\n"),
    ("# ours\nroot_password: swordfish\n\n", "# ours\nroot_password: ***\n\n"),
    ("     1\tdb:\n     2\t  password: swordfish", "     1\tdb:\n     2\t  password: ***"),
    ("conf/a.yaml:12: password: swordfish\nx", "conf/a.yaml:12: password: ***\nx"),
    (
        '{"exit_code":0,"output":"db:\\n  password: swordfish\\n","seconds":0.1}',
        '{"exit_code":0,"output":"db:\\n  password: ***\\n","seconds":0.1}',
    ),
    ('{"output": "password: swordfish"}', '{"output": "password: ***"}'),
    ("  POSTGRES_PASSWORD: swordfish\n", "  POSTGRES_PASSWORD: ***\n"),
    ("    - MYSQL_ROOT_PASSWORD=swordfish\n", "    - MYSQL_ROOT_PASSWORD=***\n"),
    ("client_secret: 'it is'", "client_secret: '***'"),
    ('TOKEN="${TOKEN:-hunter2abc}"', 'TOKEN="***"'),
    ("password: ${DB_PASSWORD:-hunter2}", "password: ***}"),
    (f"//registry.npmjs.org/:_authToken={HEX}", "//registry.npmjs.org/:_authToken=***"),
    ("machine x.org login me password hunter2", "machine x.org login me password ***"),
    ("<password>swordfish</password>", "<password>***</password>"),
    # JSON, and JSON in JSON
    ('{"password":"swordfish"}', '{"password":"***"}'),
    ('{"password": 123456, "n": 1}', '{"password": "***", "n": 1}'),
    ('[{"password":123456}]', '[{"password":"***"}]'),
    ('{"clientSecret": "a \\"b\\" c"}', '{"clientSecret": "***"}'),
    (r"{\"password\": \"a \\\"b\\\" c\"}", r"{\"password\": \"***\"}"),
    (r"{\"password\": \"ends with \\\\\"}", r"{\"password\": \"***\"}"),
    (r'{"log": "password=hunter2\nok"}', r'{"log": "password=***\nok"}'),
    ('{"refresh_token": "abc"}', '{"refresh_token": "***"}'),
    # Source code
    ('password = "hunter2"', 'password = "***"'),
    ('password: str = "hunter2"', 'password: str = "***"'),
    ('api_key: str | None = "abc"', 'api_key: str | None = "***"'),
    ('connect(host="x", password="swordfish")', 'connect(host="x", password="***")'),
    ("'password' => 'swordfish',", "'password' => '***',"),
    ('password := "swordfish"', 'password := "***"'),
    ('const apiKey = "abc123";', 'const apiKey = "***";'),
    ('SECRET = b"swordfish"', 'SECRET = b"***"'),
    # Commands
    ("curl -u me:swordfish https://x.org", "curl -u me:*** https://x.org"),
    ("curl -s --user 'me:swordfish' x.org", "curl -s --user 'me:***' x.org"),
    ("curl -H 'x-api-key: 123abc' x.org", "curl -H 'x-api-key: ***' x.org"),
    ("curl -H 'Authorization: Bearer abcdef' x", "curl -H 'Authorization: Bearer ***' x"),
    ("docker login --password hunter2 x.org", "docker login --password *** x.org"),
    (f"tool --token={HEX} run", "tool --token=*** run"),
    ("docker run -e DB_PASSWORD=swordfish x", "docker run -e DB_PASSWORD=*** x"),
    ("PGPASSWORD=swordfish psql", "PGPASSWORD=*** psql"),
    # HTTP
    ("GET /?token=abc&page=2 HTTP/1.1", "GET /?token=***&page=2 HTTP/1.1"),
    ("user=me&password=swordfish", "user=me&password=***"),
    (
        "Proxy-Authorization: Basic dXNlcjpwYXNz\r\nHost: x",
        "Proxy-Authorization: Basic ***\r\nHost: x",
    ),
    ("sent Basic dXNlcjpwYXNzd29yZA== again", "sent Basic *** again"),
    (f"> X-Auth-Token: {HEX}", "> X-Auth-Token: ***"),
    (f"Bearer {RANDOM}", "Bearer ***"),
    ("Authorization: mine\r\nHost: x", "Authorization: ***\r\nHost: x"),
    ('passphrase="correct horse"', 'passphrase="***"'),
    ("credentials: me-4711", "credentials: ***"),
    # Connection strings
    ("postgres://me:hunter2@host:5432/db", "postgres://me:***@host:5432/db"),
    ("redis://:swordfish@host/0", "redis://:***@host/0"),
    ("mongodb+srv://me:p@ss@host/db", "mongodb+srv://me:***@host/db"),
    (r"amqp:\/\/me:hunter2@host\/v", r"amqp:\/\/me:***@host\/v"),
    ("Server=x;Uid=me;Pwd=hunter2;Port=1", "Server=x;Uid=me;Pwd=***;Port=1"),
    ("host=x user=me password=hunter2 port=1", "host=x user=me password=*** port=1"),
    (f"AccountName=x;AccountKey={RANDOM}==;Suffix=y", "AccountName=x;AccountKey=***;Suffix=y"),
]


@pytest.mark.parametrize(("text", "left"), GO)
def test_only_the_secret_part_of_a_text_is_redacted(text: str, left: str) -> None:
    assert Redactor().redact(text) == left


GO += [
    (f"a\n{RANDOM}\n{RANDOM}\n-----END RSA PRIVATE KEY-----\nb", "a\n***\nb"),
    (rf'{{"a":"b\n{RANDOM}\n-----END PRIVATE KEY-----\n"}}', r'{"a":"b\n***\n"}'),
]

STAY = [
    # Python
    "token: str",
    "password: str | None = None",
    'def f(api_key: str = "") -> None: ...',
    "client(api_key=api_key, secret=secret)",
    "api_key=api_key",
    "token=self.token",
    "    password=other,",
    "password = getpass()",
    'key = os.environ["API_KEY"]',
    'api_key = os.environ.get("API_KEY", "")',
    'API_KEY=os.getenv("X")',
    "secret = settings.db_secret",
    '{"token": token, "password": password}',
    "if password == other:",
    'if token == "(":',
    'elif token == "EOF": return',
    "token = tokens[0]",
    "token1 = token2",
    'self.token = token = next(it)["id"]',
    "max_tokens=100",
    'print(f"token={token} password={password!r}")',
    'headers = {"Authorization": f"Bearer {token}"}',
    'headers["Authorization"] = auth',
    "secret: SecretStr = Field(...)",
    "class Token: pass",
    "password: Optional[str]",
    'cursor.execute("... where password = %s and secret = ?")',
    're.compile(r"password=([^&]+)|token=(.*)")',
    '_PEM = "-----BEGIN PRIVATE KEY-----"  # how one begins',
    "from secrets import token_hex, token_bytes",
    "token = secrets.token_hex(8)",
    'PAD_TOKEN = "[PAD]"; EOS_TOKEN = "</s>"',
    "class User:\n    name: str\n    password: digest\n    age: int",
    "f(\n    user: name,\n    password: other\n)",
    # Other languages
    "interface User {\n  password: Password\n  id: number\n}",
    "login({\n  user: name,\n  password: pass\n})",
    "type User {\n  password: String\n}",
    "function f(password: string, apiKey?: string) {",
    "const { token } = props; fetch(url, { token: props.token })",
    "password := os.Getenv(name)",
    "Token::new(kind)",
    "tokens.map(token => token.text)",
    "private key: Key;",
    # Shell and files of settings that name where a secret is
    'curl -H "Authorization: Bearer $TOKEN" -u "$USER:$PASS" x.org',
    "export API_KEY=$OTHER_KEY PASSWORD=${PASSWORD}",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "password: {{ vault_password }}",
    "PASSWORD=",
    'password: ""',
    "POSTGRES_PASSWORD_FILE=/run/secrets/db",
    "private_key: /etc/ssl/private/key.pem",
    "API_KEY=<your key>",
    "API_KEY=xxxxxxxx",
    "docker run -u 1000:1000 image",
    "tool --password PASSWORD --token <token>",
    "PWD=/home/me\nOLDPWD=/",
    # JSON
    '{"password": {"type": "string"}, "required": ["password"]}',
    '{"password": "string", "secret": null, "api_key": false}',
    '{"token": " Hello", "logprob": -0.1, "bytes": [1, 2]}',
    '{"nextPageToken": "CAUQAA3kd93kdk2", "items": []}',
    '{"usage": {"input_tokens": 1234, "output_tokens": 12345}}',
    '{"password": "Enter your password"}',
    '["http://a:8080","me@x.org"]',
    # Prose
    "the token: a word",
    "tokens: 12",
    "Enter your password: then press return",
    "password: see the wiki",
    "Login failed:\npassword: refused",
    "user: unknown\npassword: incorrect",
    "token: the\ntoken: cat",
    "secrets:\n  secret: db_password\n  other: x",
    "He wrote password: swordfish",
    'It says "password: swordfish" there',
    "The secret: work. Password: optional, 8-20 letters.",
    "Bearer authentication and Basic authentication are understood",
    "the basic understanding",
    "https://example.org:8080/a@b and http://localhost:8000/@me",
    # What looks like a key and is none
    "sk-learn, sk-, sk-toggleable__label-arrow and sk-container-id-1",
    "a task-management-system-for-everybody2 on a disk-based-store-of-1234567890",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "550e8400-e29b-41d4-a716-446655440000",
    f"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA{RANDOM * 4}",
    "npm_config_registry hf_hub_download gsk_ ghp_ AKIA AIza xoxb- pypi-server glpat-",
    "eyJhbGciOiJIUzI1NiJ9 alone says nothing",
    "-----BEGIN PUBLIC KEY-----\n" + PEM_LINE + "\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\n" + PEM_LINE,
    "2024-01-01T12:30:45 12:34:56:AA:BB:CC",
]


@pytest.mark.parametrize("text", STAY)
def test_source_code_and_prose_stay_as_they_are(text: str) -> None:
    assert Redactor().redact(text) == text


@pytest.mark.parametrize("text", [text for text, _ in GO] + STAY)
def test_redacted_json_stays_json(text: str) -> None:
    """A text in JSON in JSON is as secret as one that is not, and still JSON without it."""
    for whole in (json.dumps({"x": text}), json.dumps({"x": json.dumps([text])})):
        json.loads(Redactor().redact(whole))


@pytest.mark.parametrize(("text", "left"), GO)
def test_a_secret_is_found_in_a_body(text: str, left: str) -> None:
    assert text != left
    assert Redactor().may_hold_secret(json.dumps({"text": text}).encode())


@pytest.mark.parametrize("prefix", KEY_PREFIXES)
def test_every_prefix_of_the_table_is_found_by_the_first_search(prefix: str) -> None:
    assert Redactor().may_hold_secret(f'{{"text":"it is {prefix}1"}}'.encode())
