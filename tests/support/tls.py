"""A key and a certificate for 127.0.0.1 that nobody trusts unless told to."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

from tests.support.parts import missing_part


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """The files of the certificate and of its key."""
    openssl = shutil.which("openssl") or missing_part("openssl")
    certificate, key = folder / "server.crt", folder / "server.key"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
