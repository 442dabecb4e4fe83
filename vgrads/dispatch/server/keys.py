"""Keys of hosts: one for each slot, made from the dispatcher's secret, so that none need be
kept."""

from __future__ import annotations

import base64
import hashlib
import hmac


def key_of(secret: bytes, slot: str) -> str:
    """The bearer key of a slot's hosts."""
    name = base64.urlsafe_b64encode(slot.encode()).decode().rstrip("=")
    return f"{name}.{_sign(secret, slot)}"


def slot_of(secret: bytes, key: str) -> str | None:
    """The slot that a key was made for; None for one that was not made here."""
    name, _, signed = key.partition(".")
    try:
        slot = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except ValueError:
        return None
    return slot if hmac.compare_digest(signed.encode(), _sign(secret, slot).encode()) else None


def _sign(secret: bytes, slot: str) -> str:
    return hmac.new(secret, slot.encode(), hashlib.sha256).hexdigest()
