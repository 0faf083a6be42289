"""API keys, and the checks of Host and Origin that keep other web sites from using a server on this machine.

A file of keys has a line for each key: its SHA-256, and optionally a name. Keys are 256 random bits, so that a plain hash is
enough: it cannot be guessed, and the file does not contain the key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from heedful.errors import ConfigError
from heedful.storage.reading import decode_line, read_lines

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def new_key() -> tuple[str, str]:
    """A new key and its line in a file of keys."""
    key = f"heed-{secrets.token_urlsafe(32)}"
    return key, hash_of(key)


def hash_of(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def read_keys(path: Path) -> list[str]:
    """The hashes in a file of keys; empty lines and lines that start with # are skipped."""
    hashes = []
    for number, line in enumerate(read_lines(path), start=1):
        text = decode_line(line, path, number).strip()
        if not text or text.startswith("#"):
            continue
        digest = text.split()[0].lower()
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise ConfigError(
                f"{path}: line {number} is not the SHA-256 of a key", hint="`heed serve --new-key` prints a key and its line"
            )
        hashes.append(digest)
    if not hashes:
        raise ConfigError(f"{path} has no keys", hint="`heed serve --new-key` prints a key and its line")
    return hashes


def find_key(key: str, hashes: Sequence[str]) -> str | None:
    """The hash of a key if it is known; compared with all of them in constant time."""
    if not hashes:
        return None
    given, found = hash_of(key), None
    for digest in hashes:
        if hmac.compare_digest(given, digest):
            found = digest
    return found


def host_is_allowed(header: str, allowed: Sequence[str]) -> bool:
    """Whether a Host header names this server: an address, localhost, or an allowed name. A page of another site whose name
    resolves to this machine (DNS rebinding) sends its own name."""
    name = host_name(header)
    if name == "localhost" or name in {one.lower() for one in allowed}:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def host_name(header: str) -> str:
    """The name in a Host header, without the port: example.org:80, [::1]:5000."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def origin_is_allowed(origin: str, host: str, allowed: Sequence[str]) -> bool:
    """Whether a page of this origin may send requests: one of this server, or of an allowed origin."""
    return origin in allowed or urlsplit_host(origin) == host.lower()


def urlsplit_host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def check_origins(origins: Sequence[str]) -> None:
    """Raise an error for an allowed origin that is none, such as *."""
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or "*" in origin:
            raise ConfigError(f"--cors: given {origin!r}, expected an origin such as https://example.org; * is not accepted")
