"""TLS for the HTTP server, and who may be reached without it."""

from __future__ import annotations

import logging
import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from asterism.api.auth import is_loopback
from asterism.errors import InvalidInput

if TYPE_CHECKING:
    from asterism.config import ApiSettings

_log = logging.getLogger(__name__)
_BEGUN = "Nothing was started."


class TlsFiles:
    """A certificate and its key: checked when they are read, and read again when they change."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read them; raise `InvalidInput` with a sentence if they cannot be used."""
        self.certificate = certificate
        self.key = key
        self._read_at = self._changed_at()
        self.context = self._read()

    def _read(self) -> ssl.SSLContext:
        for name, file in (("tls_cert", self.certificate), ("tls_key", self.key)):
            try:
                file.read_bytes()
            except OSError as error:
                raise InvalidInput(
                    f"api.{name} names {file}, which cannot be read ({error.strerror}). Name a PEM "
                    f"file that this user may read. {_BEGUN}"
                ) from None
        self._check_mode()
        self._check_dates()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        def refuse_password() -> NoReturn:
            # Without this, OpenSSL would ask at the terminal.
            raise InvalidInput(
                f"The key {self.key} needs a password, which a server that starts by itself cannot "
                f"type. Store it without one, readable by this user alone. {_BEGUN}"
            )

        try:
            context.load_cert_chain(self.certificate, self.key, refuse_password)
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            raise InvalidInput(
                f"{self.certificate} and {self.key} cannot be used for TLS ({reason}). A PEM file "
                "with the certificate and those that sign it, and one with the private key of that "
                f"certificate are needed. {_BEGUN}"
            ) from None

    def _check_mode(self) -> None:
        """Warn if other users of the machine can read or change the key.

        Its group may read it: it is often one of those who may use certificates.
        """
        mode = stat.S_IMODE(self.key.stat().st_mode)
        if mode & 0o027:
            _log.warning(
                "the key %s can be used by other users of this machine (mode %04o). Run "
                '"chmod 600 %s", or 640 if its group shall read it, and make a new key.',
                *(self.key, mode, self.key),
            )

    def _check_dates(self) -> None:
        """Raise `InvalidInput` if the certificate is not one, or is not valid any more."""
        from cryptography import x509

        try:
            found = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        except ValueError:
            raise InvalidInput(
                f"{self.certificate} is not a certificate. A PEM file is needed, which has a line "
                f'"-----BEGIN CERTIFICATE-----". {_BEGUN}'
            ) from None
        until = found.not_valid_after_utc
        if until < datetime.now(UTC):
            raise InvalidInput(
                f"The certificate {self.certificate} expired on {until:%Y-%m-%d %H:%M} UTC. Renew "
                f"it and try again. {_BEGUN}"
            )

    def _changed_at(self) -> tuple[int, ...]:
        times: list[int] = []
        for file in (self.certificate, self.key):
            try:
                times.append(file.stat().st_mtime_ns)
            except OSError:
                times.append(0)  # it is being replaced
        return tuple(times)

    def read_again(self) -> bool:
        """Use the files from now on if they have changed; tell whether they had.

        Raises:
            InvalidInput: They cannot be used; the ones from before stay in use.
        """
        changed_at = self._changed_at()
        if changed_at == self._read_at:
            return False
        self._read_at = changed_at
        self._read()  # first into a context of its own: half of a pair must not come into use
        self._load(self.context)
        return True


def tls_of(settings: ApiSettings) -> TlsFiles | None:
    """Return the certificate and the key of the settings; None if there are none."""
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        there, missing = ("tls_cert", "tls_key")
        if settings.tls_cert is None:
            there, missing = missing, there
        raise InvalidInput(
            f"api.{there} is set and api.{missing} is not. TLS needs both: --tls-cert FILE and "
            f"--tls-key FILE. {_BEGUN}"
        )
    return TlsFiles(Path(settings.tls_cert), Path(settings.tls_key))


def check_exposed(address: str, tls: TlsFiles | None, settings: ApiSettings) -> None:
    """Raise `InvalidInput` if others could listen to what is said at an address."""
    if is_loopback(address) or tls is not None or settings.behind_proxy:
        return
    raise InvalidInput(
        f"At {address} other machines could read tokens and messages on the way. Add --tls-cert "
        "and --tls-key; or add --behind-proxy if a reverse proxy in front does TLS; or listen at "
        f"127.0.0.1. {_BEGUN}"
    )
