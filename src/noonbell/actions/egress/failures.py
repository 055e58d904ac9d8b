"""Failures on the way, as a kind and a few words that people understand.

The texts of the errors underneath are not passed on, since they may repeat a URL or what the other side sent. Only
their type, their number and OpenSSL's own words about a certificate are used.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Final

from noonbell.errors import EgressFailedError

_WORDS: Final = {
    errno.EHOSTUNREACH: "the host cannot be reached",
    errno.ENETUNREACH: "its network cannot be reached",
    errno.ECONNRESET: "the connection was reset",
    errno.EPIPE: "the connection was closed",
    errno.ECONNABORTED: "the connection was aborted",
    errno.EADDRNOTAVAIL: "this machine has no address or port left for it",
    errno.EMFILE: "too many files and sockets are open",
    errno.ENFILE: "too many files and sockets are open",
}


def failure_of(error: BaseException, where: str) -> EgressFailedError:
    """An error of the operating system or of TLS as one of the tree."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return EgressFailedError("tls", where, f"its certificate was not accepted: {_verify_message(error)}")
    if isinstance(error, ssl.CertificateError):
        return EgressFailedError("tls", where, "its certificate was not accepted")
    if isinstance(error, ssl.SSLError):
        return EgressFailedError("tls", where, f"TLS failed ({_plain(error.reason)})")
    if isinstance(error, socket.gaierror):
        return EgressFailedError("dns", where, "the name could not be resolved")
    if isinstance(error, ConnectionRefusedError):
        return EgressFailedError("refused", where, "nothing listens there")
    if isinstance(error, TimeoutError):
        return EgressFailedError("timeout", where, "it did not answer in time")
    if isinstance(error, OSError):
        if error.errno == errno.ECONNREFUSED:
            return EgressFailedError("refused", where, "nothing listens there")
        number = error.errno or 0
        name = errno.errorcode.get(number, "no reason given")
        return EgressFailedError("connect", where, _WORDS.get(number, f"the connection failed ({name})"))
    return EgressFailedError("protocol", where, f"the exchange failed ({type(error).__name__})")


def _verify_message(error: ssl.SSLCertVerificationError) -> str:
    # "Hostname mismatch, certificate is not valid for …" repeats the host, which may be shown; cut all the same
    return str(getattr(error, "verify_message", "") or "no reason given")[:200]


def _plain(reason: str | None) -> str:
    return (reason or "no reason given").replace("_", " ").lower()[:100]
