"""Simulator: batch systems and clouds in virtual time."""
