"""Commands that plan, run and show sets."""
