"""An OpenID Connect provider on loopback: real keys, PKCE, codes that work once, and faults."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from threading import Thread  # noqa: TID251 (the server of the library blocks)
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

CLIENT: Final = "console"
SECRET: Final = "s3cret/with:signs"
OTHER_KEY: Final = ec.generate_private_key(ec.SECP256R1())
RSA_KEY: Final = rsa.generate_private_key(65_537, 2048)


class OidcProvider:
    """The state of a provider, which tests change."""

    def __init__(self) -> None:
        self.issuer = ""
        self.subject = "00u1"
        self.name = "ann@example.org"
        self.groups: object = ["engineers"]
        self.algorithm = "ES256"
        self.fault = ""
        """The name of the claim, or of the part of a token, that is wrong."""
        self.document: dict[str, Any] = {}
        """Changes of the configuration document."""
        self.codes: dict[str, Mapping[str, str]] = {}
        """The requests of codes that were not used yet."""
        self.reads = 0
        """How often the keys were read."""
        self.rotate()

    def rotate(self) -> None:
        """Replace the key that signs, and its id."""
        self.key_id = token_urlsafe(6)
        self.key = ec.generate_private_key(ec.SECP256R1())

    def configuration(self) -> Mapping[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "id_token_signing_alg_values_supported": ["RS256", "ES256", "HS256", "none"],
            "scopes_supported": ["openid", "profile", "groups"],
            **self.document,
        }

    def keys(self) -> Mapping[str, Any]:
        self.reads += 1
        shown = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        other = json.loads(RSAAlgorithm.to_jwk(RSA_KEY.public_key()))
        named = {"kid": self.key_id, "use": "sig"}
        return {"keys": [{**other, **named, "kid": "rsa"}, {**shown, **named}]}

    def authorize(self, query: Mapping[str, str]) -> str:
        """Return where the browser goes next: the person is known, and agrees at once."""
        assert query["client_id"] == CLIENT
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert query["scope"] == "openid profile groups"
        back = urlsplit(query["redirect_uri"])
        # The registered address of the client.
        assert (back.scheme, back.hostname, back.path) == ("http", "127.0.0.1", "/")
        if self.fault == "denied":
            answer = {"error": "access_denied", "error_description": "You may not."}
        else:
            code = token_urlsafe(16)
            self.codes[code] = query
            answer = {"code": code, "iss": self.issuer}
        return f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state']})}"

    def token(self, form: Mapping[str, str], login: str) -> Mapping[str, str] | None:
        """Return the tokens for a code; None if the request is not of its client."""
        name, _, secret = base64.b64decode(login.removeprefix("Basic ")).decode().partition(":")
        asked = self.codes.pop(form["code"], None)
        if asked is None or (unquote(name), unquote(secret)) != (CLIENT, SECRET):
            return None
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (asked["redirect_uri"], asked["code_challenge"]) != (form["redirect_uri"], challenge):
            return None
        return {"id_token": self.id_token(asked["nonce"]), "token_type": "Bearer"}

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": self.subject,
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            "preferred_username": self.name,
            "groups": self.groups,
        }
        wrong: dict[str, dict[str, Any]] = {
            "issuer": {"iss": "https://evil.example"},
            "audience": {"aud": "another-client"},
            "shared audience": {"aud": [CLIENT, "another-client"]},
            "authorized party": {"azp": "another-client"},
            "nonce": {"nonce": "of-another-sign-in"},
            "expired": {"iat": now - 7200, "exp": now - 3600},
            "not yet": {"nbf": now + 3600},
            "subject": {"sub": ""},
            "surrogate nonce": {"nonce": "\ud800"},
            "surrogate subject": {"sub": "\ud800"},
        }
        claims |= wrong.get(self.fault, {})
        if self.fault.startswith("without "):
            del claims[self.fault.removeprefix("without ")]
        return self._signed(claims)

    def _signed(self, claims: Mapping[str, Any]) -> str:
        signer: tuple[Any, str, str] = (self.key, "ES256", self.key_id)
        match self.fault:
            case "no token":
                return "nonsense"
            case "public key as secret":
                public = RSA_KEY.public_key()
                pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
                return _hmac_token(claims, pem)
            case "no signature":
                signer = (None, "none", self.key_id)
            case "another key":
                signer = (OTHER_KEY, "ES256", self.key_id)
            case "unknown key":
                signer = (OTHER_KEY, "ES256", "other")
            case _ if self.algorithm == "RS256":
                signer = (RSA_KEY, "RS256", "rsa")
            case _:
                pass
        key: Any = signer[0]
        return jwt.encode(dict(claims), key, signer[1], headers={"kid": signer[2]})


def _hmac_token(claims: Mapping[str, Any], secret: bytes) -> str:
    """Sign as a forger does who knows the public key."""
    header = {"alg": "HS256", "kid": "rsa", "typ": "JWT"}
    parts = [
        base64.urlsafe_b64encode(json.dumps(it).encode()).rstrip(b"=") for it in (header, claims)
    ]
    signed = b".".join(parts)
    mac = hmac.digest(secret, signed, "sha256")
    return b".".join([signed, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()


@contextmanager
def open_provider() -> Generator[OidcProvider]:
    """Run a provider, as long as the block lasts."""
    provider = OidcProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = urlsplit(self.path)
            match target.path:
                case "/.well-known/openid-configuration":
                    self.answer(200, provider.configuration())
                case "/jwks":
                    self.answer(200, provider.keys())
                case "/authorize":
                    there = provider.authorize(dict(parse_qsl(target.query)))
                    self.answer(302, {}, location=there)
                case _:
                    self.answer(404, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            login = self.headers.get("authorization", "")
            tokens = provider.token(dict(parse_qsl(body)), login)
            self.answer(400 if tokens is None else 200, tokens or {"error": "invalid_grant"})

        def answer(self, status: int, body: Mapping[str, Any], **headers: str) -> None:
            raw = json.dumps(body).encode()
            if provider.fault == "deep":
                raw = b'{"nested":' + b"[" * 100_000
            self.send_response(status)
            for name, value in {"content-length": str(len(raw)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
