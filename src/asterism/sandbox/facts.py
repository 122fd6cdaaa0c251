"""Which files of the system every program needs, and which only those with a network."""

from __future__ import annotations

NEEDED_OF_ETC = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "pki",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
NEEDED_FOR_NETWORK = ("gai.conf", "host.conf", "hosts", "resolv.conf")
DEVICES = ("null", "zero", "full", "random", "urandom")
