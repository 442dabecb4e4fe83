"""The steps that migrate an older database to this version; run by :mod:`portal.migrate`."""
