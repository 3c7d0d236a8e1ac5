"""Who makes keys and signs: the `cryptography` library or the host's `openssl`. Both give the same certificates."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, Profile


class Signer(Protocol):
    """An authority with its key at hand."""

    @property
    def pair(self) -> KeyPair: ...

    def issue(self, profile: Profile, now: datetime, lifetime: timedelta) -> KeyPair:
        """Draw a key for the profile and sign its certificate, which begins an hour before `now`."""
        ...


class Backend(Protocol):
    """`Authority` (the class itself) and `Openssl` are such."""

    def create(
        self,
        common_name: str,
        now: datetime,
        lifetime: timedelta,
        key_type: KeyType = KeyType.RSA_2048,
        organizations: Iterable[str] = (),
    ) -> Signer:
        """Draw a key and sign it with itself."""
        ...

    def load(self, pair: KeyPair) -> Signer:
        """Take up an authority that was made earlier; of a bundle, the certificate that the key belongs to.

        Raises:
            BundleError: not PEM, not a CA, or the key is another certificate's.
        """
        ...
