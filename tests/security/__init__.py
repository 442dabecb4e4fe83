"""Tests of what protects users from each other."""
