"""Commands that plan, run and look at sets."""
