"""Signatures with Ed25519 key pairs (cryptography)."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from combee.core.names.sources import KEY, Check, Header, proof, signed_bytes


def with_public_key(key: bytes) -> Check:
    """Return a function that checks signatures by the public key's 32 bytes."""
    public = Ed25519PublicKey.from_public_bytes(key)

    def check(message: bytes, signature: bytes) -> bool:
        try:
            public.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return check


def key_proof(private: bytes, topic: str, name: str, value: bytes) -> Header:
    """Return the header that proves a name with the private key's 32 bytes."""
    return proof(KEY, Ed25519PrivateKey.from_private_bytes(private).sign(signed_bytes(topic, name, value)))
