"""The bags-of-tasks model (Iosup and others, HPDC 2008): fitted, generated, simulated under
scheduling policies."""
