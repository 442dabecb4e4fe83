"""The steps by which an older database becomes one of this version; run by
:mod:`portal.migrate`."""
