"""nginx with TLS in front of a team's server, by the settings that docs/team-server.md shows."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fa_registry
from tests.docs.pages import ROOT
from tests.end_to_end.conftest import needed
from tests.end_to_end.server import free_port, mlflow_server

PAGE = ROOT / "docs" / "team-server.md"
SECONDS = 120  # until a program that does not end never will
OPENSSL = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"


@contextmanager
def tls(server: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The address of nginx in front of `server`, and the certificate, which only configured clients trust."""
    port, certificate, key = free_port(), folder / "tls.pem", folder / "tls.key"
    made = [needed("openssl"), *OPENSSL.split(), "-keyout", key, "-out", certificate]
    subprocess.run(made, check=True, stderr=subprocess.DEVNULL, timeout=SECONDS)
    block = next(block for block in PAGE.read_text().split("\n\n") if block.startswith("    server {"))
    shown = {
        "443": str(port),
        "registry.example.org": "localhost",
        "/etc/ssl/registry.pem": str(certificate),
        "/etc/ssl/registry.key": str(key),
        "http://127.0.0.1:5000": server,
    }
    for there, here in shown.items():
        assert there in block, there
        block = block.replace(there, here)
    settings = folder / "nginx.conf"
    settings.write_text(f"pid {folder}/nginx.pid; events {{}}\nhttp {{ access_log off;\n{block}\n}}\n")
    command = [needed("nginx"), "-p", folder, "-c", settings, "-e", folder / "nginx.log"]
    subprocess.run(command, check=True, timeout=SECONDS)  # it listens when this ends, and continues by itself
    try:
        yield f"https://localhost:{port}", certificate
    finally:
        subprocess.run([*command, "-s", "quit"], check=True, timeout=SECONDS)


@pytest.mark.long
def test_a_run_is_trained_through_nginx_by_who_trusts_its_certificate_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wanted = {"method": "bp", "seed": 1, "epochs": 1, "device": "cpu", "executor": "side_by_side"}
    with (
        mlflow_server(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlartifacts") as server,
        tls(server, tmp_path) as (address, certificate),
    ):
        with pytest.raises(fa_registry.RegistryError, match="certificate verify failed"):
            fa_registry.train(**wanted, store=address)
        for variable in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
            monkeypatch.setenv(variable, str(certificate))
        run = fa_registry.train(**wanted, store=address)
    assert run.page.startswith(address)  # its view was made, for which the server reported its version
