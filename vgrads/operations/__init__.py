"""What users ask and do, each once: a typed request, a typed answer, one function. Commands, REST,
Python functions and pages call these."""
