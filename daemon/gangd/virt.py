# SPDX-License-Identifier: Apache-2.0
"""libvirt-python's errors, for all modules that call it: kept off stderr, and translated.

libvirt prints every error to stderr unless a handler is registered, and raises
all of them as one exception type with numbers in it.
"""

from __future__ import annotations

from typing import Any

import libvirt

from gangd.errors import AccessDenied, GangError, InvalidArgument, NoLibvirt, NoSuchDomain, NotRunning

# Errors made by the client's own connection code rather than by the far driver.
_TRANSPORT = (libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE)
_ID_MAX = 2**31 - 1
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
    if kind is None and error.get_error_code() == libvirt.VIR_ERR_RPC:
        kind = GangError  # one message could not be sent, and the connection is as before
    if kind is None:
        kind = NoLibvirt if error.get_error_domain() in _TRANSPORT else GangError
    return kind(text)


def is_gone(error: Any) -> bool:
    """True when the domain does not exist or does not run (any more)."""
    return error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)


def lookup(conn: Any, ref: str) -> Any:
    """The virDomain called `ref`, id, UUID or name. Raises NoSuchDomain, or what keeps libvirt from
    looking."""
    calls = [conn.lookupByUUIDString, conn.lookupByName]
    if ref.isascii() and ref.isdecimal() and int(ref[:11]) <= _ID_MAX:
        calls.insert(0, lambda text: conn.lookupByID(int(text)))
    for call in calls:
        try:
            return call(ref)
        except ValueError:  # NUL or lone surrogates: no domain is called that
            continue
        except libvirt.libvirtError as error:
            failure = translate(error)
            if not isinstance(failure, NoSuchDomain | InvalidArgument):  # InvalidArgument: it is no UUID
                raise failure
    raise NoSuchDomain(f"Domain not found: no domain with matching name '{ref}'")
