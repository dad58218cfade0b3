"""The hosts that a command may reach, by name.

An entry is a name (`example.com`), all names below one (`*.example.com`), any name (`*`), or the
alias of a public registry (`pypi`). It stands for the ports 80 and 443, or for the port that it
names (`example.com:8443`).

A name promises a host, but not an address: its owner may point it to this machine or into its
network. So private addresses, and all addresses of this machine, are refused, unless the entry is a
name with its port (`db.internal:5432`). The addresses where clouds keep the credentials of a
machine are refused unless the address itself is the entry. `public:` before an entry refuses all
these addresses. Two entries are combined into a `public:` entry if only one of them permits them.
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, Self

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.sandbox.network.own_addresses import Address, is_of_this_machine
from orchestrator.agents.type_checks import has_type

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "crates": ("crates.io", "index.crates.io", "static.crates.io"),
    "debian": ("deb.debian.org", "security.debian.org"),
    "github": (
        "github.com",
        "api.github.com",
        "codeload.github.com",
        "objects.githubusercontent.com",
        "raw.githubusercontent.com",
        "release-assets.githubusercontent.com",
    ),
    "go": ("proxy.golang.org", "sum.golang.org"),
    "maven": ("repo.maven.apache.org", "repo1.maven.org"),
    "npm": ("registry.npmjs.org",),
    "pypi": ("pypi.org", "files.pythonhosted.org"),
    "rubygems": ("rubygems.org", "index.rubygems.org"),
    "ubuntu": ("archive.ubuntu.com", "ports.ubuntu.com", "security.ubuntu.com"),
}
"""The hosts that a package manager needs, by the name of its registry."""
WEB_PORTS: Final = frozenset({80, 443})
ANY: Final = "*"
PUBLIC: Final = "public:"

_LABEL: Final = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
# A host that ends in a number is an address, however it is written: 0x7f.1 is 127.0.0.1.
_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*(?!(?:[0-9]+|0x[0-9a-f]*)\Z){_LABEL}")
_MAX_NAME: Final = 253
# Credentials of the machine are served here, without a password, to every process on it.
_METADATA: Final = frozenset(
    map(ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"))
)
# Translated by the network to the IPv4 address in the last four bytes: NAT64, SIIT, and compatible.
_TRANSLATED: Final = tuple(map(IPv6Network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
_LOOPBACK_AND_NONE: Final = IPv6Network("::/127")
# All other addresses of IPv6 are local, reserved, or for routers.
_INTERNET: Final = IPv6Network("2000::/3")
_HOST_AND_PORT: Final = re.compile(
    r"(?:\[(?P<address>[^\[\]]*)\]|(?P<host>[^\[\]:]+))(?::(?P<port>[0-9]{1,5}))?"
)


@attrs.frozen
class HostRule:
    """One host, or the hosts below one, and its ports."""

    host: str
    """A name, `*.` and a name, `*`, or an address; in the form of `normal_host`."""
    port: int | None
    """None: the ports of the web."""
    may_be_private: bool
    """The name may lead to this machine or into its network."""

    @classmethod
    def parse(cls, entry: str) -> Self:
        """Read an entry that is no alias; raise `DefinitionError` if it names no host."""
        text = entry.removeprefix(PUBLIC)
        try:
            host, port = split_port(text)
            below, name = ("*.", host[2:]) if host.startswith("*.") else ("", host)
            name = name if host == ANY else normal_host(name)
        except ValueError as exc:
            raise DefinitionError(_problem(entry, str(exc))) from exc
        is_address = as_address(name) is not None
        if below and is_address:
            raise DefinitionError(_problem(entry, "no name is below an address"))
        if "." not in name and port is None and not (is_address or below or host == ANY):
            raise DefinitionError(
                _problem(entry, f"{name!r} is not an alias; a name of one word needs its port")
            )
        is_service = (port is not None or is_address) and not host.startswith(ANY)
        return cls(f"{below}{name}", port, is_service and text == entry)

    def __str__(self) -> str:
        """Return it as an entry."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        entry = host if self.port is None else f"{host}:{self.port}"
        own = HostRule.parse(entry)
        return entry if own == self else f"{PUBLIC}{entry}"

    def covers(self, host: str, port: int) -> bool:
        """Return whether it stands for a host, in the form of `normal_host`, and a port."""
        return self._covers_port(port) and self._covers_host(host)

    def permits(self, address: Address) -> bool:
        """Return whether the host may have this address."""
        is_own = False
        if is_public(address):
            # A machine with an address of the internet serves itself there, too.
            is_own = is_of_this_machine(_translated(address) or address)
            if not is_own:
                return True
        return self.may_be_private and (self.host == str(address) or is_private(address) or is_own)

    def within(self, outer: Self) -> Self | None:
        """Return the rule for what both stand for."""
        if outer._covers_host(self.host):
            host = self.host
        elif self._covers_host(outer.host):
            host = outer.host
        else:
            return None
        if self.port is None:
            port = outer.port
            is_empty = port is not None and port not in WEB_PORTS
        else:
            port = self.port
            is_empty = not outer._covers_port(port)
        if is_empty:
            return None
        return attrs.evolve(
            self, host=host, port=port, may_be_private=self.may_be_private and outer.may_be_private
        )

    def _covers_port(self, port: int) -> bool:
        return port in WEB_PORTS if self.port is None else port == self.port

    def _covers_host(self, host: str) -> bool:
        """Return whether it stands for a host, or for all that a rule for `host` stands for."""
        if self.host == host:
            return True
        # Only the address itself covers an address.
        if as_address(host) is not None:
            return False
        is_below = self.host.startswith("*.") and host.endswith(self.host[1:])
        return self.host == ANY or is_below


@attrs.frozen
class AllowedHosts:
    """All that a command may reach."""

    rules: tuple[HostRule, ...]

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Self:
        """Read names, names with ports, wildcards and aliases, or raise `DefinitionError`."""
        entries = tuple(entries)
        for entry in entries:
            if not has_type(entry, str):
                raise DefinitionError(_problem(entry, "it is not text"))
        names = [name for entry in entries for name in ALIASES.get(entry, (entry,))]
        return cls(tuple(dict.fromkeys(map(HostRule.parse, names))))

    def entries(self) -> tuple[str, ...]:
        """Return what `parse` reads, without aliases."""
        return tuple(map(str, self.rules))

    def matching(self, host: str, port: int) -> tuple[HostRule, ...]:
        """Return the rules that stand for a host and a port: none if it may not be reached."""
        return tuple(rule for rule in self.rules if rule.covers(host, port))

    def within(self, outer: Self) -> Self:
        """Return what both allow."""
        both = (own.within(other) for own in self.rules for other in outer.rules)
        rules = dict.fromkeys(rule for rule in both if rule is not None)
        return attrs.evolve(self, rules=tuple(rules))


def split_port(text: str) -> tuple[str, int | None]:
    """Split `host:port` or `[address]:port`, with or without the port, or raise `ValueError`."""
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None:
        raise ValueError("it is not a host or host:port")
    host = found["address"] or found["host"]
    if found["port"] is None:
        return host, None
    port = int(found["port"])
    if not 0 < port < 65536:
        raise ValueError(f"{port} is not a port")
    return host, port


def normal_host(host: str) -> str:
    """Return a name or an address in its canonical form; raise `ValueError` if it is neither."""
    if (address := as_address(host)) is not None:
        return str(address)
    name = host if host.isascii() else host.encode("idna").decode()
    name = name.lower().removesuffix(".")
    if len(name) > _MAX_NAME or _NAME.fullmatch(name) is None:
        raise ValueError(f"{host!r} is not the name of a host")
    return name


def as_address(host: str) -> Address | None:
    """Return the address that a text is, if it is one."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the internet, also after the translation to IPv4."""
    inner = _translated(address)
    if inner is not None:
        return is_public(inner)
    if isinstance(address, IPv6Address) and address not in _INTERNET:
        return False
    return address.is_global and not address.is_multicast and address not in _METADATA


def is_private(address: Address) -> bool:
    """Return whether an address belongs to this machine or to the network that it is in."""
    inner = _translated(address)
    if inner is not None:
        return is_private(inner)
    is_other = (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address in _METADATA
    )
    return not is_other and not address.is_global


def _translated(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to an IPv6 address end up at, if it has one."""
    if isinstance(address, IPv4Address):
        return None
    if address not in _LOOPBACK_AND_NONE and any(address in it for it in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _problem(entry: str, why: str) -> str:
    return (
        f"Sandbox(network=[{entry!r}]): {why}; an entry is a host (example.com,"
        f" *.example.com, db:5432) or one of {', '.join(ALIASES)}"
    )
