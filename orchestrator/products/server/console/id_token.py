"""The check of an ID token: its signature, issuer, audience, times and nonce.

Only algorithms with a public key are accepted. So a token without a signature, or one whose HMAC
uses the public key as its secret, is refused, whatever its header or the provider says.
"""

import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from orchestrator.agents import well_formed

ALGORITHMS: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""The accepted algorithms, with the types of their keys."""
LEEWAY_SECONDS: Final = 60
"""The most seconds between the clocks of the provider and this machine."""
LONGEST_SUBJECT: Final = 255


class InvalidTokenError(Exception):
    """An ID token does not prove a sign-in."""


def has_key(token: str, keys: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a set of keys has the key that a token names."""
    return any(_keys_for(_header(token), keys))


def claims_of(
    token: str,
    keys: Sequence[Mapping[str, Any]],
    *,
    algorithms: Sequence[str],
    issuer: str,
    client_id: str,
    nonce: str,
) -> Mapping[str, Any]:
    """Return the claims of a token after all checks, or raise `InvalidTokenError`."""
    import jwt  # imported late: an extra

    header = _header(token)
    algorithm = header["alg"]
    if algorithm not in ALGORITHMS or algorithm not in algorithms:
        raise InvalidTokenError("its algorithm is not accepted")
    problem = "no key of the provider signs it"
    for key in _keys_for(header, keys):
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                jwt.PyJWK(dict(key), algorithm),
                algorithms=[algorithm],
                audience=client_id,
                issuer=issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "aud", "iss", "sub"]},
            )
        except (jwt.InvalidSignatureError, jwt.PyJWKError, jwt.InvalidKeyError):
            continue
        except jwt.PyJWTError as exc:
            problem = str(exc)
            break
        _require_sign_in(claims, client_id, nonce)
        return claims
    raise InvalidTokenError(problem)


def _require_sign_in(claims: Mapping[str, Any], client_id: str, nonce: str) -> None:
    """Refuse a genuine token of another sign-in, or for another client."""
    named = str(claims.get("nonce", "")).encode(errors="replace")
    if not hmac.compare_digest(named, nonce.encode()):
        raise InvalidTokenError("it belongs to another sign-in")
    audience: str | list[str] = claims["aud"]
    is_shared = not isinstance(audience, str) and len(audience) > 1
    if claims.get("azp", None if is_shared else client_id) != client_id:
        raise InvalidTokenError("it is for another client")
    subject: str = claims["sub"]
    if not 0 < len(subject) <= LONGEST_SUBJECT or well_formed(subject) != subject:
        raise InvalidTokenError("its subject is empty, too long, or no text")


def _header(token: str) -> Mapping[str, Any]:
    """Return the header of a token, which nothing confirms yet."""
    import jwt

    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(token)
    except jwt.PyJWTError as exc:
        raise InvalidTokenError("it is not a signed token") from exc
    if not isinstance(header.get("alg"), str):
        raise InvalidTokenError("its algorithm is not accepted")
    return header


def _keys_for(
    header: Mapping[str, Any], keys: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the keys that may have signed a token; a token without a key id may use any."""
    algorithm, id_ = header["alg"], header.get("kid")
    for key in keys:
        if (
            key.get("kty") == ALGORITHMS.get(algorithm)
            and key.get("alg", algorithm) == algorithm
            and key.get("use", "sig") == "sig"
            and (id_ is None or key.get("kid") == id_)
        ):
            yield key
