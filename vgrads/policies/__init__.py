"""Dispatch policies that users write, in the ClassAd language: read, checked, bounded in cost,
evaluated."""
