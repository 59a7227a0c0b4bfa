"""Who sent a message: Ed25519 signatures of clients' messages (RFC 8032), and rosters of public keys.

The name in a message is only a name. A site that has a key signs its message, and a coordinator who has a roster, with
the public key of each client, refuses what the key of the named client did not sign.

The signature is one more entry of the message's header, "signature", in base64. Readers of earlier versions ignore
entries that they do not know, and a message without a signature is the same bytes as before. What is signed is
`signed_text`: the header without the signature, and the hashes of all arrays. It does not depend on how a version of
safetensors lays out a file. Ed25519 draws no random numbers: the same message with the same key is the same bytes.

A signature says who sent a message, not that its numbers are true or that it is the sender's latest.
"""

from __future__ import annotations

import base64
import binascii
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from coreshot.errors import CoreshotError
from coreshot.storage import check_client_name
from coreshot.wire.messages import hash_arrays, pack, unpack

PREFIX = "ed25519:"  # of a public key as text; the rest is base64
PURPOSE = b"coreshot message, format 1\n"  # a signature for anything else is none of a message
MAX_KEY_FILE = 10_000  # bytes; a key has about 120

Roster = Mapping[str, str]  # client -> its public key as text


@dataclass(frozen=True, repr=False)
class Key:
    """A site's private key. Its repr says nothing of it."""

    private: Ed25519PrivateKey

    @property
    def public(self) -> str:
        raw = self.private.public_key().public_bytes_raw()
        return PREFIX + base64.b64encode(raw).decode()

    def to_pem(self) -> bytes:
        return self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def make_key() -> Key:
    """From the operating system's random bits."""
    return Key(Ed25519PrivateKey.generate())


def read_key(path: Path) -> Key:
    try:
        with path.open("rb") as file:
            private = serialization.load_pem_private_key(file.read(MAX_KEY_FILE), password=None)
    except OSError as error:
        raise CoreshotError(f"{path}: cannot be read ({error.strerror}); make a key with `coreshot key new`.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise CoreshotError(
            f"{path}: is no private key of coreshot; give the file that `coreshot key new` has written."
        )
    return Key(private)


def roster_line(client: str, key: Key) -> str:
    """One line of a roster; the roster is such lines one below the other."""
    return f'"{check_client_name(client)}" = "{key.public}"\n'


def read_roster(path: Path) -> dict[str, str]:
    """A TOML file: client = "ed25519:...". All keys are of the right form, and each is of one client."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CoreshotError(f"{path}: cannot be read ({error.strerror}); give the path of a roster.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CoreshotError(
            f'{path}: not valid TOML ({error}); each line of a roster is "CLIENT" = "{PREFIX}...", one for a client.'
        ) from None
    return check_roster(values, str(path))


def check_roster(values: Any, where: str) -> dict[str, str]:
    if not isinstance(values, dict) or not values:
        raise CoreshotError(f"{where}: has no client; put the line of each client's public key into it.")
    owners: dict[bytes, str] = {}
    for client, key in values.items():
        check_client_name(client)
        raw = _public_key(client, key, where).public_bytes_raw()
        if raw in owners:
            raise CoreshotError(
                f"{where}: clients {owners[raw]} and {client} have the same key; ask one of them for a key of its own."
            )
        owners[raw] = client
    return values


def _public_key(client: str, text: Any, where: str) -> Ed25519PublicKey:
    try:
        if isinstance(text, str) and text.startswith(PREFIX):
            return Ed25519PublicKey.from_public_bytes(base64.b64decode(text.removeprefix(PREFIX), validate=True))
    except (ValueError, binascii.Error):
        pass
    raise CoreshotError(
        f'{where}: the key of client {client} is not "{PREFIX}" and 44 letters; '
        "copy the line that `coreshot key new` has written at that site."
    )


def signed_text(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    content = {
        "header": {name: value for name, value in header.items() if name != "signature"},
        "arrays": hash_arrays(arrays),
    }
    return PURPOSE + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def sign_message(data: bytes, key: Key) -> bytes:
    header, arrays = unpack(data)
    signature = base64.b64encode(key.private.sign(signed_text(header, arrays))).decode()
    return pack({**header, "signature": signature}, arrays)


def check_senders(messages: Iterable[bytes], roster: Roster) -> None:
    for data in messages:
        check_sender(data, roster)


def check_sender(data: bytes, roster: Roster) -> None:
    """A CoreshotError if the message is not signed by the client whose name it bears."""
    header, arrays = unpack(data)
    client = check_client_name(header["client"])
    if client not in roster:
        raise CoreshotError(
            f"client {client}: is not in the roster; leave its file away, or add its public key to the roster."
        )
    if "signature" not in header:
        raise CoreshotError(
            f"client {client}: its file is not signed, and the roster has a key for it; "
            "have the site distill again with --key."
        )
    try:
        signature = base64.b64decode(header["signature"], validate=True)
        _public_key(client, roster[client], "roster").verify(signature, signed_text(header, arrays))
    except (InvalidSignature, ValueError, TypeError):
        raise CoreshotError(
            f"client {client}: its file was not signed with the key that the roster has for it, or changed afterwards; "
            "ask the site whether it sent this file."
        ) from None
