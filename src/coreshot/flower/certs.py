"""Certificates and keys of a small federation: an authority, the SuperLink's certificate, and one key for each site.

FOLDER/ca.pem                           for everybody: the certificate of the authority
FOLDER/superlink.pem, superlink.key     for the SuperLink
FOLDER/sites/NAME.key, NAME.pub         the private key for the site alone, and the public key, which is registered

The private key of the authority is not kept: for other names or a longer time, make new certificates.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coreshot.errors import CoreshotError

DAYS = 365


def make_certificates(folder: Path, hosts: Sequence[str], sites: Sequence[str]) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise CoreshotError(f"{folder}: is not empty, and keys are never written over; use another folder.")
    authority, link = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = _name("coreshot federation")
    signed = _certificate(issuer, issuer, authority, authority, is_authority=True)
    _write(folder / "ca.pem", signed.public_bytes(serialization.Encoding.PEM))
    # The coordinator's own commands reach the SuperLink on its machine.
    local = [host for host in ("localhost", "127.0.0.1") if host not in hosts]
    server = _certificate(_name(hosts[0]), issuer, link, authority, hosts=[*hosts, *local])
    _write(folder / "superlink.pem", server.public_bytes(serialization.Encoding.PEM))
    _write(folder / "superlink.key", _private(link, serialization.PrivateFormat.PKCS8), is_secret=True)
    for site in sites:
        make_site_key(folder / "sites" / f"{site}.key")


def make_site_key(path: Path) -> None:
    """Write a private and a public key as `ssh-keygen -t ecdsa -b 384` does."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write(path, _private(key, serialization.PrivateFormat.OpenSSH), is_secret=True)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(path.with_suffix(".pub"), public + b"\n")


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool = False,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
        )
    return builder.sign(signer, hashes.SHA384())


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, data: bytes, is_secret: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o600 if is_secret else 0o644
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
