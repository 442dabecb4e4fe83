"""Workflows whose tasks a rule generates: All-Pairs and Wavefront, in blocks of cells."""
