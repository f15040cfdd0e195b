# SPDX-License-Identifier: Apache-2.0
"""What libvirt-python does that everyone who calls it must know: its errors, and silence.

libvirt prints every error to stderr unless a handler is registered, and its
errors arrive as one exception type with numbers in it.
"""

from __future__ import annotations

from typing import Any

import libvirt

from gangd.errors import AccessDenied, GangError, InvalidArgument, NoLibvirt, NoSuchDomain, NotRunning

# Errors made by the client's own connection code rather than by the far driver.
_TRANSPORT = (libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE)
_BY_CODE: dict[int, type[GangError]] = {
    libvirt.VIR_ERR_NO_DOMAIN: NoSuchDomain,
    libvirt.VIR_ERR_OPERATION_INVALID: NotRunning,
    libvirt.VIR_ERR_INVALID_CONN: NoLibvirt,
    libvirt.VIR_ERR_NO_CONNECT: NoLibvirt,
    libvirt.VIR_ERR_AUTH_FAILED: AccessDenied,
    libvirt.VIR_ERR_AUTH_CANCELLED: AccessDenied,
    libvirt.VIR_ERR_AUTH_UNAVAILABLE: AccessDenied,
    libvirt.VIR_ERR_ACCESS_DENIED: AccessDenied,
    libvirt.VIR_ERR_OPERATION_DENIED: AccessDenied,
    libvirt.VIR_ERR_INVALID_ARG: InvalidArgument,
}


def quiet() -> None:
    """Stop libvirt from printing errors; they are raised anyway."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)


def translate(error: Any) -> GangError:
    """A `libvirt.libvirtError` as the GangError that names its cause."""
    text = " ".join((error.get_error_message() or str(error)).split())
    kind = _BY_CODE.get(error.get_error_code())
    if kind is None:
        kind = NoLibvirt if error.get_error_domain() in _TRANSPORT else GangError
    return kind(text)


def is_gone(error: Any) -> bool:
    """True when the domain does not exist or does not run (any more)."""
    return error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)
